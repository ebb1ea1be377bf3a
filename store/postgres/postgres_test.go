package postgres_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store/postgres"
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
