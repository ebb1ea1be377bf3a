package main

import (
	"context"
	"errors"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"
)

// What the others enforce where Headgate has the limit always: tokens an hour, each of this many nanoseconds.
const (
	tokens = 1_000_000_000
	each   = int64(time.Hour) / tokens
	burst  = each * tokens
)

// memoryField is memory, as headgate serve opens it but for room for new keys, beside limiters of this kind and bare
// arithmetic. All tables are in memory at once.
func (b *bench) memoryField() *field {
	return &field{
		name: "memory", title: "In memory", limit: always, inProcess: true,
		url:     func(context.Context) (string, func(), error) { return "memory:?max_keys=30000000", func() {}, nil },
		clients: func(callers int) []int { return []int{callers} },
		beside: func(ctx context.Context, keys []string) (others []other, stop func(), err error) {
			s, err := memorystore.New(&memorystore.Config{Tokens: tokens, Interval: time.Hour, InitialAlloc: len(keys)})
			if err != nil {
				return nil, nil, err
			}
			takes := func(ctx context.Context, key string) (bool, error) {
				_, _, _, ok, err := s.Take(ctx, key)
				return ok, err
			}
			table := keyed{of: make(map[string]*rate.Limiter, len(keys))}
			allows := func(_ context.Context, key string) (bool, error) { return table.get(key).Allow(), nil }
			size := 1 << bits.Len(uint(2*len(keys)-1))
			slots := flat{begin: time.Now(), seed: maphash.MakeSeed(), slots: make([]slot, size)}
			others = []other{
				{side: rival, name: named("golang.org/x/time", "x/time/rate + map"), allow: allows, new: allows},
				{side: rival, name: named("github.com/sethvargo/go-limiter", "go-limiter"), allow: takes, new: takes},
				{side: ceiling, name: "bare GCRA, flat table", allow: slots.allow}, // it does not grow
			}
			for _, key := range keys {
				for i := range others {
					_, errKey := others[i].allow(ctx, key)
					err = errors.Join(err, errKey)
				}
			}
			return others, func() { _ = s.Close(context.WithoutCancel(ctx)) }, err
		},
	}
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
