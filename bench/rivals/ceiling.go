package rivals

import (
	"context"
	"errors"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// gcra is the bare decision on one number, the theoretical arrival time.
type gcra struct {
	begin       time.Time
	each, burst int64 // nanoseconds
}

func newGCRA(q Quota) gcra {
	return gcra{time.Now(), int64(q.each()), int64(q.each()) * int64(q.Tokens)}
}

func (g *gcra) now() int64 { return int64(time.Since(g.begin)) }

func (g *gcra) allow(tat *atomic.Int64) bool {
	now := g.now()
	for {
		old := tat.Load()
		next := max(old, now) + g.each
		if next-now > g.burst {
			return false
		}
		if tat.CompareAndSwap(old, next) {
			return true
		}
	}
}

// flat is an open-addressed table of a fixed size, that trusts a 64-bit hash.
type flat struct {
	gcra
	seed  maphash.Seed
	slots []slot
}

type slot struct {
	hash atomic.Uint64 // 0: free
	tat  atomic.Int64
}

var errTableFull = errors.New("the table is full")

func flatTable(q Quota, keys int) (Limiter, func(), error) {
	size := 1 << bits.Len(uint(2*keys-1))
	return &flat{newGCRA(q), maphash.MakeSeed(), make([]slot, size)}, nothing, nil
}

// Allow implements Limiter.
func (f *flat) Allow(_ context.Context, key string) (bool, error) {
	hash := maphash.String(f.seed, key) | 1
	mask := len(f.slots) - 1
	for probe := range len(f.slots) {
		s := &f.slots[(int(hash>>1)+probe)&mask]
		if h := s.hash.Load(); h == hash || h == 0 && (s.hash.CompareAndSwap(0, hash) || s.hash.Load() == hash) {
			return f.allow(&s.tat), nil
		}
	}
	return false, errTableFull
}

// sharded is 256 maps, each with a lock.
type sharded struct {
	gcra
	seed   maphash.Seed
	shards [256]*keyed[*atomic.Int64]
}

func shardedMaps(q Quota, keys int) (Limiter, func(), error) {
	s := &sharded{gcra: newGCRA(q), seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i] = newKeyed(keys/len(s.shards), func() *atomic.Int64 { return new(atomic.Int64) })
	}
	return s, nothing, nil
}

// Allow implements Limiter.
func (s *sharded) Allow(_ context.Context, key string) (bool, error) {
	shard := s.shards[maphash.String(s.seed, key)%uint64(len(s.shards))]
	return s.allow(shard.get(key)), nil
}

func syncMap(q Quota, _ int) (Limiter, func(), error) {
	g, table := newGCRA(q), new(sync.Map)
	return Func(func(_ context.Context, key string) (bool, error) {
		tat, ok := table.Load(key)
		if !ok {
			tat, _ = table.LoadOrStore(key, new(atomic.Int64))
		}
		return g.allow(tat.(*atomic.Int64)), nil
	}), nothing, nil
}
