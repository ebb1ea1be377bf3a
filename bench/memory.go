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

// What the others enforce where Headgate has the limit always: tokens an hour, each of this many nanoseconds.
const (
	tokens = 1_000_000_000
	each   = int64(time.Hour) / tokens
	burst  = each * tokens
)

// memoryGroup compares memory, as headgate serve opens it, with limiters of this kind and bare arithmetic. All tables
// are in memory at once. Headgate keeps a million of the new keys, as long as the old ones could refuse nothing; the
// others grow.
func memoryGroup(ctx context.Context) *group {
	g := &group{}
	var m *inMemory
	g.open = sync.OnceValue(func() (err error) {
		if m, err = newInMemory(ctx); err == nil {
			g.ends = append(g.ends, func() { m.close(); m = nil })
		}
		return err
	})
	for _, pick := range []struct {
		name, title string
		draw        func(rng *rand.Rand) string
	}{
		{"hot", "one key", func(*rand.Rand) string { return m.names[0] }},
		{"plain", "100,000 keys", func(rng *rand.Rand) string { return m.names[rng.IntN(len(m.names))] }},
		{"zipf", "100,000 keys by Zipf(1.0)", func(rng *rand.Rand) string {
			return m.names[m.drawn[rng.IntN(len(m.drawn))]]
		}},
		{"new", "new keys", nil},
	} {
		for _, n := range []int{1, 8, 32, 512} {
			g.rows = append(g.rows, comparison{
				name:  fmt.Sprintf("memory-%s-%d", pick.name, n),
				title: fmt.Sprintf("In memory, %s, %s", pick.title, count(n, "caller")),
				cells: func(context.Context) (list []cell, err error) {
					for i, l := range m.limiters {
						if pick.draw == nil && l.fixed {
							continue
						}
						at := "client"
						if i == 0 {
							at = "caller"
						}
						list = append(list, cell{
							side: l.side, name: l.name, at: count(n, at),
							measure: inProcess(n, func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
								if pick.draw == nil {
									return l.allow(ctx, freshKey())
								}
								return l.allow(ctx, pick.draw(rng))
							}),
						})
					}
					list[0].audit = func(ctx context.Context, d time.Duration) (exactness, error) {
						c := cell{side: ours}.start(ctx, 1, task{
							URL: "memory:", Name: pick.name, Limits: []string{plain}, Keys: 1, Callers: n,
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

// inMemory is all limiters in memory, with the same keys.
type inMemory struct {
	names    []string
	drawn    []int32           // numbers of names, by Zipf's law
	limiters []limiterInMemory // Headgate is the first
	close    func()
}

type limiterInMemory struct {
	side  side
	name  string
	allow decide[string]
	fixed bool // it does not grow
}

func newInMemory(ctx context.Context) (*inMemory, error) {
	m := &inMemory{names: userKeys(100_000)}
	// Key i, from 1 on, is drawn 1/i times as often as the first. Drawing beforehand costs nothing to speak of later.
	sums, sum := make([]float64, len(m.names)), 0.0
	for i := range sums {
		sum += 1 / float64(i+1)
		sums[i] = sum
	}
	m.drawn = make([]int32, 1<<20)
	for i := range m.drawn {
		m.drawn[i] = int32(min(sort.SearchFloat64s(sums, rand.Float64()*sum), len(sums)-1))
	}
	own, err := openStore(ctx, "memory:")
	if err != nil {
		return nil, err
	}
	theirs, err := memorystore.New(&memorystore.Config{Tokens: tokens, Interval: time.Hour, InitialAlloc: len(m.names)})
	if err != nil {
		own.Close()
		return nil, err
	}
	m.close = func() { own.Close(); _ = theirs.Close(context.WithoutCancel(ctx)) }
	limiter := headgate.New(own, nil)
	limit := headgate.MustParse(plain)
	table := keyed{of: make(map[string]*rate.Limiter, len(m.names))}
	slots := flat{begin: time.Now(), seed: maphash.MakeSeed(), slots: make([]slot, 1<<bits.Len(uint(2*len(m.names)-1)))}
	takes := func(ctx context.Context, key string) (bool, error) {
		_, _, _, ok, err := theirs.Take(ctx, key)
		return ok, err
	}
	m.limiters = []limiterInMemory{
		{ours, "Headgate", func(ctx context.Context, key string) (bool, error) {
			d, err := limiter.Allow(ctx, limit, key)
			return d.Allowed, err
		}, false},
		{rival, named("golang.org/x/time", "x/time/rate + map"), func(_ context.Context, key string) (bool, error) {
			return table.get(key).Allow(), nil
		}, false},
		{rival, named("github.com/sethvargo/go-limiter", "go-limiter"), takes, false},
		{ceiling, "bare GCRA, flat table", slots.allow, true},
	}
	for _, key := range m.names {
		for _, l := range m.limiters {
			if _, err := l.allow(ctx, key); err != nil {
				m.close()
				return nil, err
			}
		}
	}
	return m, nil
}

// keyed is the usual table around a limiter that knows no keys.
type keyed struct {
	mu sync.RWMutex
	of map[string]*rate.Limiter // guarded by mu
}

func (k *keyed) get(key string) *rate.Limiter {
	k.mu.RLock()
	l, ok := k.of[key]
	k.mu.RUnlock()
	if ok {
		return l
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if l, ok = k.of[key]; !ok {
		l = rate.NewLimiter(tokens/rate.Limit(time.Hour.Seconds()), tokens)
		k.of[key] = l
	}
	return l
}

// flat is an open-addressed table of a fixed size, that trusts a 64-bit hash: a bare GCRA on one number for each key.
type flat struct {
	begin time.Time
	seed  maphash.Seed
	slots []slot
}

type slot struct {
	hash atomic.Uint64 // 0: free
	tat  atomic.Int64  // nanoseconds
}

func (f *flat) allow(_ context.Context, key string) (bool, error) {
	hash := maphash.String(f.seed, key) | 1
	mask := len(f.slots) - 1
	for probe := range len(f.slots) {
		s := &f.slots[(int(hash>>1)+probe)&mask]
		if h := s.hash.Load(); h != hash && (h != 0 || !s.hash.CompareAndSwap(0, hash) && s.hash.Load() != hash) {
			continue
		}
		for now := int64(time.Since(f.begin)); ; {
			old := s.tat.Load()
			next := max(old, now) + each
			if next-now > burst {
				return false, nil
			}
			if s.tat.CompareAndSwap(old, next) {
				return true, nil
			}
		}
	}
	return false, errors.New("the table is full")
}
