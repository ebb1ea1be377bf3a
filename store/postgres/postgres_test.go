package postgres_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/storetest"
)

// open returns a migrated store in a database of its own.
func open(tb testing.TB) *postgres.Store {
	tb.Helper()
	return openAt(tb, dbtest.Postgres(tb))
}

func openAt(tb testing.TB, dsn string) *postgres.Store {
	tb.Helper()
	s, err := postgres.Open(context.Background(), dsn, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	if _, err := s.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return s
}

// conformance runs the suite on databases that database makes, each with a part of a
// URL that follows.
func conformance(t *testing.T, o storetest.Options, database func(tb testing.TB) string, options string) {
	o.Full = func(tb testing.TB, maxKeys int) storetest.Open {
		dsn := database(tb)
		openAt(tb, dsn+options).Close()
		return func(tb testing.TB) store.Store { return openWith(tb, dsn+options, maxKeys) }
	}
	storetest.Run(t, func(tb testing.TB) store.Store { return openAt(tb, database(tb)+options) }, &o)
}

func TestConformance(t *testing.T) {
	t.Run("read committed", func(t *testing.T) { conformance(t, storetest.Options{}, dbtest.Postgres, "") })
	t.Run("serializable", func(t *testing.T) {
		conformance(t, storetest.Options{Histories: 300}, dbtest.Postgres,
			"?default_transaction_isolation=serializable")
	})
}
