package catalog_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

// A limit is asked for by its name for each decision, so that a change of it is felt.
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

// A key that has used half of a limit has used half of the next one. Felt is two seconds where other processes use the
// store.
func ExampleUsed() {
	ctx := context.Background()
	s := front.New(memory.New(&memory.Config{Names: true}), nil)
	defer s.Close()
	limits, err := catalog.Open(ctx, s, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()
	limiter := headgate.New(s, &headgate.Config{Names: limits})
	by := catalog.By{Author: "alice"}
	for _, notation := range []string{"fixed-window 100/30d", "fixed-window 10/30d"} {
		api, err := headgate.ParseNamed("api", notation)
		if err != nil {
			fmt.Println(err)
			return
		}
		version, err := limits.Set(ctx, by, catalog.Definition{Limit: api})
		fmt.Println("version", version, err)
		if version == 1 {
			_, err = limiter.Take(ctx, headgate.Charge{Limit: api, Key: "bob", Cost: headgate.Units(50)})
			fmt.Println(err)
		}
		by.Used = catalog.Used{
			Mode: catalog.ScaleUsed, Felt: time.Millisecond,
			Progress: func(p catalog.UsedProgress) { fmt.Println(p.Phase, p.Done, p.Keys) },
		}
	}
	bob, err := limiter.Inspect(ctx, headgate.MustNamed("api"), "bob")
	fmt.Println(bob.Used, "of", bob.Capacity, err)

	// Output:
	// version 1 <nil>
	// <nil>
	// reading keys 0 0
	// reading keys 1 0
	// waiting until every server has the change 0 1
	// changing what is used 0 1
	// changing what is used 1 1
	// version 2 <nil>
	// 5 of 10 <nil>
}
