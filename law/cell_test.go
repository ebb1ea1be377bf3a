package law_test

import (
	"slices"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// rounds is how often a long test tries something: a tenth of n with make test.
func rounds(n uint64) uint64 { return tier.Pick(n/10, n, 10*n) }

// cell is a state with its log, as a store would keep it.
type cell struct {
	rec  law.Record
	log  ledger
	last int64 // number of an entry
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
	best := int64(law.Never)
	for _, e := range l.list {
		if e.Granted && e.ExpiresAt > after && e.ExpiresAt < best && l.Sum(after, e.ExpiresAt) >= need {
			best = e.ExpiresAt
		}
	}
	return best
}

func (l *ledger) Entry(number int64) (credits, expiresAt int64) {
	for _, e := range l.list {
		if e.Number == number && e.Granted && e.Cost > 0 {
			return e.Cost, e.ExpiresAt
		}
	}
	return 0, 0
}

// apply applies one op at a time.
func (c *cell) apply(op law.Op, now int64) law.Outcome {
	op.Now = now
	return c.batch(op)[0]
}

// batch applies ops at once, and does what the law leaves to the store.
func (c *cell) batch(ops ...law.Op) []law.Outcome {
	records := make([]*law.Record, len(ops))
	for i := range ops {
		if records[i] = &c.rec; ops[i].Cell.Limit == "" {
			ops[i].Cell.Limit = "l"
		}
	}
	c.rec.Log = &c.log
	outs := make([]law.Outcome, len(ops))
	law.Apply(ops, outs, 0, records)
	if c.rec.Clear {
		c.log.list = nil
	}
	at := func(number int64) *law.Entry {
		return &c.log.list[slices.IndexFunc(c.log.list, func(e law.Entry) bool { return e.Number == number })]
	}
	for _, n := range c.rec.Renew {
		at(n.Number).ExpiresAt = n.To
	}
	for _, low := range c.rec.Lower {
		at(low.Number).Cost -= low.Credits
	}
	for i := range c.rec.Add {
		c.last++
		c.rec.Add[i].Number = c.last
		c.log.list = append(c.log.list, c.rec.Add[i])
	}
	for i := range outs {
		c.rec.Number(&outs[i])
	}
	c.rec.Clear, c.rec.Renew, c.rec.Lower, c.rec.Add, c.rec.Dirty, c.rec.Gone = false, nil, nil, nil, false, false
	return outs
}

func take(p law.Params, credits int64) law.Op {
	return law.Op{Verb: law.Take, Params: p, Cost: credits, Count: 1}
}
