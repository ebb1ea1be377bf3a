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

// fastLimit admits all charges of a benchmark, slowLimit only the first of each key.
var (
	fastLimit = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: law.Max / 2, Step: 1, Drain: 1_000_000}
	slowLimit = law.Params{Kind: law.Bucket, Unit: 3_600_000_000, Capacity: 3_600_000_000, Step: 1, Drain: 1}
)

func makeKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("client-%09d", i)
	}
	return keys
}

// BenchmarkTakeOne charges random keys, out of 1 to 1,000,000, on all processors.
func BenchmarkTakeOne(b *testing.B) {
	for _, n := range []int{1, 1000, 1_000_000} {
		keys := makeKeys(n)
		for _, tt := range []struct {
			name string
			p    law.Params
		}{{"allow", fastLimit}, {"refuse", slowLimit}} {
			want := tt.name == "allow"
			b.Run(fmt.Sprintf("keys=%d/%s", n, tt.name), func(b *testing.B) {
				s := memory.New(&memory.Config{MaxKeys: 2 * n})
				for _, key := range keys {
					take(b, s, key, &tt.p)
				}
				var goroutines atomic.Uint64
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					ctx := context.Background()
					x := goroutines.Add(1) * 0x9e3779b97f4a7c15 // the state of a xorshift generator
					for pb.Next() {
						x ^= x << 13
						x ^= x >> 7
						x ^= x << 17
						cell := law.Cell{Limit: "api", Key: keys[x%uint64(n)]}
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

// take charges a unit by TakeOne.
func take(tb testing.TB, s *memory.Store, key string, p *law.Params) store.Brief {
	out, ok := s.TakeOne(context.Background(), law.Cell{Limit: "api", Key: key}, p, p.Unit)
	if !ok {
		tb.Fatal("TakeOne has not decided")
	}
	return out
}

// BenchmarkApply measures a batch of one op.
func BenchmarkApply(b *testing.B) {
	s := memory.New(nil)
	ops := []law.Op{{Verb: law.Take, Cell: law.Cell{Limit: "api", Key: "k"}, Params: fastLimit, Cost: 1000, Count: 1}}
	outs := make([]law.Outcome, 1)
	b.ReportAllocs()
	for b.Loop() {
		if s.Apply(context.Background(), ops, outs); outs[0].Granted != 1 {
			b.Fatal(outs)
		}
	}
}

// BenchmarkMillionKeys puts a million keys that last for an hour into a store one by one, with their names. It reports
// the heap per key, the time of a full garbage collection, and the mean and the longest time of an insertion.
func BenchmarkMillionKeys(b *testing.B) {
	const n = 1_000_000
	heapBytes := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := heapBytes()
		s := memory.New(&memory.Config{Names: true})
		var slowest time.Duration
		begin := time.Now()
		for i := range n {
			key := fmt.Sprintf("client-%09d", i)
			start := time.Now()
			take(b, s, key, &slowLimit)
			slowest = max(slowest, time.Since(start))
		}
		b.ReportMetric(float64(time.Since(begin).Nanoseconds())/n, "insert-ns/key")
		b.ReportMetric(float64(slowest.Microseconds()), "longest-us")
		b.ReportMetric(float64(heapBytes()-before)/n, "B/key")
		start := time.Now()
		runtime.GC()
		b.ReportMetric(float64(time.Since(start).Microseconds()), "gc-us")
		runtime.KeepAlive(s)
	}
}
