package mysql_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
)

// TestNewCellsOfBatchesKilledAtAnyTime kills statements without end, each of which makes three cells for one request:
// all three cells must be there and charged, or none, and all granted requests must be charged.
func TestNewCellsOfBatchesKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	s, db := openKillable(t)
	granted, unknown := killWhile(t, db, func(ctx context.Context, n int64) error {
		ops, outs := make([]law.Op, 3), make([]law.Outcome, 3)
		for i := range ops {
			ops[i] = law.Op{
				Verb: law.Take, Group: 1, Cell: law.Cell{Limit: fmt.Sprint("limit ", i), Key: fmt.Sprint(n)}, Params: neverDrains,
				Cost: 1, Count: 1,
			}
		}
		err := s.Apply(ctx, ops, outs)
		if err == nil && outs[0].Granted+outs[1].Granted+outs[2].Granted != 3 {
			err = fmt.Errorf("granted in part: %+v", outs)
		}
		return err
	})
	var whole, broken int64
	if err := db.QueryRowContext(t.Context(), "SELECT COALESCE(SUM(n = 3 AND charged = 3), 0), "+
		"COALESCE(SUM(NOT (n = 3 AND charged = 3) AND charged > 0), 0) FROM (SELECT COUNT(*) AS n, SUM(level) AS charged "+
		"FROM headgate_cells GROUP BY cell_key) k").Scan(&whole, &broken); err != nil {
		t.Fatal(err)
	}
	if broken > 0 || whole < granted || whole > granted+unknown {
		t.Errorf("%d requests are charged, %d in part, after %d granted and %d not known", whole, broken, granted, unknown)
	}
}

// TestANewCellIsChargedAtATimeAfterItsLock charges a key whose row another session makes, holds and rolls back. The
// time of the charge must not be earlier than that, since a sweep might have removed the row.
func TestANewCellIsChargedAtATimeAfterItsLock(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, db := openUnmigrated(t, url), plainDB(t, url)
	if _, err := takeThree(t.Context(), s); err != nil { // from now on it is known that keys are new
		t.Fatal(err)
	}
	tx := beginTx(t, db)
	run(t, tx, "INSERT INTO headgate_cells (limit_name, cell_key) VALUES ('l', 'new')")
	outs := make([]law.Outcome, 2)
	done := make(chan error, 1)
	go func() {
		var ops []law.Op
		for i, key := range []string{"a", "new"} {
			ops = append(ops, law.Op{
				Verb: law.Take, Group: uint32(i), Cell: law.Cell{Limit: "l", Key: key}, Params: neverDrains, Cost: 1, Count: 1,
			})
		}
		done <- s.Apply(context.Background(), ops, outs)
	}()
	awaitStatement(t, db, "headgate_cells")
	now := serverClock(t, db)
	await.Until(t, "200 ms to pass, which is longer than a clock may be old", func() bool {
		return serverClock(t, db) > now+200_000
	})
	now = serverClock(t, db)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := await.Receive(t, "the batch", done); err != nil {
		t.Fatal(err)
	}
	if out := outs[1]; out.Granted != 1 || out.Clock < now {
		t.Errorf("%+v; want it granted after %d", out, now)
	}
}
