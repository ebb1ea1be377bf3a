package main

import (
	"context"
	"math/rand/v2"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/rivals"
	"github.com/headgate/headgate/internal/load"
)

// redisField is Redis beside limiters that keep their state there, and a bare script.
func (b *bench) redisField() *field {
	return &field{
		name: "redis", title: "Redis", meter: b.meterRedis,
		url: func(ctx context.Context, _ int) (string, func(), error) {
			url, err := b.redis(ctx)
			return url, func() {}, err
		},
		beside: b.besideRedis,
		clients: func(callers int) []int {
			switch {
			case callers > 128:
				return []int{32, 128}
			case callers > 32:
				return []int{32, callers}
			}
			return []int{callers}
		},
		goals: map[string][]compare.Goal{
			"redis-hot-128":  {compare.Times(8)},
			"redis-100k-128": {compare.Times(2)},
			"redis-100k-1":   {compare.Within(1 / 0.85), compare.Times(1)},
		},
	}
}

// bareScript is GCRA over its keys, all or none, in microseconds of the server's clock. It uses
// no script of Headgate's.
const bareScript = `local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tats = {}
for i, key in ipairs(KEYS) do
  local tat = tonumber(redis.call('GET', key) or 0)
  if tat < now then tat = now end
  tat = tat + ARGV[1]
  if tat - now > tonumber(ARGV[2]) then return 0 end
  tats[i] = tat
end
for i, key in ipairs(KEYS) do
  redis.call('SET', key, string.format('%.0f', tats[i]), 'PX', 3600000)
end
return 1`

func (b *bench) besideRedis(ctx context.Context, keys []string) (others []other, stop func(), err error) {
	url, err := b.redis(ctx)
	if err != nil {
		return nil, nil, err
	}
	client, err := rivals.Redis(url)
	if err != nil {
		return nil, nil, err
	}
	stop = func() {
		client.FlushAll(context.WithoutCancel(ctx))
		_ = client.Close()
	}
	throttled, err := rivals.ThrottledRedis(client, "throttled:", rivals.Always)
	if err != nil {
		return nil, stop, err
	}
	throttledTight, err := rivals.ThrottledRedis(client, "throttled:", rivals.Tight)
	if err != nil {
		return nil, stop, err
	}
	options, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, stop, err
	}
	options.DisableRetry, options.DisableCache = true, true
	plain, err := rueidis.NewClient(options)
	if err != nil {
		return nil, stop, err
	}
	end := stop
	script := rueidis.NewLuaScript(bareScript)
	run := func(ctx context.Context, keys []string) (bool, error) {
		n, err := script.Exec(ctx, plain, keys, []string{"3.6", "3600000000"}).AsInt64()
		return n == 1, err
	}
	bare := rivals.Func(func(ctx context.Context, key string) (bool, error) {
		return run(ctx, []string{"bare:" + key})
	})
	rate := rivals.RedisRate(client, rivals.Always)
	return []other{
		{
			side: compare.Rival, name: rivals.Named("github.com/go-redis/redis_rate/v10", "redis_rate"), limiter: rate,
			fresh: rate, tight: rivals.RedisRate(client, rivals.Tight),
		},
		{
			side: compare.Rival, name: rivals.Named("github.com/throttled/throttled/v2", "throttled"),
			limiter: throttled, fresh: throttled, tight: throttledTight,
		},
		{
			side: compare.Ceiling, name: "a bare EVALSHA", limiter: bare, fresh: bare,
			many: func(keys [][]string, ids bool) load.Ask {
				if ids {
					return nil
				}
				return func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
					list := make([]string, len(keys))
					for i := range keys {
						list[i] = "bare:" + keys[i][rng.IntN(len(keys[i]))]
					}
					return run(ctx, list)
				}
			},
			batch: func(n int) load.Ask {
				return func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
					return run(ctx, several(keys, n, rng))
				}
			},
		},
	}, func() { plain.Close(); end() }, nil
}
