package main

import (
	"context"

	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/gate"
	"github.com/headgate/headgate/bench/rivals"
)

// onRedis compares with limiters that keep their state in Redis.
func (b *bench) onRedis() []compare.Comparison {
	return []compare.Comparison{
		{
			Name: "redis-hot-128", Title: "Redis, one hot key, 128 callers",
			Goals: []compare.Goal{compare.Times(8)}, Cells: b.onOneRedis(b.one, true),
		},
		{
			Name: "redis-100k-128", Title: "Redis, 100,000 keys, 128 callers",
			Goals: []compare.Goal{compare.Times(2)}, Cells: b.onOneRedis(b.many, false),
		},
	}
}

func (b *bench) onOneRedis(keys []string, exact bool) func(context.Context) ([]compare.Cell, error) {
	const callers = 128
	return func(ctx context.Context) ([]compare.Cell, error) {
		url, err := b.redis(ctx)
		if err != nil {
			return nil, err
		}
		client, err := rivals.Redis(url)
		if err != nil {
			return nil, err
		}
		flush := func() {
			client.FlushAll(context.WithoutCancel(ctx))
			_ = client.Close()
		}
		cells := []compare.Cell{ours{
			url: url, wrap: []gate.Wrap{gate.Front},
			limit: always, keys: keys, callers: callers, exact: exact, close: flush,
		}.cell(ctx)}
		add := func(name string, make func(rivals.Quota) (rivals.Limiter, error)) {
			l, err := make(rivals.Always)
			t, err2 := make(rivals.Tight)
			if err != nil || err2 != nil {
				cells = append(cells, failed(compare.Rival, name, err))
				return
			}
			c := rival(name, callers, l, keys)
			if exact {
				c = counted(c, callers, t)
			}
			cells = append(cells, c)
		}
		add(rivals.Named("github.com/go-redis/redis_rate/v10", "redis_rate"),
			func(q rivals.Quota) (rivals.Limiter, error) {
				return rivals.RedisRate(client, q), nil
			})
		add(rivals.Named("github.com/throttled/throttled/v2", "throttled"),
			func(q rivals.Quota) (rivals.Limiter, error) {
				return rivals.ThrottledRedis(client, "throttled:", q)
			})
		return cells, nil
	}
}
