package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store/memory"
)

func Example() {
	// In place of `headgate serve --config headgate.yaml`.
	c, err := config.Parse("headgate.yaml", []byte("limits: {login: token-bucket 5/1h, mail: token-bucket 100/1h}"))
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter := headgate.New(memory.New(nil), &headgate.Config{Names: c})
	server := httptest.NewServer(rest.New(service.New(limiter, c, nil), slog.Default(), nil))
	defer server.Close()

	// One client for the whole program.
	limits, err := client.New(server.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()

	// Its many goroutines share the calls to the server.
	ctx := context.Background()
	var allowed atomic.Int64
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			d, err := limits.Allow(ctx, headgate.MustNamed("login"), "alice")
			switch {
			case err != nil:
				fmt.Println(err)
			case d.Allowed:
				allowed.Add(1)
			}
		})
	}
	callers.Wait()
	fmt.Println("alice:", allowed.Load(), "of 20")

	d, err := limits.Take(ctx,
		headgate.Charge{Limit: headgate.MustNamed("login"), Key: "bob"},
		headgate.Charge{Limit: headgate.MustNamed("mail"), Key: "acme", Cost: headgate.MustCost("98.5")})
	fmt.Println("bob:", d.Allowed, d.LimitName, d.Key, d.Remaining, err)
	// Output:
	// alice: 5 of 20
	// bob: true mail acme 1 <nil>
}
