package main

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate"
)

// The limit of the other limiters, the same as Headgate's plainLimit: as many tokens in an hour, and as large a burst.
const (
	hourTokens = 1_000_000_000
	tokenNanos = int64(time.Hour) / hourTokens // nanoseconds until a token comes
	burstNanos = tokenNanos * hourTokens       // the whole burst
)

// memoryGroup compares Headgate's store in memory, as headgate serve opens it, with other limiters in memory and with
// bare arithmetic. All tables are in memory at once. Of the new keys, Headgate keeps a million, as long as it can drop
// keys that refuse nothing; the others grow.
func memoryGroup(ctx context.Context) *group {
	g := &group{}
	var m *memoryLimiters
	g.open = sync.OnceValue(func() (err error) {
		if m, err = newMemoryLimiters(ctx); err == nil {
			g.closers = append(g.closers, func() { m.close(); m = nil })
		}
		return err
	})
	for _, pick := range []struct {
		name, title string
		draw        func(rng *rand.Rand) string
	}{
		{"hot", "one key", func(*rand.Rand) string { return m.keys[0] }},
		{"plain", "100,000 keys", func(rng *rand.Rand) string { return m.keys[rng.IntN(len(m.keys))] }},
		{"zipf", "100,000 keys by Zipf(1.0)", func(rng *rand.Rand) string {
			return m.keys[m.zipfDraws[rng.IntN(len(m.zipfDraws))]]
		}},
		{"new", "new keys", nil},
	} {
		for _, n := range []int{1, 8, 32, 512} {
			g.rows = append(g.rows, comparison{
				name:  fmt.Sprintf("memory-%s-%d", pick.name, n),
				title: fmt.Sprintf("In memory, %s, %s", pick.title, count(n, "caller")),
				cells: func(context.Context) (list []cell, err error) {
					for i, l := range m.limiters {
						if pick.draw == nil && l.fixedSize {
							continue
						}
						at := map[bool]string{true: "caller", false: "client"}[i == 0]
						list = append(list, cell{
							side: l.side, name: l.name, setting: count(n, at),
							measure: inProcessLoop(n, func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
								if pick.draw == nil {
									return l.allow(ctx, freshKey())
								}
								return l.allow(ctx, pick.draw(rng))
							}),
						})
					}
					list[0].audit = func(ctx context.Context, d time.Duration) (exactness, error) {
						c := cell{side: headgateSide}.startWorkers(ctx, 1, task{
							URL: "memory:", Name: pick.name, Limits: []string{plainLimit}, Keys: 1, Callers: n,
						})
						if c.err != nil {
							return exactness{}, c.err
						}
						defer c.close()
						return c.audit(ctx, d)
					}
					return list, nil
				},
			})
		}
	}
	return g
}

// memoryLimiters is all limiters in memory, with the same keys.
type memoryLimiters struct {
	keys      []string
	zipfDraws []int32         // indexes of keys, drawn by Zipf's law
	limiters  []memoryLimiter // Headgate is the first
	close     func()
}

type memoryLimiter struct {
	side      side
	name      string
	allow     allowFunc[string]
	fixedSize bool // the table does not grow
}

// newMemoryLimiters makes the limiters, and charges each key once.
func newMemoryLimiters(ctx context.Context) (*memoryLimiters, error) {
	m := &memoryLimiters{keys: userKeys(100_000)}
	// Key i, from 1 on, is drawn 1/i times as often as the first. Keys are drawn in advance, not during measurements.
	sums, sum := make([]float64, len(m.keys)), 0.0
	for i := range sums {
		sum += 1 / float64(i+1)
		sums[i] = sum
	}
	m.zipfDraws = make([]int32, 1<<20)
	for i := range m.zipfDraws {
		m.zipfDraws[i] = int32(min(sort.SearchFloat64s(sums, rand.Float64()*sum), len(sums)-1))
	}
	memoryStore, err := openStore(ctx, "memory:")
	if err != nil {
		return nil, err
	}
	goLimiter, err := memorystore.New(&memorystore.Config{
		Tokens: hourTokens, Interval: time.Hour, InitialAlloc: len(m.keys),
	})
	if err != nil {
		memoryStore.Close()
		return nil, err
	}
	m.close = func() { memoryStore.Close(); _ = goLimiter.Close(context.WithoutCancel(ctx)) }
	limiter := headgate.New(memoryStore, nil)
	limit := headgate.MustParse(plainLimit)
	table := limiterTable{limiters: make(map[string]*rate.Limiter, len(m.keys))}
	slots := make([]slot, 1<<bits.Len(uint(2*len(m.keys)-1)))
	gcra := flatTable{begin: time.Now(), seed: maphash.MakeSeed(), slots: slots}
	goLimiterAllow := func(ctx context.Context, key string) (bool, error) {
		_, _, _, ok, err := goLimiter.Take(ctx, key)
		return ok, err
	}
	m.limiters = []memoryLimiter{
		{headgateSide, "Headgate", func(ctx context.Context, key string) (bool, error) {
			d, err := limiter.Allow(ctx, limit, key)
			return d.Allowed, err
		}, false},
		{rivalSide, versionedName("golang.org/x/time", "x/time/rate + map"), func(_ context.Context, k string) (
			bool, error,
		) {
			return table.get(k).Allow(), nil
		}, false},
		{rivalSide, versionedName("github.com/sethvargo/go-limiter", "go-limiter"), goLimiterAllow, false},
		{ceilingSide, "bare GCRA, flat table", gcra.allow, true},
	}
	for _, key := range m.keys {
		for _, l := range m.limiters {
			if _, err := l.allow(ctx, key); err != nil {
				m.close()
				return nil, err
			}
		}
	}
	return m, nil
}

// limiterTable is the usual map of limiters, for a limiter that knows no keys.
type limiterTable struct {
	mu       sync.RWMutex
	limiters map[string]*rate.Limiter // guarded by mu
}

// get returns the limiter of a key, and makes it if there is none.
func (t *limiterTable) get(key string) *rate.Limiter {
	t.mu.RLock()
	l, ok := t.limiters[key]
	t.mu.RUnlock()
	if ok {
		return l
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok = t.limiters[key]; !ok {
		l = rate.NewLimiter(hourTokens/rate.Limit(time.Hour.Seconds()), hourTokens)
		t.limiters[key] = l
	}
	return l
}

// flatTable is a bare GCRA, one number a key, in an open-addressed table of fixed size that compares hashes only.
type flatTable struct {
	begin time.Time
	seed  maphash.Seed
	slots []slot
}

type slot struct {
	hash atomic.Uint64 // 0: free
	tat  atomic.Int64  // theoretical arrival time, in nanoseconds since begin
}

func (f *flatTable) allow(_ context.Context, key string) (bool, error) {
	hash := maphash.String(f.seed, key) | 1 // not 0
	mask := len(f.slots) - 1
	for probe := range len(f.slots) {
		s := &f.slots[(int(hash>>1)+probe)&mask]
		if h := s.hash.Load(); h != hash && (h != 0 || !s.hash.CompareAndSwap(0, hash) && s.hash.Load() != hash) {
			continue
		}
		for now := int64(time.Since(f.begin)); ; {
			old := s.tat.Load()
			next := max(old, now) + tokenNanos
			if next-now > burstNanos {
				return false, nil
			}
			if s.tat.CompareAndSwap(old, next) {
				return true, nil
			}
		}
	}
	return false, errors.New("the table is full")
}
