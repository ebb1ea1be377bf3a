package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// generous admits all charges of a benchmark, stingy next to none.
var (
	generous = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: law.Max / 2, Step: 1, Drain: 1_000_000}
	stingy   = law.Params{Kind: law.Bucket, Unit: 3_600_000_000, Capacity: 3_600_000_000, Step: 1, Drain: 1}
)

func keys(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("client-%09d", i)
	}
	return list
}

// BenchmarkTakeOne charges one of several numbers of keys, from all processors at once.
func BenchmarkTakeOne(b *testing.B) {
	for _, n := range []int{1, 1000, 1_000_000} {
		list := keys(n)
		for _, tt := range []struct {
			name string
			p    law.Params
		}{{"allow", generous}, {"refuse", stingy}} {
			want := tt.name == "allow"
			b.Run(fmt.Sprintf("keys=%d/%s", n, tt.name), func(b *testing.B) {
				s := memory.New(&memory.Config{MaxKeys: 2 * n})
				for _, key := range list {
					take(b, s, key, &tt.p)
				}
				var who atomic.Uint64
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					ctx := context.Background()
					x := who.Add(1) * 0x9e3779b97f4a7c15
					for pb.Next() {
						x ^= x << 13
						x ^= x >> 7
						x ^= x << 17
						cell := law.Cell{Limit: "api", Key: list[x%uint64(n)]}
						if out, ok := s.TakeOne(ctx, cell, &tt.p, tt.p.Unit); !ok || out.Granted != want {
							b.Error(out, ok)
							return
						}
					}
				})
			})
		}
	}
}

func take(tb testing.TB, s *memory.Store, key string, p *law.Params) store.Brief {
	out, ok := s.TakeOne(context.Background(), law.Cell{Limit: "api", Key: key}, p, p.Unit)
	if !ok {
		tb.Fatal("not decided")
	}
	return out
}

// BenchmarkApply measures a batch of one op.
func BenchmarkApply(b *testing.B) {
	s := memory.New(nil)
	ops := []law.Op{{Verb: law.Take, Cell: law.Cell{Limit: "api", Key: "k"}, Params: generous, Cost: 1000, Count: 1}}
	outs := make([]law.Outcome, 1)
	b.ReportAllocs()
	for b.Loop() {
		if s.Apply(context.Background(), ops, outs); outs[0].Granted != 1 {
			b.Fatal(outs)
		}
	}
}

// BenchmarkMillionKeys puts a million keys that last for an hour into a store one by one, with
// their names. It reports the heap per key, the time of a full garbage collection, and the time
// of the slowest insertion.
func BenchmarkMillionKeys(b *testing.B) {
	const n = 1_000_000
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		s := memory.New(&memory.Config{Names: true})
		var longest time.Duration
		begin := time.Now()
		for i := range n {
			key := fmt.Sprintf("client-%09d", i)
			start := time.Now()
			take(b, s, key, &stingy)
			longest = max(longest, time.Since(start))
		}
		b.ReportMetric(float64(time.Since(begin).Nanoseconds())/n, "insert-ns/key")
		b.ReportMetric(float64(longest.Microseconds()), "longest-us")
		b.ReportMetric(float64(heap()-before)/n, "B/key")
		start := time.Now()
		runtime.GC()
		b.ReportMetric(float64(time.Since(start).Microseconds()), "gc-us")
		runtime.KeepAlive(s)
	}
}
