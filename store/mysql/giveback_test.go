package mysql_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// These two limits admit a cost of 5. Their levels do not fall in the first hour, so not during a test.
var (
	hourlyBucket = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 3_600_000_000, Drain: 1000}
	hourlyLog    = law.Params{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 3_600_000_000}
)

// takeOp returns an op that takes 1000 credits, which is a cost of 1 of the limits above.
func takeOp(limit, key string, p law.Params) law.Op {
	return law.Op{Verb: law.Take, Cell: law.Cell{Limit: limit, Key: key}, Params: p, Cost: 1000, Count: 1}
}

// apply applies a batch, and fails the test if the batch or one of its ops has an error.
func apply(tb testing.TB, s store.Store, ops ...law.Op) []law.Outcome {
	tb.Helper()
	outs := make([]law.Outcome, len(ops))
	if err := s.Apply(tb.Context(), ops, outs); err != nil {
		tb.Fatal(err)
	}
	for i := range outs {
		if outs[i].Err != nil {
			tb.Fatal(outs[i].Err)
		}
	}
	return outs
}

// TestReturnMakesNoCell checks that returns to cells that do not exist grant nothing and make no row, alone and in a
// batch with other ops.
func TestReturnMakesNoCell(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, db := openStore(t, url), openMultiDB(t, url)
	countCells := func() (n int) {
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM headgate_cells").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	bucket, log := takeOp("b", "none", hourlyBucket), takeOp("l", "none", hourlyLog)
	returns := []law.Op{law.Back(&bucket, &law.Outcome{}, 1), law.Back(&log, &law.Outcome{EntryNumber: 1}, 1)}
	for _, out := range apply(t, s, returns...) {
		if out.Granted != 0 || out.Used != 0 || out.Clock == 0 || out.State != (law.State{}) {
			t.Errorf("a return to a missing cell: got %+v, want no grant and no state", out)
		}
	}
	if n := countCells(); n != 0 {
		t.Errorf("got %d cells after the returns, want none", n)
	}
	take := takeOp("b", "used", hourlyBucket)
	out := apply(t, s, take)[0]
	firstTake := takeOp("b", "none", hourlyBucket)
	firstTake.Group = 1
	returns = append(returns, law.Back(&take, &out, 400))
	outs := apply(t, s, append(returns, firstTake)...)
	if outs[2].Granted != 400 || outs[2].State.Level != 600 || outs[2].State.Prev != 400 || outs[3].Granted != 1 {
		t.Errorf("got %+v, want 400 returned of 1000, and the missing cell charged", outs)
	}
	if n := countCells(); n != 2 {
		t.Errorf("got %d cells, want those of two charges", n)
	}
}

// TestInTxReturnsChargesNewerThanItsSnapshot checks that a transaction returns 400 of 1000 credits that were charged
// after the transaction's snapshot.
func TestInTxReturnsChargesNewerThanItsSnapshot(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, db := openStore(t, url), openMultiDB(t, url)
	tx := beginTxWithOldSnapshot(t, db, "headgate_cells")
	for _, p := range []law.Params{hourlyBucket, hourlyLog} {
		op := takeOp("l", fmt.Sprint(p.Kind), p)
		out := apply(t, s, op)[0]
		got := apply(t, mysql.New(db, nil).InTx(tx), law.Back(&op, &out, 400))[0]
		if got.Granted != 400 || got.Used != 600 {
			t.Errorf("got %+v, want granted 400, used 600", got)
		}
	}
}

// TestReturnsUnderLoadAddUp checks that concurrent charges and returns leave the level that they add up to, beside
// charges, returns and resets of a cell that comes and goes.
func TestReturnsUnderLoadAddUp(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openStore(t, url)
	runReturnsUnderLoad(t, s, s)
}

// TestGaleraReturnsUnderLoadAddUp checks that charges and returns on two nodes leave the level that they add up to.
func TestGaleraReturnsUnderLoadAddUp(t *testing.T) {
	urls := dbtest.Galera(t)
	runReturnsUnderLoad(t, openAndMigrate(t, urls[0]+"?wsrep_sync_wait=15"), openAndMigrate(t, urls[1]))
}

// thirdCellOps returns the ops of one of three steps on a cell that comes and goes. Step 0 is a lone charge, which the
// store decides without a transaction. The others return what nobody has charged, and then reset or charge.
func thirdCellOps(step int) []law.Op {
	op := takeOp("l9", "come and go", hourlyBucket)
	op.Group = 2
	back := law.Back(&op, &law.Outcome{}, 1)
	op.Group = 3
	switch step {
	case 0:
		return []law.Op{op}
	case 1:
		op.Verb = law.Reset
	}
	return []law.Op{back, op}
}

// runReturnsUnderLoad has six callers, spread over the stores, each charge 1000 credits to a bucket and to a log, and
// return up to 400 of each, in each of 25 rounds. It compares the levels with the sums.
//
// Each round also charges or resets a third cell. A charge has made that cell if its level is 1000 then. Each cell that
// was made must have been reset, except the last if it is still there.
func runReturnsUnderLoad(t *testing.T, stores ...*mysql.Store) {
	const callers, rounds = 6, 25
	limits := []law.Params{hourlyBucket, hourlyLog}
	var used [2]atomic.Int64       // by limit
	var made, removed atomic.Int64 // how often the third cell was made, and reset
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			applyOps := func(ops ...law.Op) []law.Outcome {
				outs := make([]law.Outcome, len(ops))
				if err := stores[c%len(stores)].Apply(context.Background(), ops, outs); err != nil {
					t.Error(err)
				}
				for i := range outs {
					if outs[i].Err != nil {
						t.Error(outs[i].Err)
					}
				}
				return outs
			}
			for round := range rounds {
				var ops []law.Op
				for i, p := range limits {
					p.Capacity = 1_000_000
					op := takeOp(fmt.Sprint("l", i), "hot", p)
					op.Group = uint32(i)
					ops = append(ops, op)
				}
				if c%2 == 0 {
					slices.Reverse(ops)
				}
				outs := applyOps(ops...)
				var returns []law.Op
				for i := range ops {
					returns = append(returns, law.Back(&ops[i], &outs[i], 400))
				}
				third := thirdCellOps((round + c) % 3)
				if round%2 == 0 {
					outs = applyOps(append(returns, third...)...)
				} else { // not under the locks of the other cells, so beside other callers
					outs = append(applyOps(returns...), applyOps(third...)...)
				}
				for i := range ops {
					used[ops[i].Params.Kind/law.Log].Add(1000 - outs[i].Granted) // 0: the bucket, 1: the log
				}
				switch last, out := third[len(third)-1], outs[len(outs)-1]; {
				case last.Verb == law.Reset:
					removed.Add(out.Granted)
				case out.Granted == 1 && out.State.Level == 1000:
					made.Add(1)
				}
			}
		})
	}
	wg.Wait()
	check := thirdCellOps(0)[0]
	check.Verb = law.Check
	wantMade := removed.Load()
	if apply(t, stores[0], check)[0].State.Level > 0 {
		wantMade++
	}
	if made.Load() != wantMade || removed.Load() == 0 {
		t.Errorf("the third cell: got %d made of %d removed, want %d made", made.Load(), removed.Load(), wantMade)
	}
	for i, p := range limits {
		p.Capacity = 1_000_000
		op := takeOp(fmt.Sprint("l", i), "hot", p)
		op.Verb = law.Check
		out := apply(t, stores[0], op)[0]
		if want := used[i].Load(); out.State.Level != want || want > callers*rounds*1000*9/10 {
			t.Errorf("%+v: got level %d, want %d, which is at most nine tenths of all charges", p, out.State.Level, want)
		}
		entries, err := stores[0].Entries(t.Context(), op.Cell, 1000)
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, e := range entries {
			sum += e.Cost
		}
		if p.Kind == law.Log && sum != out.State.Level {
			t.Errorf("got a sum of %d of the entries, want the level %d", sum, out.State.Level)
		}
	}
}
