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

// TestAServerWhoseSYSDATEStandsStillIsRefused: the store could not tell how long a statement has waited.
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
	s, hold := bare(t, url), holding(t, url)
	storetest.RunSweepDuringACommit(t, s, hold)
	t.Run("through the whole stack", func(t *testing.T) {
		storetest.RunSweepDuringACommit(t, patient(s), hold)
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
	storetest.RunSetBack(t, s, holding(t, url), server.ShiftClock)
	t.Run("through the whole stack", func(t *testing.T) {
		storetest.RunSetBack(t, patient(s), holding(t, url), server.ShiftClock)
	})
}

// patient returns the whole stack over a store, which waits longer than usual.
func patient(s store.Store) store.Store {
	return front.New(s, &front.Config{
		SweepEvery: -1, Guard: &front.GuardConfig{Deadline: time.Minute},
		Coalesce: &front.CoalesceConfig{Timeout: time.Minute},
	})
}

func decidesAfterTheWait(t *testing.T, url string) {
	t.Helper()
	people := plain(t, url)
	storetest.RunWaits(t, bare(t, url), holding(t, url), func(_ context.Context, notation, key string) error {
		_, err := call(t, people, "headgate_take", notation, key, "1")
		return err
	})
}

// holding locks rows in transactions of its own pool.
func holding(t *testing.T, url string) storetest.Hold {
	t.Helper()
	db := pool(t, url)
	return func(t *testing.T, c law.Cell) (store.Store, func() error) {
		t.Helper()
		tx := begin(t, db)
		if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM headgate_cells WHERE limit_name = ? AND cell_key = ? "+
			"FOR UPDATE", c.Limit, c.Key); err != nil {
			t.Fatal(err)
		}
		return mysql.New(db, nil).InTx(tx), tx.Commit
	}
}
