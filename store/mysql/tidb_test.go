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

// TestTiDBConformance runs the conformance suite on TiDB.
func TestTiDBConformance(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.TiDBEngine)
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) store.Store { return openAndMigrate(tb, dbtest.TiDB(tb)) }, nil)
}

// TestTiDBMigratesWithoutProcedures checks that Migrate leaves out the procedures on TiDB, and that Examine then finds
// nothing wrong.
func TestTiDBMigratesWithoutProcedures(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.TiDBEngine)
	t.Parallel()
	s := openAndMigrate(t, dbtest.TiDB(t))
	report, err := s.Migrate(t.Context())
	if want := []string{"left out the procedures: this server has none"}; err != nil || !slices.Equal(report, want) {
		t.Errorf("Migrate again: got %q, %v; want %q", report, err, want)
	}
	findings, err := s.Examine(t.Context())
	if err != nil || slices.ContainsFunc(findings, func(f store.Finding) bool { return f.Severity == store.Wrong }) {
		t.Errorf("Examine: got %+v, %v; want nothing wrong", findings, err)
	}
}

// TestTiDBRefusesOptimisticTransactions checks that a charge returns ErrSetup with the remedy if transactions lock
// nothing, or look for duplicates only at their COMMIT.
func TestTiDBRefusesOptimisticTransactions(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.TiDBEngine)
	t.Parallel()
	url := dbtest.TiDB(t)
	openAndMigrate(t, url)
	for _, setting := range []string{"tidb_txn_mode=optimistic", "tidb_constraint_check_in_place_pessimistic=0"} {
		s := openStore(t, url+"?"+setting)
		_, err := newLimiter(s).Allow(t.Context(), headgate.MustParse("token-bucket 5/1m"), "k")
		if name, _, _ := strings.Cut(setting, "="); !errors.Is(err, store.ErrSetup) ||
			!strings.Contains(err.Error(), "SET GLOBAL "+name) {
			t.Errorf("%s: got %v, want ErrSetup with SET GLOBAL", setting, err)
		}
	}
}

// TestTiDBIsExactForTwoStores checks that 64 callers, who charge one key by two stores, are admitted exactly 500 times.
// TiDB repeats a statement by itself while other transactions hold its row.
func TestTiDBIsExactForTwoStores(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.TiDBEngine)
	t.Parallel()
	url := dbtest.TiDB(t)
	stores := []*mysql.Store{openAndMigrate(t, url), openStore(t, url)}
	for _, limit := range []string{"fixed-window 500/30d", "token-bucket 500/1000d", "sliding-log 500/30d"} {
		t.Run(limit, func(t *testing.T) {
			var admitted atomic.Int64
			var wg sync.WaitGroup
			for i := range 64 {
				l := newLimiter(stores[i%len(stores)])
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
				t.Errorf("got %d admissions of 768 calls, want 500", n)
			}
		})
	}
}
