package mysql_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

func TestTiDBConformance(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.TiDBEngine)
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) store.Store { return openAt(tb, dbtest.TiDB(tb)) }, nil)
}

// TestTiDBIsExactForTwoStores has 64 callers ask two stores for one key. While others hold a row, TiDB repeats a
// statement by itself.
func TestTiDBIsExactForTwoStores(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.TiDBEngine)
	t.Parallel()
	url := dbtest.TiDB(t)
	stores := []*mysql.Store{openAt(t, url), bare(t, url)}
	for _, limit := range []string{"fixed-window 500/30d", "token-bucket 500/1000d", "sliding-log 500/30d"} {
		t.Run(limit, func(t *testing.T) {
			var admitted atomic.Int64
			var wg sync.WaitGroup
			for i := range 64 {
				l := limiter(stores[i%len(stores)])
				wg.Go(func() {
					for range 12 {
						d, err := l.Allow(t.Context(), headgate.MustParse(limit), "k")
						if err != nil {
							t.Error(err)
							return
						}
						if d.Allowed {
							admitted.Add(1)
						}
					}
				})
			}
			wg.Wait()
			if n := admitted.Load(); n != 500 {
				t.Errorf("%d of 768 admitted, want 500", n)
			}
		})
	}
}
