package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	redisrate "github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
)

// redisBench compares Headgate with redis_rate and a bare script on Redis.
func (b *bench) redisBench() *storeBench {
	databases := 0
	return &storeBench{
		name: "redis", title: "Redis", workloads: workloads, processes: true, connectOpponents: connectRedisOpponents,
		url: func(ctx context.Context) (string, func(), error) {
			client, err := b.redis(ctx)
			if err != nil {
				return "", nil, err
			}
			databases++
			url := fmt.Sprintf("%s/%d", strings.TrimSuffix(b.redisServer.DSN, "/0"), databases)
			return url, func() { client.FlushAll(context.WithoutCancel(ctx)) }, nil
		},
		clients: []int{32, 128}, // a few connections serve many clients
	}
}

// bareScript is GCRA over its keys, all or none, in microseconds of the server's clock. It is none of Headgate's.
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

func connectRedisOpponents(_ context.Context, url string) (opponents []opponent, stop func(), err error) {
	clientOptions, err := goredis.ParseURL(url)
	if err != nil {
		return nil, nil, err
	}
	client := goredis.NewClient(clientOptions)
	closeClient := func() { _ = client.Close() }
	options, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, closeClient, err
	}
	options.DisableRetry, options.DisableCache = true, true
	rueidisClient, err := rueidis.NewClient(options)
	if err != nil {
		return nil, closeClient, err
	}
	script := rueidis.NewLuaScript(bareScript)
	runScript := func(ctx context.Context, keys []string) (bool, error) {
		bareKeys := make([]string, len(keys))
		for i, key := range keys {
			bareKeys[i] = "bare:" + key
		}
		ctx, cancel := context.WithTimeout(ctx, headgate.DefaultTimeout)
		defer cancel()
		usPerToken, burstUs := "3.6", "3600000000" // as hourTokens
		n, err := script.Exec(ctx, rueidisClient, bareKeys, []string{usPerToken, burstUs}).AsInt64()
		return n == 1, err
	}
	limiter := redisrate.NewLimiter(client)
	limit := redisrate.Limit{Rate: hourTokens, Burst: hourTokens, Period: time.Hour}
	allow := func(ctx context.Context, key string) (bool, error) {
		r, err := limiter.Allow(ctx, key, limit)
		return err == nil && r.Allowed > 0, err
	}
	return []opponent{
		{
			side: rivalSide, name: versionedName("github.com/go-redis/redis_rate/v10", "redis_rate"),
			calls: singleKeyCalls(allow),
		},
		bareOpponent("a bare EVALSHA", runScript, runScript, runScript),
	}, func() { rueidisClient.Close(); closeClient() }, nil
}
