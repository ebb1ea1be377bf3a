package mysql_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

// TestADecisionThatWaitedReadsTheClockAfterwards checks that a charge that waits for its row is decided by the clock
// after the wait.
func TestADecisionThatWaitedReadsTheClockAfterwards(t *testing.T) {
	t.Parallel()
	expectClockAfterWait(t, migrated.MariaDB(t))
}

// TestGaleraDecisionThatWaitedReadsTheClockAfterwards checks the clock of a charge that waits on a Galera node, where
// UTC_TIMESTAMP returns the time at which a text of several statements began.
func TestGaleraDecisionThatWaitedReadsTheClockAfterwards(t *testing.T) {
	url := dbtest.Galera(t)[0]
	openAndMigrate(t, url)
	expectClockAfterWait(t, url)
}

// TestServerWithSysdateIsNowIsRefused checks that Migrate and Allow return ErrSetup at a server with sysdate-is-now, on
// which a store could not tell how long a statement has waited.
func TestServerWithSysdateIsNowIsRefused(t *testing.T) {
	t.Parallel()
	server, err := (&dbtest.Config{Args: []string{"--sysdate-is-now"}}).MariaDB(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	url := dbtest.MariaDBAt(t, server.DSN)[0]
	s, err := mysql.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, migrateErr := s.Migrate(t.Context())
	_, allowErr := newLimiter(s).Allow(t.Context(), headgate.MustParse("token-bucket 1/s"), "k")
	for _, err := range []error{migrateErr, allowErr} {
		if !errors.Is(err, store.ErrSetup) || !strings.Contains(err.Error(), "sysdate-is-now") {
			t.Errorf("got %v, want ErrSetup with sysdate-is-now", err)
		}
	}
	storetest.Finds(t, s, store.Wrong, "version", "docs/stores.md")
}

// TestASweepDuringACommit checks that a sweep keeps the entries that an uncommitted charge has counted, in the store
// and through all wrappers.
func TestASweepDuringACommit(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, hold := openStore(t, url), holdRows(t, url)
	storetest.RunSweepDuringACommit(t, s, hold)
	t.Run("through the whole stack", func(t *testing.T) {
		storetest.RunSweepDuringACommit(t, newStack(s), hold)
	})
}

// TestAChargeThatWaitsWhileTheClockIsSetBack checks that a charge that waits for its row while the clock is set back is
// not decided by the clock from before, in the store and through all wrappers.
func TestAChargeThatWaitsWhileTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	server, err := (&dbtest.Config{Faults: true}).MariaDB(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	url := dbtest.MariaDBAt(t, server.DSN)[0]
	s := openAndMigrate(t, url)
	storetest.RunSetBack(t, s, holdRows(t, url), server.ShiftClock)
	t.Run("through the whole stack", func(t *testing.T) {
		storetest.RunSetBack(t, newStack(s), holdRows(t, url), server.ShiftClock)
	})
}

// newStack returns all wrappers over a store, with longer timeouts than usual.
func newStack(s store.Store) store.Store {
	return front.New(s, &front.Config{
		SweepEvery: -1, Guard: &front.GuardConfig{Deadline: time.Minute},
		Coalesce: &front.CoalesceConfig{Timeout: time.Minute},
	})
}

// expectClockAfterWait checks that a charge that waits for its row is decided by the clock after the wait.
func expectClockAfterWait(t *testing.T, url string) {
	t.Helper()
	db := openPlainDB(t, url)
	s, hold := openStore(t, url), holdRows(t, url)
	storetest.RunWaits(t, s, hold, func(_ context.Context, notation, key string) error {
		_, err := callTake(t, db, "headgate_take", notation, key, "1")
		return err
	})
}

// holdRows returns a function that locks the row of a cell in a transaction, and returns a store inside that
// transaction and the function that commits it.
func holdRows(t *testing.T, url string) storetest.Hold {
	t.Helper()
	db := openMultiDB(t, url)
	return func(t *testing.T, c law.Cell) (store.Store, func() error) {
		t.Helper()
		tx := beginTx(t, db)
		mustExec(t, tx, "SELECT 1 FROM headgate_cells WHERE limit_name = ? AND cell_key = ? FOR UPDATE", c.Limit, c.Key)
		return mysql.New(db, nil).InTx(tx), tx.Commit
	}
}
