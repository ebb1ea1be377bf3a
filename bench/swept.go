package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// dying is a limit whose keys are dead a tenth of a second after they were asked about.
var dying = headgate.MustParse("token-bucket 10/s burst 1")

// swept returns the comparisons of stores in which new keys are made as fast as they take them, and die soon, beside
// the sweeper and without.
func (b *bench) swept() *group {
	g := &group{}
	for _, f := range []*field{b.postgresField(), b.mariadbField(), b.sqliteField(), b.memoryField()} {
		g.rows = append(g.rows, comparison{
			name: f.name + "-swept-512", title: f.title + ", new keys that die within 0.1 s, 512 callers", rounds: 1,
			cells: func(context.Context) ([]cell, error) {
				return []cell{
					{side: ours, name: "Headgate", at: "with the sweeper; p99 of other keys", measure: b.flood(f, nil)},
					{side: itself, name: "Headgate", at: "without", measure: b.flood(f, &front.Config{SweepEvery: -1})},
				}, nil
			},
		})
	}
	return g
}

// flood makes new keys for half a minute at least, so that several pauses of the sweeper are in it, beside 100,000 live
// ones of which some are asked about.
func (b *bench) flood(f *field, c *front.Config) measuring {
	return func(ctx context.Context, d time.Duration) (s sample, err error) {
		d = max(d, 30*time.Second)
		url, drop, err := f.url(ctx)
		if err != nil {
			return s, err
		}
		defer drop()
		driver, err := openDriver(ctx, url)
		if err != nil {
			return s, err
		}
		stack := front.New(driver, c)
		defer stack.Close()
		limiter := headgate.New(stack, nil)
		if err := fill(ctx, limiter, alive, b.many); err != nil {
			return s, err
		}
		ask := func(limit headgate.Limit, key func(rng *rand.Rand) string) load.Ask {
			return func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
				answer, err := limiter.Allow(ctx, limit, key(rng))
				return answer.Allowed, err
			}
		}
		old := ask(alive, func(rng *rand.Rand) string { return b.many[rng.IntN(len(b.many))] })
		var both sync.WaitGroup
		var others load.Result
		both.Go(func() { others = load.Run(ctx, load.Config{Clients: 8, Duration: d}, old) })
		r := load.Run(ctx, load.Config{Clients: 512, Duration: d},
			ask(dying, func(rng *rand.Rand) string { return fmt.Sprintf("%016x", rng.Uint64()) }))
		made := r.Allowed + r.Refused
		left, err := leftOf(ctx, stack, made, int64(len(b.many)))
		both.Wait()
		return sample{
			value: r.PerSecond(), p50: others.Quantile(0.5), p99: others.Quantile(0.99),
			asked: made + r.Errors, failed: r.Errors, firstError: r.FirstError,
			note: fmt.Sprintf("removed: %s/s, dead keys in the end: %s",
				amount(float64(made-left)/r.Elapsed.Seconds()), amount(float64(left))),
		}, errors.Join(err, ctx.Err())
	}
}

// leftOf returns how many of the keys that were made are there. A store in memory, which counts its keys, live ones
// too, also removes dead ones when it makes room for others; elsewhere a sweep does.
func leftOf(ctx context.Context, stack *front.Store, made, live int64) (int64, error) {
	if i, ok := store.As[store.Inspector](stack); ok {
		counts, err := i.KeyCounts(ctx)
		if err != nil {
			return 0, err
		}
		if len(counts) > 0 && counts[0].Limit == "" {
			return counts[0].Keys - live, nil
		}
	}
	return made - stack.Stats().Swept, nil
}
