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

var (
	hourly = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 3_600_000_000, Drain: 1000}
	logged = law.Params{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 3_600_000_000}
)

func takeOne(limit, key string, p law.Params) law.Op {
	return law.Op{Verb: law.Take, Cell: law.Cell{Limit: limit, Key: key}, Params: p, Cost: 1000, Count: 1}
}

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

// TestAReturnMakesNoCell returns charges to cells that do not exist, alone and beside charges of others.
func TestAReturnMakesNoCell(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, db := openUnmigrated(t, url), pool(t, url)
	rows := func() (n int) {
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM headgate_cells").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	bucket, log := takeOne("b", "none", hourly), takeOne("l", "none", logged)
	backs := []law.Op{law.Back(&bucket, &law.Outcome{}, 1), law.Back(&log, &law.Outcome{EntryNumber: 1}, 1)}
	for _, out := range apply(t, s, backs...) {
		if out.Granted != 0 || out.Used != 0 || out.Clock == 0 || out.State != (law.State{}) {
			t.Errorf("to a cell that does not exist: %+v", out)
		}
	}
	if n := rows(); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
	take := takeOne("b", "used", hourly)
	out := apply(t, s, take)[0]
	again := takeOne("b", "none", hourly)
	again.Group = 1
	backs = append(backs, law.Back(&take, &out, 400))
	outs := apply(t, s, append(backs, again)...)
	if outs[2].Granted != 400 || outs[2].State.Level != 600 || outs[2].State.Prev != 400 || outs[3].Granted != 1 {
		t.Errorf("%+v", outs)
	}
	if n := rows(); n != 2 {
		t.Errorf("%d rows, want those of two charges", n)
	}
}

// TestInTxGivesBackWhatWasChargedSinceItBegan returns a charge in a transaction whose snapshot is older than the
// charge.
func TestInTxGivesBackWhatWasChargedSinceItBegan(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, db := openUnmigrated(t, url), pool(t, url)
	tx := beginTx(t, db)
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM headgate_cells").Scan(&n); err != nil {
		t.Fatal(err)
	}
	for _, p := range []law.Params{hourly, logged} {
		op := takeOne("l", fmt.Sprint(p.Kind), p)
		out := apply(t, s, op)[0]
		got := apply(t, mysql.New(db, nil).InTx(tx), law.Back(&op, &out, 400))[0]
		if got.Granted != 400 || got.Used != 600 {
			t.Errorf("%+v", got)
		}
	}
}

// TestReturnsUnderLoad charges and returns at once, beside returns to a cell that others make and reset: in the end the
// level must be the charges that were kept.
func TestReturnsUnderLoad(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openUnmigrated(t, url)
	returnsUnderLoad(t, s, s)
}

func TestGaleraReturnsUnderLoad(t *testing.T) {
	urls := dbtest.Galera(t)
	returnsUnderLoad(t, openAt(t, urls[0]+"?wsrep_sync_wait=15"), openAt(t, urls[1]))
}

func returnsUnderLoad(t *testing.T, stores ...*mysql.Store) {
	const callers, rounds = 6, 25
	limits := []law.Params{hourly, logged}
	var kept [2]atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			ask := func(ops ...law.Op) []law.Outcome {
				outs := make([]law.Outcome, len(ops))
				if err := stores[c%len(stores)].Apply(context.Background(), ops, outs); err != nil {
					t.Error(err)
				}
				return outs
			}
			for round := range rounds {
				var ops []law.Op
				for i, p := range limits {
					p.Capacity = 1_000_000
					op := takeOne(fmt.Sprint("l", i), "hot", p)
					op.Group = uint32(i)
					ops = append(ops, op)
				}
				if c%2 == 0 {
					slices.Reverse(ops)
				}
				outs := ask(ops...)
				backs := make([]law.Op, 0, 3)
				for i := range ops {
					backs = append(backs, law.Back(&ops[i], &outs[i], 400))
				}
				come := takeOne("l9", "come and go", hourly)
				backs = append(backs, law.Back(&come, &law.Outcome{}, 1))
				if come.Group = 2; round%3 == c%3 {
					come.Verb = law.Reset
					backs = append(backs, come)
				}
				outs = ask(backs...)
				for i := range ops {
					kept[ops[i].Params.Kind/law.Log].Add(1000 - outs[i].Granted)
				}
			}
		})
	}
	wg.Wait()
	for i, p := range limits {
		p.Capacity = 1_000_000
		op := takeOne(fmt.Sprint("l", i), "hot", p)
		op.Verb = law.Check
		out := apply(t, stores[0], op)[0]
		if want := kept[i].Load(); out.State.Level != want || want > callers*rounds*1000*9/10 {
			t.Errorf("%+v: %d are in use, %d were kept", p, out.State.Level, want)
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
			t.Errorf("the entries make %d, in use are %d", sum, out.State.Level)
		}
	}
}
