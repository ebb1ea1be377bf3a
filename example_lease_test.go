package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// One job runs at a time, and the next one starts as soon as the first has ended.
func ExampleLimiter_Await() {
	limiter, _ := newExampleLimiter()
	ctx := context.Background()
	jobs := headgate.Charge{Limit: headgate.MustParse("concurrency 1 ttl 30s"), Key: "reports"}
	first, err := limiter.Await(ctx, jobs)
	if err != nil {
		fmt.Println(err)
		return
	}
	released := make(chan error, 1)
	go func() { released <- first.Release(ctx) }()
	second, err := limiter.Await(ctx, jobs)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-released, second.Decision.Allowed, first.Err())
	fmt.Println(second.Release(ctx))
	// Output:
	// <nil> true the lease is released already
	// <nil>
}

func ExampleLimiter_AwaitAtMost() {
	limiter, _ := newExampleLimiter()
	ctx := context.Background()
	jobs := headgate.Charge{Limit: headgate.MustParse("concurrency 1 ttl 30s"), Key: "reports"}
	lease, err := limiter.AwaitAtMost(ctx, time.Second, jobs)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)
	fmt.Println(lease.Decision.Allowed)
	_, err = limiter.AwaitAtMost(ctx, 0, jobs) // another caller holds the only place
	fmt.Println(err)
	// Output:
	// true
	// limit concurrency 1 ttl 30s refuses "reports": try again in 30s
}

// A process that answers at once hands its lease to the worker that does the job.
func ExampleLimiter_Renew() {
	limiter, _ := newExampleLimiter()
	ctx := context.Background()
	limit := headgate.MustParse("concurrency 1 ttl 30s")
	lease, err := limiter.Acquire(ctx, headgate.Charge{Limit: limit, Key: "video"})
	if err != nil {
		fmt.Println(err)
		return
	}
	number := lease.Detach()[0].Number // sent to the worker with the job

	token := headgate.LeaseToken{Limit: limit, Key: "video", Number: number}
	fmt.Println(limiter.Renew(ctx, token)) // at least every 30 s
	fmt.Println(limiter.Release(ctx, token))
	fmt.Println(limiter.Renew(ctx, token))
	// Output:
	// <nil>
	// <nil>
	// the lease is lost
}

// Release ends a lease that another process has acquired and detached.
func ExampleLimiter_Release() {
	limiter, _ := newExampleLimiter()
	ctx := context.Background()
	jobs := headgate.Charge{Limit: headgate.MustParse("concurrency 1 ttl 30s"), Key: "reports"}
	lease, err := limiter.Acquire(ctx, jobs)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(limiter.Release(ctx, lease.Detach()...))
	next, err := limiter.Acquire(ctx, jobs)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer next.Release(ctx)
	fmt.Println(next.Decision.Allowed)
	// Output:
	// <nil>
	// true
}

func ExampleLimiter_WaitAtMost() {
	limiter, _ := newExampleLimiter()
	ctx := context.Background()
	charge := headgate.Charge{Limit: headgate.MustParse("fixed-window 1/1h"), Key: "alice"}
	for range 2 {
		fmt.Println(limiter.WaitAtMost(ctx, time.Second, charge))
	}
	// Output:
	// <nil>
	// the deadline comes before the start: limit fixed-window 1/1h refuses "alice": try again in 1h0m0s
}

func ExampleReservation_Cancel() {
	limiter, _ := newExampleLimiter()
	ctx := context.Background()
	limit := headgate.MustParse("token-bucket 1/s burst 5")
	charge := headgate.Charge{Limit: limit, Key: "mail", Cost: headgate.Units(3)}
	r, err := limiter.Reserve(ctx, 0, charge)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Decision.Remaining)
	returned, err := r.Cancel(ctx)
	fmt.Println(returned, err)
	// Output:
	// 2
	// [3] <nil>
}

// A store in memory keeps a bounded number of keys, and fails for more while each still counts.
func ExampleLimiter_KeyCounts() {
	ctx := context.Background()
	limiter := headgate.New(memory.New(&memory.Config{MaxKeys: 2}), nil)
	limit := headgate.MustParse("token-bucket 5/1m")
	for _, key := range []string{"alice", "bob", "carol"} {
		_, err := limiter.Allow(ctx, limit, key)
		fmt.Println(key, errors.Is(err, store.ErrFull))
	}
	counts, err := limiter.KeyCounts(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, count := range counts {
		if count.Limit == limit.Name() {
			fmt.Printf("%s: %d of %d keys\n", count.Limit, count.Keys, count.Max)
		}
	}
	// Output:
	// alice false
	// bob false
	// carol true
	// token-bucket 5/1m burst 5: 2 of 2 keys
}
