package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestNewWithoutPoolIsErrInvalid checks that charges, sweeps and migrations of a store without a pool are ErrInvalid.
func TestNewWithoutPoolIsErrInvalid(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), mysql.New(nil, nil)
	_, migrateErr := s.Migrate(ctx)
	_, removalErr := s.Removal(ctx)
	_, sweepErr := s.Sweep(ctx, 1)
	for name, err := range map[string]error{
		"Migrate": migrateErr, "Removal": removalErr, "Sweep": sweepErr, "Remove": s.Remove(ctx),
		"Apply": s.Apply(ctx, make([]law.Op, 1), make([]law.Outcome, 1)),
	} {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}

// openMigrated opens a store on an empty database that has the schema.
func openMigrated(tb testing.TB) *mysql.Store {
	tb.Helper()
	return openStore(tb, migrated.MariaDB(tb))
}

// openAndMigrate opens a store by its URL, and migrates its database.
func openAndMigrate(tb testing.TB, url string) *mysql.Store {
	tb.Helper()
	s := openStore(tb, url)
	if _, err := s.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestConformance runs the conformance suite on one server.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) store.Store { return openMigrated(tb) }, nil)
}

// openStore opens a store by its URL, and does not migrate. Its timeout is longer than usual, since a busy machine
// answers late. Its Migrate also installs the procedures of the articles.
func openStore(tb testing.TB, url string) *mysql.Store {
	tb.Helper()
	if !strings.Contains(url, "timeout=") {
		url += map[bool]string{true: "&", false: "?"}[strings.Contains(url, "?")] + "timeout=1m"
	}
	path, _, _ := strings.Cut(url, "?")
	s, err := mysql.Open(context.Background(), url, &mysql.Config{
		RetryFor: time.Minute, Articles: path[strings.LastIndex(path, "/")+1:],
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// newLimiter returns a Limiter over a store, with a longer timeout than usual, since a busy machine answers late.
func newLimiter(s store.Store) *headgate.Limiter {
	return headgate.New(s, &headgate.Config{Timeout: time.Minute})
}

// mustExec executes a statement on a pool, a connection or a transaction, and fails the test after an error.
func mustExec(tb testing.TB, db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, statement string, args ...any,
) {
	tb.Helper()
	if _, err := db.ExecContext(tb.Context(), statement, args...); err != nil {
		tb.Fatalf("%.300s: %v", statement, err)
	}
}
