package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

func TestADecisionThatWaitedReadsTheClockAfterwards(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	s := openAt(t, dsn+"?pool_max_conns=16")
	pool, err := pgxpool.New(t.Context(), dsn+"?pool_max_conns=24")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	hold := func(t *testing.T, c law.Cell) (store.Store, func() error) {
		t.Helper()
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		if _, err := tx.Exec(t.Context(), "select from headgate.cells where limit_name = $1 and key = $2 for update", c.Limit,
			c.Key); err != nil {
			t.Fatal(err)
		}
		return s.InTx(tx), func() error { return tx.Commit(context.Background()) }
	}
	storetest.RunWaits(t, s, hold, func(ctx context.Context, notation, key string) error {
		_, err := pool.Exec(ctx, "select headgate.take($1, $2)", notation, key)
		return err
	})
}
