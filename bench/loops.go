package main

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/internal/load"
)

// callers measures a closed loop of callers, each question of which makes several decisions.
func callers(n, decisions int, ask load.Ask) func(context.Context, time.Duration) (sample, error) {
	return func(ctx context.Context, d time.Duration) (sample, error) {
		var all atomic.Int64
		r := load.Run(ctx, load.Config{Clients: n, Duration: d, Warmup: d / 5},
			func(ctx context.Context, client int, rng *rand.Rand) (bool, error) {
				all.Add(1)
				return ask(ctx, client, rng)
			})
		return sample{
			value: r.PerSecond() * float64(decisions), decisions: float64(all.Load() * int64(decisions)),
			p50: r.Quantile(0.5), p99: r.Quantile(0.99),
			asked: r.Allowed + r.Refused + r.Errors, failed: r.Errors, firstError: r.FirstError,
		}, ctx.Err()
	}
}

// inProcess measures calls that are shorter than a look at the clock: each caller looks once in 128, and no
// latency is known.
func inProcess(n int, ask load.Ask) func(context.Context, time.Duration) (sample, error) {
	return func(ctx context.Context, d time.Duration) (s sample, err error) {
		for _, d := range []time.Duration{d / 5, d} {
			begin := time.Now()
			if s.asked, err = crowd(ctx, n, d, ask); err != nil {
				return s, err
			}
			s.value = float64(s.asked) / time.Since(begin).Seconds()
		}
		return s, ctx.Err()
	}
}

// crowd asks until the time is over or something fails.
func crowd(ctx context.Context, n int, d time.Duration, ask load.Ask) (asked int64, err error) {
	const chunk = 128
	var all atomic.Int64
	group, going := errgroup.WithContext(ctx)
	begin := time.Now()
	for c := range n {
		group.Go(func() error {
			rng := rand.New(rand.NewPCG(rand.Uint64(), uint64(c)))
			for time.Since(begin) < d && going.Err() == nil {
				for range chunk {
					if _, err := ask(ctx, c, rng); err != nil {
						return err
					}
				}
				all.Add(chunk)
			}
			return nil
		})
	}
	err = group.Wait()
	return all.Load(), err
}
