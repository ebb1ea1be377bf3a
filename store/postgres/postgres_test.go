package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/storetest"
)

// openMigrated returns a store in a migrated database of its own.
func openMigrated(tb testing.TB) *postgres.Store {
	tb.Helper()
	return openAt(tb, migrated.Postgres(tb))
}

// openAt returns a store in a database. It migrates the database if reads return store.ErrSetup: without a schema, say.
func openAt(tb testing.TB, dsn string) *postgres.Store {
	tb.Helper()
	s, err := postgres.Open(context.Background(), dsn, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	if _, _, err := s.Cells(context.Background(), store.Query{Max: 1}); errors.Is(err, store.ErrSetup) {
		_, err = s.Migrate(context.Background())
		if err != nil {
			tb.Fatal(err)
		}
	} else if err != nil {
		tb.Fatal(err)
	}
	return s
}

// newLimiter returns a Limiter whose Timeout is a minute, since a busy machine answers late.
func newLimiter(s store.Store) *headgate.Limiter {
	return headgate.New(s, &headgate.Config{Timeout: time.Minute})
}

// runConformance runs the conformance suite on databases of newDatabase, to whose URLs it appends urlOptions.
func runConformance(t *testing.T, o storetest.Options, newDatabase func(tb testing.TB) string, urlOptions string) {
	t.Helper()
	storetest.Run(t, func(tb testing.TB) store.Store { return openAt(tb, newDatabase(tb)+urlOptions) }, &o)
}

// TestConformance runs the suite at read committed, the default.
func TestConformance(t *testing.T) {
	runConformance(t, storetest.Options{}, migrated.Postgres, "")
}

// TestConformanceAtSerializable runs the suite at serializable, where the store has to retry.
func TestConformanceAtSerializable(t *testing.T) {
	tier.Engines(t)
	runConformance(t, storetest.Options{}, migrated.Postgres, "?default_transaction_isolation=serializable")
}
