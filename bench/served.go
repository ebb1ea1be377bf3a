package main

import (
	"context"
	"math/rand/v2"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/rivals"
	"github.com/headgate/headgate/client"
)

// serverGroup compares servers: Headgate by its Go client over HTTP with others, and by Envoy's rate limit service. All
// servers but envoyproxy/ratelimit have their state in memory.
func (b *bench) serverGroup() *group {
	return &group{rows: []comparison{
		{"server-hot-512", "Server, one key, 512 callers", func(ctx context.Context) ([]cell, error) {
			return b.serverCells(ctx, userKeys(1))
		}},
		{"server-100k-512", "Server, 100,000 keys, 512 callers", func(ctx context.Context) ([]cell, error) {
			return b.serverCells(ctx, userKeys(100_000))
		}},
		{"envoy-512", "Server, Envoy's rate limit service, 100,000 keys, 512 callers", b.envoyCells},
	}}
}

// envoyCells returns the cells of a comparison by Envoy's rate limit protocol.
func (b *bench) envoyCells(ctx context.Context) ([]cell, error) {
	server, err := rivals.StartHeadgateForEnvoy(ctx)
	if err != nil {
		return nil, err
	}
	keys := userKeys(100_000)
	own := serverCell(headgateSide, "Headgate", server.Allow, keys, server.Close)
	return []cell{own, b.ratelimitCell(ctx, keys)}, nil
}

// serverCell returns a cell of 512 callers of a server, with random keys.
func serverCell(side side, name string, allow func(context.Context, ...string) (bool, error), keys []string,
	stop func(),
) cell {
	return cell{
		side: side, name: name, setting: "512 callers", close: stop,
		measure: closedLoop(512, 1, func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
			return allow(ctx, keys[rng.IntN(len(keys))])
		}),
	}
}

// serverCells returns the cells of a comparison of servers, each by its own protocol.
func (b *bench) serverCells(ctx context.Context, keys []string) ([]cell, error) {
	addr, stop, err := rivals.StartHeadgate(ctx, "--http")
	if err != nil {
		return nil, err
	}
	c, err := client.New("http://"+addr, nil)
	if err != nil {
		stop()
		return nil, err
	}
	limit := headgate.MustParse(plainLimit)
	cells := []cell{serverCell(headgateSide, "Headgate", func(ctx context.Context, keys ...string) (bool, error) {
		d, err := c.Allow(ctx, limit, keys[0])
		return d.Allowed, err
	}, keys, func() { c.Close(); stop() })}
	return append(append(cells, gubernatorCells(ctx, keys)...), b.ratelimitCell(ctx, keys)), nil
}

// gubernatorCells returns two cells: one request in a call by as many callers as Headgate has, and a hundred requests
// in a call by fewer callers.
func gubernatorCells(ctx context.Context, keys []string) []cell {
	g, err := rivals.StartGubernator(ctx)
	if err != nil {
		return []cell{{side: rivalSide, name: rivals.GubernatorName, err: err}}
	}
	return []cell{
		serverCell(rivalSide, rivals.GubernatorName+" one a call", g.Allow, keys, g.Close),
		{
			side: rivalSide, name: rivals.GubernatorName + " hundred a call", setting: "64 callers",
			measure: closedLoop(64, 100, func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
				list := make([]string, 100)
				for i := range list {
					list[i] = keys[rng.IntN(len(keys))]
				}
				return g.Allow(ctx, list...)
			}),
		},
	}
}

// ratelimitCell returns a cell of envoyproxy/ratelimit.
func (b *bench) ratelimitCell(ctx context.Context, keys []string) cell {
	name := rivals.EnvoyName + ", on Redis"
	redis, err := b.redis(ctx)
	if err != nil {
		return cell{side: rivalSide, name: name, err: err}
	}
	e, err := rivals.StartEnvoy(ctx, redis.Options().Addr)
	if err != nil {
		return cell{side: rivalSide, name: name, err: err}
	}
	return serverCell(rivalSide, name, e.Allow, keys, e.Close)
}
