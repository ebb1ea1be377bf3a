package postgres_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/storetest"
)

// applyOp applies a batch of one op, and fails the test if the batch or the op fails.
func applyOp(t *testing.T, s *postgres.Store, op law.Op) law.Outcome {
	t.Helper()
	outs := make([]law.Outcome, 1)
	if err := s.Apply(context.Background(), []law.Op{op}, outs); err != nil || outs[0].Err != nil {
		t.Errorf("Apply of %+v: got %v, outcome %v", op, err, outs[0].Err)
	}
	return outs[0]
}

// TestReturnMakesNoCellAndKeepsTheHistory checks that a return without a charge makes no cell, that a return of another
// key's charge gives nothing back, and that the history has the corrected cost of a charge.
func TestReturnMakesNoCellAndKeepsTheHistory(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s, conn := openAt(t, dsn), connect(t, dsn)
	take := law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: "k"}, Cost: 1000, Count: 2,
		Params: law.Params{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 60_000_000, History: 60_000_000},
	}
	returnOp := law.Back(&take, &law.Outcome{EntryNumber: 1}, 1000)
	if out := applyOp(t, s, returnOp); out.Granted != 0 || out.State != (law.State{}) {
		t.Errorf("a return without a charge: got %+v, want nothing granted and no state", out)
	}
	var cells, costInHistory int
	if err := conn.QueryRow(t.Context(), `select count(*) from headgate.cells`).Scan(&cells); err != nil || cells != 0 {
		t.Errorf("got %d cells, %v; want 0", cells, err)
	}
	out := applyOp(t, s, take)
	other := take
	other.Cell.Key = "other"
	applyOp(t, s, other)
	if got := applyOp(t, s, law.Back(&other, &out, 1000)); got.Granted != 0 || got.Used != 2000 {
		t.Errorf("a return of another key's charge: got %+v, want 0 granted, 2000 used", got)
	}
	for i, want := range []struct{ granted, remainingCost int }{{500, 1500}, {1500, 0}, {0, 0}} {
		if got := applyOp(t, s, law.Back(&take, &out, 500+int64(i)*1000)); got.Granted != int64(want.granted) ||
			got.Used != int64(want.remainingCost) {
			t.Errorf("return %d: got %+v, want %+v", i, got, want)
		}
		if err := conn.QueryRow(t.Context(),
			`select 1000 * cost from headgate.history where key = 'k' and allowed`).Scan(&costInHistory); err != nil ||
			costInHistory != want.remainingCost {
			t.Errorf("history after return %d: got %d, %v; want %d", i, costInHistory, err, want.remainingCost)
		}
	}
	var stillCounts bool
	if err := conn.QueryRow(t.Context(), `select expires_at > 0 from headgate.entries where key = 'k'`).Scan(
		&stillCounts); err != nil || stillCounts {
		t.Errorf("a returned entry still counts: got %t, %v; want false", stillCounts, err)
	}
}

// TestConcurrentReturnsAreExact lets eight callers charge, and return parts, under each law. The level must be the sum.
func TestConcurrentReturnsAreExact(t *testing.T) {
	t.Parallel()
	const callers, charges = 8, 20
	s := openAt(t, migrated.Postgres(t)+"?pool_max_conns=8")
	for kind := law.Bucket; kind <= law.Log; kind++ {
		take := law.Op{
			Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "many", Key: string(rune('0' + kind))}, Cost: 1000,
			Count: 1, Now: storetest.T0,
			Params: law.Params{
				Kind: kind, Unit: 1000, Capacity: callers * charges * 1000, Step: 3_600_000_000,
				Drain: 1000,
			},
		}
		var used atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range charges {
					out := applyOp(t, s, take)
					used.Add(out.Granted * 1000)
					used.Add(-applyOp(t, s, law.Back(&take, &out, 700)).Granted)
				}
			})
		}
		wg.Wait()
		check := take
		check.Verb = law.Check
		if out := applyOp(t, s, check); out.State.Level != used.Load() || used.Load() >= callers*charges*1000 {
			t.Errorf("law %d: got level %d, want %d", kind, out.State.Level, used.Load())
		}
	}
}
