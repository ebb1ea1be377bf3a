package envoy_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/postgres"
)

// BenchmarkShouldRateLimit sends requests with one descriptor over gRPC, for 10,000 keys that are never refused.
func BenchmarkShouldRateLimit(b *testing.B) {
	stores := map[string]func(b *testing.B) store.Store{
		"memory": func(*testing.B) store.Store { return memory.New(nil) },
		"postgres": func(b *testing.B) store.Store {
			s, err := postgres.Open(context.Background(), dbtest.Postgres(b), nil)
			if err == nil {
				_, err = s.Migrate(context.Background())
			}
			if err != nil {
				b.Fatal(err)
			}
			return front.New(s, nil)
		},
	}
	for _, name := range []string{"memory", "postgres"} {
		for _, callers := range []int{1, 64, 512} {
			b.Run(fmt.Sprintf("%s/%d", name, callers), func(b *testing.B) {
				s := stores[name](b)
				b.Cleanup(func() { s.Close() })
				r := startRigWithStore(b, s, noHeaders,
					"domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: hour, requests_per_unit: 100000000}}\n")
				var next atomic.Int64
				var wg sync.WaitGroup
				b.ResetTimer()
				for range callers {
					wg.Go(func() {
						for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
							answer, err := r.trySend("d", 0, desc("k", fmt.Sprint(i%10_000)))
							if err != nil || answer.GetOverallCode() != rls.RateLimitResponse_OK {
								b.Error(answer, err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			})
		}
	}
}
