package main

import (
	"context"
	"math/rand/v2"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/rivals"
	"github.com/headgate/headgate/client"
)

// served compares servers, each with its state in memory but for envoyproxy/ratelimit: the Go client over HTTP, and
// Envoy's rate limit service, by 512 callers.
func (b *bench) served() *group {
	return &group{rows: []comparison{
		{"server-hot-512", "Server, one key, 512 callers", func(ctx context.Context) ([]cell, error) {
			return b.serving(ctx, userKeys(1))
		}},
		{"server-100k-512", "Server, 100,000 keys, 512 callers", func(ctx context.Context) ([]cell, error) {
			return b.serving(ctx, userKeys(100_000))
		}},
		{"envoy-512", "Server, Envoy's rate limit service, 100,000 keys, 512 callers", b.servingEnvoy},
	}}
}

func (b *bench) servingEnvoy(ctx context.Context) ([]cell, error) {
	mine, err := rivals.StartHeadgateForEnvoy(ctx)
	if err != nil {
		return nil, err
	}
	keys := userKeys(100_000)
	return []cell{serving(ours, "Headgate", mine.Allow, keys, mine.Close), b.envoy(ctx, keys)}, nil
}

// serving returns a cell of a server, with random keys.
func serving(side side, name string, allow func(context.Context, ...string) (bool, error), keys []string,
	stop func(),
) cell {
	return cell{
		side: side, name: name, at: "512 callers", close: stop,
		measure: callers(512, 1, func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
			return allow(ctx, keys[rng.IntN(len(keys))])
		}),
	}
}

func (b *bench) serving(ctx context.Context, keys []string) ([]cell, error) {
	addr, stop, err := rivals.StartHeadgate(ctx, "--http")
	if err != nil {
		return nil, err
	}
	c, err := client.New("http://"+addr, nil)
	if err != nil {
		stop()
		return nil, err
	}
	limit := headgate.MustParse(plain)
	cells := []cell{serving(ours, "Headgate", func(ctx context.Context, keys ...string) (bool, error) {
		d, err := c.Allow(ctx, limit, keys[0])
		return d.Allowed, err
	}, keys, func() { c.Close(); stop() })}
	return append(append(cells, gubernator(ctx, keys)...), b.envoy(ctx, keys)), nil
}

// gubernator sends one request in a call by as many callers as Headgate has, and a hundred by fewer.
func gubernator(ctx context.Context, keys []string) []cell {
	g, err := rivals.StartGubernator(ctx)
	if err != nil {
		return []cell{{side: rival, name: rivals.GubernatorName, err: err}}
	}
	return []cell{
		serving(rival, rivals.GubernatorName+" one a call", g.Allow, keys, g.Close),
		{
			side: rival, name: rivals.GubernatorName + " hundred a call", at: "64 callers",
			measure: callers(64, 100, func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
				list := make([]string, 100)
				for i := range list {
					list[i] = keys[rng.IntN(len(keys))]
				}
				return g.Allow(ctx, list...)
			}),
		},
	}
}

// envoy measures envoyproxy/ratelimit.
func (b *bench) envoy(ctx context.Context, keys []string) cell {
	name := rivals.EnvoyName + ", on Redis"
	redis, err := b.redis(ctx)
	if err != nil {
		return cell{side: rival, name: name, err: err}
	}
	e, err := rivals.StartEnvoy(ctx, redis.Options().Addr)
	if err != nil {
		return cell{side: rival, name: name, err: err}
	}
	return serving(rival, name, e.Allow, keys, e.Close)
}
