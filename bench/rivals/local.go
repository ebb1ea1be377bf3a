package rivals

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/mennanov/limiters"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ululelimiter "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

func xTime(q Quota, keys int) (Limiter, func(), error) {
	limit := rate.Limit(float64(q.Tokens) / q.Period.Seconds())
	table := newKeyed(keys, func() *rate.Limiter { return rate.NewLimiter(limit, q.Tokens) })
	return Func(func(_ context.Context, key string) (bool, error) {
		return table.get(key).Allow(), nil
	}), nothing, nil
}

func goLimiter(q Quota, keys int) (Limiter, func(), error) {
	s, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.Tokens), Interval: q.Period, InitialAlloc: keys})
	if err != nil {
		return nil, nil, err
	}
	stop := func() { _ = s.Close(context.Background()) }
	return Func(func(ctx context.Context, key string) (bool, error) {
		_, _, _, ok, err := s.Take(ctx, key)
		return ok, err
	}), stop, nil
}

func ulule(q Quota, _ int) (Limiter, func(), error) {
	l := ululelimiter.New(ululememory.NewStore(), ululelimiter.Rate{Period: q.Period, Limit: int64(q.Tokens)})
	return Func(func(ctx context.Context, key string) (bool, error) {
		c, err := l.Get(ctx, key)
		return !c.Reached, err
	}), nothing, nil
}

func throttledLRU(q Quota, keys int) (Limiter, func(), error) {
	return throttledIn(q, 2*max(keys, 1000))
}
func throttledMap(q Quota, _ int) (Limiter, func(), error) { return throttledIn(q, 0) }

func throttledIn(q Quota, keys int) (Limiter, func(), error) {
	s, err := memstore.NewCtx(keys)
	if err != nil {
		return nil, nil, err
	}
	l, err := newThrottled(s, q)
	return l, nothing, err
}

func newThrottled(s throttled.GCRAStoreCtx, q Quota) (Limiter, error) {
	l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(q.Tokens, q.Period),
		MaxBurst: q.Tokens - 1,
	})
	if err != nil {
		return nil, err
	}
	return Func(func(ctx context.Context, key string) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return !limited && err == nil, err
	}), nil
}

// mennanov keeps its buckets in its own registry, without a lock between
// processes.
func mennanov(q Quota, _ int) (Limiter, func(), error) {
	registry, clock, logger := limiters.NewRegistry(), limiters.NewSystemClock(), quiet{}
	bucket := func() any {
		return limiters.NewTokenBucket(int64(q.Tokens), q.each(), limiters.NewLockNoop(),
			limiters.NewTokenBucketInMemory(), clock, logger)
	}
	return Func(func(ctx context.Context, key string) (bool, error) {
		b := registry.GetOrCreate(key, bucket, time.Hour, clock.Now()).(*limiters.TokenBucket)
		_, err := b.Limit(ctx)
		if errors.Is(err, limiters.ErrLimitExhausted) {
			return false, nil
		}
		return err == nil, err
	}), nothing, nil
}

type quiet struct{}

func (quiet) Log(...any) {}

func failsafe(q Quota, keys int) (Limiter, func(), error) {
	if q.Tokens > math.MaxInt32 {
		return nil, nil, errors.New("too many tokens")
	}
	table := newKeyed(keys, func() ratelimiter.RateLimiter[any] {
		return ratelimiter.NewBursty[any](uint(q.Tokens),
			q.Period)
	})
	return Func(func(_ context.Context, key string) (bool, error) {
		return table.get(key).TryAcquirePermit(), nil
	}), nothing, nil
}
