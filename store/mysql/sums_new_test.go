package mysql_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
)

// TestKilledBatchesMakeAllCellsOrNone checks that while all statements are killed, each request, of three new cells,
// makes and charges all three cells or none, and that all granted requests are charged.
func TestKilledBatchesMakeAllCellsOrNone(t *testing.T) {
	t.Parallel()
	s, db := openKillable(t)
	granted, unknown := sendDuringKills(t, db, func(ctx context.Context, n int64) error {
		ops, outs := make([]law.Op, 3), make([]law.Outcome, 3)
		for i := range ops {
			ops[i] = law.Op{
				Verb: law.Take, Group: 1, Cell: law.Cell{Limit: fmt.Sprint("limit ", i), Key: fmt.Sprint(n)}, Params: hugeBucket,
				Cost: 1, Count: 1,
			}
		}
		err := s.Apply(ctx, ops, outs)
		if err == nil && outs[0].Granted+outs[1].Granted+outs[2].Granted != 3 {
			err = fmt.Errorf("granted in part: %+v", outs)
		}
		return err
	})
	var complete, partial int64 // requests by their charges
	if err := db.QueryRowContext(t.Context(), "SELECT COALESCE(SUM(n = 3 AND charged = 3), 0), "+
		"COALESCE(SUM(NOT (n = 3 AND charged = 3) AND charged > 0), 0) FROM (SELECT COUNT(*) AS n, SUM(level) AS charged "+
		"FROM headgate_cells GROUP BY cell_key) k").Scan(&complete, &partial); err != nil {
		t.Fatal(err)
	}
	if partial > 0 || complete < granted || complete > granted+unknown {
		t.Errorf("got %d complete and %d partial requests, want from %d to %d and none", complete, partial, granted,
			granted+unknown)
	}
}

// TestANewCellIsChargedAtATimeAfterItsLock checks that a charge of a key whose row another session inserts and then
// rolls back is not dated before the rollback, since a sweep might have removed the row.
func TestANewCellIsChargedAtATimeAfterItsLock(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, db := openStore(t, url), openPlainDB(t, url)
	if _, err := takeThree(t.Context(), s); err != nil { // the store now expects new keys
		t.Fatal(err)
	}
	tx := beginTx(t, db)
	mustExec(t, tx, "INSERT INTO headgate_cells (limit_name, cell_key) VALUES ('l', 'new')")
	outs := make([]law.Outcome, 2)
	applyErr := make(chan error, 1)
	go func() {
		ops := []law.Op{hugeBucketOp(0, "a"), hugeBucketOp(1, "new")}
		applyErr <- s.Apply(context.Background(), ops, outs)
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
	if err := await.Receive(t, "the batch", applyErr); err != nil {
		t.Fatal(err)
	}
	if out := outs[1]; out.Granted != 1 || out.Clock < now {
		t.Errorf("got %+v, want it granted after %d", out, now)
	}
}
