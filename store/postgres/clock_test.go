package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/storetest"
)

// TestADecisionThatWaitedReadsTheClockAfterwards runs storetest.RunWaits, with SQL calls of headgate.take.
func TestADecisionThatWaitedReadsTheClockAfterwards(t *testing.T) {
	t.Parallel()
	s, pool := openStoreAndPool(t)
	storetest.RunWaits(t, s, newHold(s, pool), func(ctx context.Context, notation, key string) error {
		_, err := pool.Exec(ctx, "select headgate.take($1, $2)", notation, key)
		return err
	})
}

// TestSweepKeepsEntriesThatAnUncommittedChargeCounted runs storetest.RunSweepDuringACommit.
func TestSweepKeepsEntriesThatAnUncommittedChargeCounted(t *testing.T) {
	t.Parallel()
	s, pool := openStoreAndPool(t)
	hold := newHold(s, pool)
	storetest.RunSweepDuringACommit(t, s, hold)
	t.Run("through the whole stack", func(t *testing.T) {
		storetest.RunSweepDuringACommit(t, front.New(s, &front.Config{SweepEvery: -1}), hold)
	})
}

// openStoreAndPool returns a store, and a connection pool of its database.
func openStoreAndPool(t *testing.T) (*postgres.Store, *pgxpool.Pool) {
	t.Helper()
	dsn := migrated.Postgres(t)
	pool, err := pgxpool.New(t.Context(), dsn+"?pool_max_conns=24")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return openAt(t, dsn+"?pool_max_conns=16"), pool
}

// newHold returns a storetest.Hold that locks rows in transactions of a pool, and charges them by stores of s.InTx.
func newHold(s *postgres.Store, pool *pgxpool.Pool) storetest.Hold {
	return func(t *testing.T, c law.Cell) (store.Store, func() error) {
		t.Helper()
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		mustExec(t, tx, "select from headgate.cells where limit_name = $1 and key = $2 for update", c.Limit, c.Key)
		return s.InTx(tx), func() error { return tx.Commit(context.Background()) }
	}
}
