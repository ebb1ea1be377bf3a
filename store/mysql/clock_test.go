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

func TestADecisionThatWaitedReadsTheClockAfterwards(t *testing.T) {
	t.Parallel()
	decidesAfterTheWait(t, migrated.MariaDB(t))
}

// TestGaleraDecisionThatWaitedReadsTheClockAfterwards runs on a Galera node, where UTC_TIMESTAMP returns the time at
// which a text of several statements began.
func TestGaleraDecisionThatWaitedReadsTheClockAfterwards(t *testing.T) {
	url := dbtest.Galera(t)[0]
	openAt(t, url)
	decidesAfterTheWait(t, url)
}

// TestAServerWhoseSYSDATEStandsStillIsRefused uses a server on which the store could not tell how long a statement has
// waited.
func TestAServerWhoseSYSDATEStandsStillIsRefused(t *testing.T) {
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
	_, err = s.Migrate(t.Context())
	_, err2 := limiter(s).Allow(t.Context(), headgate.MustParse("token-bucket 1/s"), "k")
	for _, err := range []error{err, err2} {
		if !errors.Is(err, store.ErrSetup) || !strings.Contains(err.Error(), "sysdate-is-now") {
			t.Error(err)
		}
	}
	storetest.Finds(t, s, store.Wrong, "version", "docs/stores.md")
}

func TestASweepDuringACommit(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, hold := openUnmigrated(t, url), holdRows(t, url)
	storetest.RunSweepDuringACommit(t, s, hold)
	t.Run("through the whole stack", func(t *testing.T) {
		storetest.RunSweepDuringACommit(t, patientStack(s), hold)
	})
}

func TestAChargeThatWaitsWhileTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	server, err := (&dbtest.Config{Faults: true}).MariaDB(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	url := dbtest.MariaDBAt(t, server.DSN)[0]
	s := openAt(t, url)
	storetest.RunSetBack(t, s, holdRows(t, url), server.ShiftClock)
	t.Run("through the whole stack", func(t *testing.T) {
		storetest.RunSetBack(t, patientStack(s), holdRows(t, url), server.ShiftClock)
	})
}

// patientStack returns the whole stack over a store, with a longer timeout than usual.
func patientStack(s store.Store) store.Store {
	return front.New(s, &front.Config{
		SweepEvery: -1, Guard: &front.GuardConfig{Deadline: time.Minute},
		Coalesce: &front.CoalesceConfig{Timeout: time.Minute},
	})
}

// decidesAfterTheWait checks that a charge that waits for its row is decided by the clock after the wait.
func decidesAfterTheWait(t *testing.T, url string) {
	t.Helper()
	people := plainDB(t, url)
	s, hold := openUnmigrated(t, url), holdRows(t, url)
	storetest.RunWaits(t, s, hold, func(_ context.Context, notation, key string) error {
		_, err := callTake(t, people, "headgate_take", notation, key, "1")
		return err
	})
}

// holdRows locks rows in transactions of a pool of its own.
func holdRows(t *testing.T, url string) storetest.Hold {
	t.Helper()
	db := pool(t, url)
	return func(t *testing.T, c law.Cell) (store.Store, func() error) {
		t.Helper()
		tx := beginTx(t, db)
		if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM headgate_cells WHERE limit_name = ? AND cell_key = ? "+
			"FOR UPDATE", c.Limit, c.Key); err != nil {
			t.Fatal(err)
		}
		return mysql.New(db, nil).InTx(tx), tx.Commit
	}
}
