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

// open returns a migrated store in a database of its own.
func open(tb testing.TB) *postgres.Store {
	tb.Helper()
	return openAt(tb, migrated.Postgres(tb))
}

// openAt returns a store over a database, which it migrates if need be.
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

// limiter returns a Limiter that waits longer than usual, since a busy machine answers late.
func limiter(s store.Store) *headgate.Limiter {
	return headgate.New(s, &headgate.Config{Timeout: time.Minute})
}

// conformance runs the suite on databases that database makes; options is appended to their URLs.
func conformance(t *testing.T, o storetest.Options, database func(tb testing.TB) string, options string) {
	t.Helper()
	storetest.Run(t, func(tb testing.TB) store.Store { return openAt(tb, database(tb)+options) }, &o)
}

func TestConformance(t *testing.T) {
	t.Run("read committed", func(t *testing.T) { conformance(t, storetest.Options{}, migrated.Postgres, "") })
}

func TestConformanceAtSerializable(t *testing.T) {
	tier.Engines(t)
	conformance(t, storetest.Options{}, migrated.Postgres, "?default_transaction_isolation=serializable")
}
