package storetest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// oracle is package law over the plainest of stores.
type oracle struct {
	cells  map[law.Cell]*law.Record
	logs   map[law.Cell]*ledger
	number int64 // of the last entry
}

func newOracle() *oracle {
	return &oracle{cells: map[law.Cell]*law.Record{}, logs: map[law.Cell]*ledger{}}
}

func (o *oracle) apply(ops []law.Op, outs []law.Outcome) {
	records := make([]*law.Record, len(ops))
	for i := range ops {
		id := ops[i].Cell
		if o.cells[id] == nil {
			o.logs[id] = &ledger{}
			o.cells[id] = &law.Record{Log: o.logs[id]}
		}
		records[i] = o.cells[id]
	}
	law.Apply(ops, outs, T0, records)
	for i, r := range records {
		l := o.logs[ops[i].Cell]
		if r.Clear {
			l.list = nil
		}
		for _, low := range r.Lower {
			l.list[slices.IndexFunc(l.list, func(e law.Entry) bool { return e.Number == low.Number })].Cost -= low.Credits
		}
		r.Clear, r.Lower = false, nil
		for n := range r.Add {
			if r.Add[n].Number == 0 {
				o.number++
				r.Add[n].Number = o.number
				l.list = append(l.list, r.Add[n])
			}
		}
		if n := outs[i].Entry; n > 0 {
			outs[i].Entry = r.Add[n-1].Number
		}
	}
	for _, r := range records {
		r.Dirty, r.Gone, r.Add = false, false, nil
	}
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

// generator makes random batches: groups, repeated keys, limits that change,
// a clock that steps back and forth.
type generator struct {
	*rand.Rand
	now  int64
	keys []string

	charged []receipt // some of what was admitted lately, for returns
}

// receipt is an admitted charge, with the numbers that the oracle and the
// store have given to its entry in the log.
type receipt struct {
	op     law.Op
	out    law.Outcome
	number int64
}

func newGenerator(seed uint64, o *Options) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), now: T0, keys: []string{"x", "y", "z"}}
	if o.GroupsOnTrial {
		g.keys = g.keys[:1]
	}
	return g
}

// steady limits keep their parameters, "changing" has any of them.
var steady = []law.Params{
	{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1, Drain: 1},
	{Kind: law.Bucket, Unit: 7000, Capacity: 35000, Step: 1000, Drain: 3, Block: 5000},
	{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: 20000, Drain: law.Max},
	{Kind: law.Bucket, Anchor: law.Calendar, Unit: 1000, Capacity: 5000, Step: 20000, Drain: law.Max},
	{Kind: law.Bucket, Unit: 86_400_000_000, Capacity: 864_000_000_000, Step: 1, Drain: 100_001},
	{Kind: law.Window, Unit: 1000, Capacity: 5000, Step: 10000},
	{Kind: law.Window, Unit: 10, Capacity: 50, Step: 3_000_000},
	{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 10000},
	{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 10000, History: 50000, Block: 3000},
}

func (g *generator) batch() []law.Op {
	var ops []law.Op
	verbs := []law.Verb{law.Take, law.Take, law.Take, law.Take, law.Take, law.Check, law.Block, law.Reset}
	if len(g.charged) > 0 {
		verbs = append(verbs, law.Return, law.Return)
	}
	for group := range 1 + g.IntN(4) {
		verb, size := verbs[g.IntN(len(verbs))], 1
		if g.IntN(3) == 0 {
			size = 1 + g.IntN(3)
		}
		changed := steady[g.IntN(len(steady))]
		if verb == law.Return {
			for range size {
				ops = append(ops, g.back(uint32(group+1)))
			}
			continue
		}
		for range size {
			limit, p := "changing", changed
			if g.IntN(2) == 0 {
				n := g.IntN(len(steady))
				limit, p = string(rune('a'+n)), steady[n]
			}
			ops = append(ops, g.op(verb, uint32(group+1), limit, p, size == 1))
		}
	}
	return ops
}

func (g *generator) op(verb law.Verb, group uint32, limit string, p law.Params, alone bool) law.Op {
	op := law.Op{
		Verb: verb, Group: group, Params: p,
		Cell: law.Cell{Limit: limit, Key: g.keys[g.IntN(len(g.keys))]},
		Cost: 1 + g.Int64N(3*p.Unit), Count: 1 + g.Int64N(3),
		Partial: alone && g.IntN(3) == 0,
	}
	if g.IntN(8) == 0 {
		op.Ceiling = p.Capacity * 3
	}
	if verb == law.Block {
		op.TTL, op.Reason = g.Int64N(3)*10000, "because"
	}
	g.setTime(&op)
	return op
}

// back returns an op that gives back some or all of a charge. Its Entry is the
// oracle's, and translated before the store is asked.
func (g *generator) back(group uint32) law.Op {
	r := &g.charged[g.IntN(len(g.charged))]
	op := law.Back(&r.op, &r.out, 1+g.Int64N(r.op.Cost*r.out.Granted))
	op.Group = group
	g.setTime(&op)
	return op
}

// remember keeps receipts of what a batch has admitted.
func (g *generator) remember(ops []law.Op, got, want []law.Outcome) {
	for i := 0; i < len(ops); {
		j, admitted := law.GroupEnd(ops, i), ops[i].Verb == law.Take
		for k := i; k < j; k++ {
			admitted = admitted && !want[k].Stale && want[k].Err == nil && want[k].Granted > 0 && (want[k].Granted == ops[k].Count || ops[k].Partial)
		}
		for k := i; k < j && admitted; k++ {
			g.charged = append(g.charged, receipt{ops[k], want[k], got[k].Entry})
		}
		i = j
	}
	g.charged = g.charged[max(0, len(g.charged)-12):]
}

// number returns the store's number of an entry.
func (g *generator) number(entry int64) int64 {
	for _, r := range g.charged {
		if r.out.Entry == entry {
			return r.number
		}
	}
	return 0
}

func (g *generator) setTime(op *law.Op) {
	switch g.IntN(120) {
	case 0:
		g.now -= 3_000_000 + g.Int64N(30_000_000)
	case 1:
		g.now += g.Int64N(30_000_000)
	case 2, 3, 4, 5, 6, 7, 8, 9:
		g.now -= g.Int64N(30000)
	default:
		g.now += g.Int64N(4000)
	}
	op.Now = g.now
	b := op.Now - op.Now%20000
	op.Bounds = [4]int64{b - 20000, b, b + 20000, b + 40000}
	if g.IntN(20) == 0 { // a node that believes in another month
		op.Bounds = [4]int64{b - 60000, b - 50000, b - 40000, b - 30000}
	}
}

// model compares random histories with package law, bit by bit.
func model(t *testing.T, s store.Store, opt *Options) {
	seed := newSeed()
	g, o := newGenerator(seed, opt), newOracle()
	for round := range opt.Histories {
		ops := g.batch()
		want := make([]law.Outcome, len(ops))
		o.apply(ops, want)
		for i := range ops {
			if ops[i].Entry > 0 {
				ops[i].Entry = g.number(ops[i].Entry)
			}
		}
		got := apply(t, s, ops...)
		compare(t, ops, got, want)
		g.remember(ops, got, want)
		if t.Failed() {
			t.Fatalf("in batch %d of seed %d", round, seed)
		}
	}
}

// batches compares batches with the same groups asked one by one, on two sets
// of cells of one store.
func batches(t *testing.T, s store.Store, opt *Options) {
	seed := newSeed()
	g := newGenerator(seed, opt)
	for round := range 100 {
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
		if t.Failed() {
			t.Fatalf("in batch %d of seed %d", round, seed)
		}
	}
}

// compare compares outcomes; numbers of entries are a store's own.
func compare(t *testing.T, ops []law.Op, got, want []law.Outcome) {
	t.Helper()
	for i := range ops {
		g, w := got[i], want[i]
		if (g.Entry != 0) != (w.Entry != 0) || (g.Err != nil) != (w.Err != nil) {
			t.Errorf("op %d %+v:\n got %+v\nwant %+v", i, ops[i], g, w)
		}
		g.Entry, w.Entry, g.Err, w.Err = 0, 0, nil, nil
		if g != w {
			t.Errorf("op %d %+v:\n got %+v\nwant %+v", i, ops[i], g, w)
		}
	}
}
