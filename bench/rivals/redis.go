package rivals

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	redisrate "github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
)

// Redis returns a client for the redis:// URL of a server.
func Redis(url string) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(o), nil
}

// RedisRate returns redis_rate on a server.
func RedisRate(client *redis.Client, q Quota) Limiter {
	l := redisrate.NewLimiter(client)
	limit := redisrate.Limit{Rate: q.Tokens, Burst: q.Tokens, Period: q.Period}
	return Func(func(ctx context.Context, key string) (bool, error) {
		r, err := l.Allow(ctx, key, limit)
		return err == nil && r.Allowed > 0, err
	})
}

// ThrottledRedis returns throttled on a server, its keys with a prefix.
func ThrottledRedis(client *redis.Client, prefix string, q Quota) (Limiter, error) {
	s, err := throttledredis.NewCtx(client, prefix)
	if err != nil {
		return nil, fmt.Errorf("throttled: %w", err)
	}
	return newThrottled(s, q)
}

// RedisScripts returns how many scripts and functions clients have called at a server.
func RedisScripts(ctx context.Context, client *redis.Client) (calls int64, err error) {
	info, err := client.Info(ctx, "commandstats").Result()
	for l := range strings.Lines(info) {
		name, rest, _ := strings.Cut(strings.TrimSpace(l), ":calls=")
		switch name {
		case "cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall":
			number, _, _ := strings.Cut(rest, ",")
			n, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				return 0, err
			}
			calls += n
		}
	}
	return calls, err
}
