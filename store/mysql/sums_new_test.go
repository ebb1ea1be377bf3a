package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TestNewCellsOfBatchesKilledAtAnyTime kills statements without end that make three cells
// each for one request: all three are there and charged, or none; and those of all requests
// that were granted are.
func TestNewCellsOfBatchesKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	s, db := openAt(t, url), plain(t, url)
	request := func(ctx context.Context, name string) (bool, error) {
		ops, outs := make([]law.Op, 3), make([]law.Outcome, 3)
		for i := range ops {
			ops[i] = law.Op{
				Verb: law.Take, Group: 1, Cell: law.Cell{Limit: fmt.Sprint("limit ", i), Key: name}, Params: slowly,
				Cost: 1, Count: 1,
			}
		}
		err := s.Apply(ctx, ops, outs)
		return outs[0].Granted+outs[1].Granted+outs[2].Granted == 3, err
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
	defer stop()
	var mu sync.Mutex
	granted, unknown := 0, 0
	var wg sync.WaitGroup
	for caller := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				ok, err := request(ctx, fmt.Sprint(caller, " ", i))
				cancel()
				mu.Lock()
				switch {
				case err == nil && ok:
					granted++
				case errors.Is(err, store.ErrUnknownOutcome):
					unknown++
				case !errors.Is(err, store.ErrUnavailable):
					t.Errorf("granted: %v, %v", ok, err)
				}
				mu.Unlock()
			}
		})
	}
	for ctx.Err() == nil {
		killAll(ctx, db)
	}
	wg.Wait()
	var whole, broken int
	if err := db.QueryRowContext(t.Context(), "SELECT COALESCE(SUM(n = 3 AND charged = 3), 0), "+
		"COALESCE(SUM(NOT (n = 3 AND charged = 3) AND charged > 0), 0) FROM (SELECT COUNT(*) AS n, SUM(level) AS charged "+
		"FROM headgate_cells GROUP BY cell_key) k").Scan(&whole, &broken); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d granted, %d not known, %d charged", granted, unknown, whole)
	if broken > 0 || whole < granted || whole > granted+unknown {
		t.Errorf("%d requests are charged, %d in part, after %d granted and %d not known", whole, broken, granted, unknown)
	}
}

// TestANewCellIsChargedAtATimeAfterItsLock asks for a key whose row another session makes, holds
// and takes back: the charge is not timed before that, since the row might have been removed
// by a sweep.
func TestANewCellIsChargedAtATimeAfterItsLock(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	s, db := openAt(t, url), plain(t, url)
	if _, err := takeThree(t.Context(), s); err != nil { // from now on it is known that keys are new
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(),
		"INSERT INTO headgate_cells (limit_name, cell_key) VALUES ('l', 'new')"); err != nil {
		t.Fatal(err)
	}
	outs := make([]law.Outcome, 2)
	done := make(chan error)
	go func() {
		var ops []law.Op
		for i, key := range []string{"a", "new"} {
			ops = append(ops, law.Op{
				Verb: law.Take, Group: uint32(i), Cell: law.Cell{Limit: "l", Key: key}, Params: slowly, Cost: 1, Count: 1,
			})
		}
		done <- s.Apply(context.Background(), ops, outs)
	}()
	for deadline, waits := time.Now().Add(time.Minute), 0; waits == 0; time.Sleep(5 * time.Millisecond) {
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE "+
			"db = DATABASE() AND info LIKE '%INSERT INTO headgate_cells%' AND id <> CONNECTION_ID()").Scan(&waits); err != nil ||
			time.Now().After(deadline) {
			t.Fatal("the batch does not wait", err)
		}
	}
	time.Sleep(200 * time.Millisecond) // longer than a clock may be old
	var now int64
	if err := db.QueryRowContext(t.Context(),
		"SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))").Scan(&now); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if out := outs[1]; out.Granted != 1 || out.Clock < now {
		t.Errorf("%+v; want it granted after %d", out, now)
	}
}
