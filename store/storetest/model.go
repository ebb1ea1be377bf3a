package storetest

import (
	"cmp"
	"errors"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// oracle is package law over the plainest of stores.
type oracle struct {
	cells  map[law.Cell]*law.Record
	logs   map[law.Cell]*ledger
	known  map[law.Cell]register
	number int64 // of the last entry
}

func newOracle() *oracle {
	return &oracle{cells: map[law.Cell]*law.Record{}, logs: map[law.Cell]*ledger{}, known: map[law.Cell]register{}}
}

func (o *oracle) apply(ops []law.Op, outs []law.Outcome) {
	records := make([]*law.Record, len(ops))
	for i := range ops {
		id := ops[i].Cell
		if o.cells[id] == nil {
			o.logs[id] = &ledger{}
			o.known[id] = register{}
			o.cells[id] = &law.Record{Log: o.logs[id], Receipts: o.known[id]}
		}
		records[i] = o.cells[id]
	}
	law.Apply(ops, outs, T0, records)
	for i, r := range records {
		o.write(r, o.logs[ops[i].Cell], o.known[ops[i].Cell])
		r.Number(&outs[i])
	}
	for _, r := range records {
		r.Add = nil
	}
}

// write does what the law left to the store, once for each record; Add stays, for
// the numbers.
func (o *oracle) write(r *law.Record, l *ledger, known register) {
	if r.Clear {
		l.list = nil
	}
	at := func(number int64) *law.Entry {
		return &l.list[slices.IndexFunc(l.list, func(e law.Entry) bool { return e.Number == number })]
	}
	for _, n := range r.Renew {
		at(n.Number).ExpiresAt = n.To
	}
	for _, low := range r.Lower {
		at(low.Number).Cost -= low.Credits
	}
	for n := range r.Add {
		if r.Add[n].Number == 0 {
			o.number++
			r.Add[n].Number = o.number
			l.list = append(l.list, r.Add[n])
		}
	}
	if r.Forget {
		clear(known)
	}
	for _, a := range r.Admit {
		r.Number(&a.Outcome)
		known[a.ID] = a
	}
	r.Dirty, r.Gone, r.Clear, r.Renew, r.Lower, r.Forget, r.Admit = false, false, false, nil, nil, false, nil
}

type register map[string]law.Receipt

func (r register) Receipt(id string) (law.Receipt, bool) {
	a, ok := r[id]
	return a, ok
}

type ledger struct{ list []law.Entry }

func (l *ledger) Sum(after, upto int64) (sum int64) {
	for _, e := range l.list {
		if e.Granted && e.ExpiresAt > after && e.ExpiresAt <= upto {
			sum += e.Cost
		}
	}
	return sum
}

func (l *ledger) Freed(after, need int64) int64 {
	list := slices.Clone(l.list)
	slices.SortFunc(list, func(a, b law.Entry) int { return cmp.Compare(a.ExpiresAt, b.ExpiresAt) })
	for _, e := range list {
		if e.Granted && e.ExpiresAt > after && l.Sum(after, e.ExpiresAt) >= need {
			return e.ExpiresAt
		}
	}
	return law.Never
}

func (l *ledger) Entry(number int64) (credits, expiresAt int64) {
	for _, e := range l.list {
		if e.Number == number && e.Granted && e.Cost > 0 {
			return e.Cost, e.ExpiresAt
		}
	}
	return 0, 0
}

// rounds does something with a number of states of a generator, until the test has failed.
func rounds(t *testing.T, n int, opt *Options, do func(g *generator)) {
	seed := tier.Seed()
	g := newGenerator(seed, opt)
	for round := range n {
		if do(g); t.Failed() {
			t.Fatalf("in batch %d of seed %d", round, seed)
		}
	}
}

// model compares random histories with package law, bit by bit.
func model(t *testing.T, s store.Store, opt *Options) {
	o := newOracle()
	rounds(t, opt.Histories, opt, func(g *generator) {
		ops := g.batch()
		want := make([]law.Outcome, len(ops))
		o.apply(ops, want)
		for i := range ops {
			if ops[i].EntryNumber > 0 {
				ops[i].EntryNumber = g.number(ops[i].EntryNumber)
			}
		}
		got := apply(t, s, ops...)
		compare(t, ops, got, want)
		g.remember(ops, got, want)
	})
}

// merged compares batches of plain charges with package law, bit by bit.
func merged(t *testing.T, s store.Store, opt *Options) {
	o := newOracle()
	rounds(t, opt.Histories/2, opt, func(g *generator) {
		ops := g.charges()
		want := make([]law.Outcome, len(ops))
		o.apply(ops, want)
		compare(t, ops, apply(t, s, ops...), want)
	})
}

// batches compares batches with the same groups asked one by one, on two sets
// of cells of one store.
func batches(t *testing.T, s store.Store, opt *Options) {
	rounds(t, min(opt.Histories/4, 100), opt, func(g *generator) {
		ops := g.batch()
		together := apply(t, s, ops...)
		for i := range ops {
			ops[i].Cell.Key += " alone"
		}
		alone := make([]law.Outcome, 0, len(ops))
		for i := 0; i < len(ops); {
			j := law.GroupEnd(ops, i)
			alone = append(alone, apply(t, s, ops[i:j]...)...)
			i = j
		}
		compare(t, ops, together, alone)
	})
}

// compare compares outcomes; numbers of entries are a store's own.
func compare(t *testing.T, ops []law.Op, got, want []law.Outcome) {
	t.Helper()
	for i := range ops {
		g, w := got[i], want[i]
		same := (g.EntryNumber != 0) == (w.EntryNumber != 0) && (g.Err != nil) == (w.Err != nil)
		for _, err := range []error{law.ErrInvalid, law.ErrReused, law.ErrUnknownID, law.ErrSettled} {
			same = same && errors.Is(g.Err, err) == errors.Is(w.Err, err)
		}
		g.EntryNumber, w.EntryNumber, g.Err, w.Err = 0, 0, nil, nil
		if !same || g != w {
			t.Errorf("op %d %+v:\n got %+v\nwant %+v", i, ops[i], got[i], want[i])
		}
	}
}
