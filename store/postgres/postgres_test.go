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

func TestConformance(t *testing.T) {
	t.Run("read committed", func(t *testing.T) {
		storetest.Run(t, func(tb testing.TB) store.Store { return open(tb) }, nil)
	})
	t.Run("serializable", func(t *testing.T) {
		storetest.Run(t, func(tb testing.TB) store.Store {
			return openAt(tb, dbtest.Postgres(tb)+"?default_transaction_isolation=serializable")
		}, &storetest.Options{Histories: 300})
	})
}
