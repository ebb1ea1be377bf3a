package main

import (
	"context"
	"math/rand/v2"
	"strings"

	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/rivals"
)

// served compares servers, each with its state in memory but for envoy's.
func (b *bench) served() []compare.Comparison {
	// PLACE: Headgate's cell, through the Go client over a server on the memory
	// store, with 512 callers: put it first in servers, and empty Open.
	const open = "the Go client is not written yet"
	goals := []compare.Goal{compare.TimesOf(rivals.GubernatorName+" one a call", 10), compare.TimesOf(rivals.GubernatorName+" hundred a call", 2)}
	return []compare.Comparison{
		{Name: "server-hot-512", Title: "Server, one hot key, 512 callers", Open: open, Goals: goals, Cells: b.serving(b.one)},
		{Name: "server-100k-512", Title: "Server, 100,000 keys, 512 callers", Open: open, Goals: goals, Cells: b.serving(b.many)},
	}
}

func (b *bench) serving(keys []string) func(context.Context) ([]compare.Cell, error) {
	return func(ctx context.Context) (cells []compare.Cell, _ error) {
		const callers, hundred = 512, 100
		if g, err := rivals.StartGubernator(ctx); err != nil {
			cells = append(cells, failed(compare.Rival, rivals.GubernatorName, err))
		} else {
			one := rival(rivals.GubernatorName+" one a call", callers, g.Limiter(rivals.Always), keys)
			one.Close = g.Close
			if len(keys) == 1 {
				one = counted(one, callers, g.Limiter(rivals.Tight))
			}
			many := rival(rivals.GubernatorName+" hundred a call", callers/8, nil, keys)
			many.Measure = compare.Weighted(callers/8, hundred, func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
				list := make([]string, hundred)
				for i := range list {
					list[i] = keys[rng.IntN(len(keys))]
				}
				return g.Many(ctx, rivals.Always, list)
			})
			cells = append(cells, one, many)
		}
		url, err := b.redis(ctx)
		if err == nil {
			var e *rivals.Envoy
			if e, err = rivals.StartEnvoy(ctx, strings.TrimSuffix(url, "/0")); err == nil {
				c := rival(rivals.EnvoyName+", on Redis", callers, e.Limiter(), keys)
				c.Close = e.Close
				return append(cells, c), nil
			}
		}
		return append(cells, failed(compare.Rival, rivals.EnvoyName, err)), nil
	}
}
