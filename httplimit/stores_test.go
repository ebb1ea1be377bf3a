package httplimit_test

import (
	"path/filepath"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/sqlite"
)

// TestOnlyFailuresInADatabase: what is taken while a request is in flight, and given back after it, leaves
// nothing behind in any store, and only a failure blocks.
func TestOnlyFailuresInADatabase(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (store.Store, error){
		"sqlite": func(t *testing.T) (store.Store, error) {
			return sqlite.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "failures.db"), nil)
		},
		"postgres": func(t *testing.T) (store.Store, error) { return postgres.Open(t.Context(), dbtest.Postgres(t), nil) },
		"mysql":    func(t *testing.T) (store.Store, error) { return mysql.Open(t.Context(), dbtest.MariaDB(t), nil) },
		"redis":    func(t *testing.T) (store.Store, error) { return redis.Open(t.Context(), dbtest.Redis(t), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if m, ok := store.As[store.Migrator](s); ok {
				if _, err := m.Migrate(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			l := headgate.New(s, nil)
			for _, notation := range []string{"sliding-log 5/15d block 1d", "sliding-window 5/15d block 1d"} {
				limit := headgate.MustParse(notation)
				succeed(t, l, limit, 4)
				succeed(t, l, limit, 64)
				fail(t, l, limit, 5)
			}
		})
	}
}

// fail lets so many requests of one address fail, one after another, and expects the last one to block.
func fail(t *testing.T, l *headgate.Limiter, limit headgate.Limit, times int) {
	t.Helper()
	h := must(t, l, httplimit.HandlerConfig{
		OnlyFailures: true, Charges: []httplimit.Charge{{Limit: limit, Key: httplimit.ByIP}},
	})(answers(401))
	for i := range times + 1 {
		want := 401
		if i == times {
			want = 429
		}
		if code := get(h, "").Code; code != want {
			t.Errorf("%v: request %d is answered %d, want %d", limit, i+1, code, want)
		}
		s, err := l.Inspect(t.Context(), limit, "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		if blocked := !s.BlockedUntil.IsZero(); blocked != (i+1 >= times) {
			t.Errorf("%v: after %d failures: blocked: %v", limit, i+1, blocked)
		}
	}
}
