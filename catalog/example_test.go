package catalog_test

import (
	"context"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

// A program looks up a limit by name for each decision, so that a change takes effect.
func Example() {
	ctx := context.Background()
	s := front.New(memory.New(nil), nil)
	defer s.Close()
	limits, err := catalog.Open(ctx, s, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()
	limiter := headgate.New(s, nil)
	fallback := headgate.MustParse("token-bucket 1/1h")

	d, err := limiter.Allow(ctx, limits.Limit("login", fallback), "bob")
	fmt.Println(d.Allowed, d.Remaining, err)

	login, err := headgate.ParseNamed("login", "token-bucket 5/1h")
	if err != nil {
		fmt.Println(err)
		return
	}
	by := catalog.By{Author: "alice", Reason: "one try is too few"}
	version, err := limits.Set(ctx, by, catalog.Definition{Limit: login})
	fmt.Println("version", version, err)
	d, err = limiter.Allow(ctx, limits.Limit("login", fallback), "bob")
	fmt.Println(d.Allowed, d.Remaining, err)

	// Output:
	// true 0 <nil>
	// version 1 <nil>
	// true 3 <nil>
}
