package storetest

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/testing/cells"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// oracle applies package law to cells in memory.
type oracle struct {
	cells     map[law.Cell]*cells.Cell
	lastEntry int64 // the number of the newest entry
}

func newOracle() *oracle { return &oracle{cells: map[law.Cell]*cells.Cell{}} }

// apply applies a batch to the cells in memory.
func (o *oracle) apply(ops []law.Op, outs []law.Outcome) {
	records, byCell := make([]*law.Record, len(ops)), map[law.Cell]*law.Record{}
	for i := range ops {
		c := ops[i].Cell
		if byCell[c] == nil {
			o.cells[c] = o.cells[c].Clone()
			byCell[c] = o.cells[c].Record()
		}
		records[i] = byCell[c]
	}
	law.Apply(ops, outs, T0, records)
	for c, r := range byCell {
		o.cells[c].Write(r, &o.lastEntry)
	}
	for i, r := range records {
		r.SetEntryNumber(&outs[i])
	}
}

// testModel compares n random batches with package law, bit by bit.
func testModel(t *testing.T, s store.Store, n int, opt *Options, batch func(*generator) []law.Op) {
	seed, o := tier.Seed(), newOracle()
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), now: T0, keys: []string{"x", "y", "z"}}
	if opt.GroupsOnTrial {
		g.keys = g.keys[:1]
	}
	for round := range n {
		ops := batch(g)
		want := make([]law.Outcome, len(ops))
		o.apply(ops, want)
		for i := range ops {
			if ops[i].EntryNumber > 0 {
				ops[i].EntryNumber = g.storeNumber(ops[i].EntryNumber)
			}
		}
		got := apply(t, s, ops...)
		if expectOutcomes(t, ops, got, want); t.Failed() {
			t.Fatalf("in batch %d of seed %d", round, seed)
		}
		g.addReceipts(ops, got, want)
	}
}

// expectOutcomes compares outcomes, except for the numbers of entries, which each store chooses.
func expectOutcomes(t *testing.T, ops []law.Op, got, want []law.Outcome) {
	t.Helper()
	for i := range ops {
		gotOut, wantOut := got[i], want[i]
		same := (gotOut.EntryNumber != 0) == (wantOut.EntryNumber != 0) && (gotOut.Err != nil) == (wantOut.Err != nil)
		for _, err := range []error{law.ErrInvalid, law.ErrReused, law.ErrUnknownID, law.ErrSettled} {
			same = same && errors.Is(gotOut.Err, err) == errors.Is(wantOut.Err, err)
		}
		gotOut.EntryNumber, wantOut.EntryNumber, gotOut.Err, wantOut.Err = 0, 0, nil, nil
		if !same || gotOut != wantOut {
			t.Errorf("op %d %+v:\n got %+v\nwant %+v", i, ops[i], got[i], want[i])
		}
	}
}
