package main

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/internal/load"
)

// closedLoop returns a function that measures a closed loop of n callers, each of whose requests makes some decisions.
func closedLoop(n, decisions int, request load.Call) func(context.Context, time.Duration) (sample, error) {
	return func(ctx context.Context, d time.Duration) (sample, error) {
		var requests atomic.Int64
		r := load.Run(ctx, load.Config{Clients: n, Duration: d, Warmup: d / 5},
			func(ctx context.Context, client int, rng *rand.Rand) (bool, error) {
				requests.Add(1)
				return request(ctx, client, rng)
			})
		return sample{
			value: r.PerSecond() * float64(decisions), decisions: float64(requests.Load() * int64(decisions)),
			p50: r.Quantile(0.5), p99: r.Quantile(0.99),
			requests: r.Allowed + r.Refused + r.Errors, errors: r.Errors, firstError: r.FirstError,
		}, ctx.Err()
	}
}

// inProcessLoop returns a function that measures calls which are shorter than a reading of the clock: each of n callers
// reads it once in 128 calls, and latencies and CPU are not measured.
func inProcessLoop(n int, request load.Call) func(context.Context, time.Duration) (sample, error) {
	return func(ctx context.Context, d time.Duration) (s sample, err error) {
		for _, d := range []time.Duration{d / 5, d} {
			begin := time.Now()
			if s.requests, err = runCallers(ctx, n, d, request); err != nil {
				return s, err
			}
			s.value = float64(s.requests) / time.Since(begin).Seconds()
		}
		return s, ctx.Err()
	}
}

// runCallers runs n callers for a time, or until a request fails.
func runCallers(ctx context.Context, n int, d time.Duration, request load.Call) (requests int64, err error) {
	const chunk = 128
	var total atomic.Int64
	group, groupCtx := errgroup.WithContext(ctx)
	begin := time.Now()
	for c := range n {
		group.Go(func() error {
			rng := rand.New(rand.NewPCG(rand.Uint64(), uint64(c)))
			for time.Since(begin) < d && groupCtx.Err() == nil {
				for range chunk {
					if _, err := request(ctx, c, rng); err != nil {
						return err
					}
				}
				total.Add(chunk)
			}
			return nil
		})
	}
	err = group.Wait()
	return total.Load(), err
}
