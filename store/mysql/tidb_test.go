package mysql_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

func TestTiDBConformance(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.TiDBEngine)
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) store.Store { return openAt(tb, dbtest.TiDB(tb)) }, nil)
}

// TestTiDBHasNoProcedures migrates a TiDB: it gets what a program needs, and Examine finds nothing wrong.
func TestTiDBHasNoProcedures(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.TiDBEngine)
	t.Parallel()
	s := openAt(t, dbtest.TiDB(t))
	report, err := s.Migrate(t.Context())
	if want := []string{"left out the procedures: this server has none"}; err != nil || !slices.Equal(report, want) {
		t.Errorf("migrated again: %q, %v", report, err)
	}
	findings, err := s.Examine(t.Context())
	if err != nil || slices.ContainsFunc(findings, func(f store.Finding) bool { return f.Severity == store.Wrong }) {
		t.Errorf("%+v, %v", findings, err)
	}
}

// TestTiDBHasToLock uses a server whose transactions lock nothing, which must be refused.
func TestTiDBHasToLock(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.TiDBEngine)
	t.Parallel()
	url := dbtest.TiDB(t)
	openAt(t, url)
	for _, setting := range []string{"tidb_txn_mode=optimistic", "tidb_constraint_check_in_place_pessimistic=0"} {
		s := openUnmigrated(t, url+"?"+setting)
		_, err := limiter(s).Allow(t.Context(), headgate.MustParse("token-bucket 5/1m"), "k")
		if name, _, _ := strings.Cut(setting, "="); !errors.Is(err, store.ErrSetup) ||
			!strings.Contains(err.Error(), "SET GLOBAL "+name) {
			t.Errorf("%s: %v", setting, err)
		}
	}
}

// TestTiDBIsExactForTwoStores lets 64 callers charge one key by two stores. While others hold a row, TiDB repeats a
// statement by itself.
func TestTiDBIsExactForTwoStores(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.TiDBEngine)
	t.Parallel()
	url := dbtest.TiDB(t)
	stores := []*mysql.Store{openAt(t, url), openUnmigrated(t, url)}
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
