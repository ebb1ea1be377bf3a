package law_test

import (
	"github.com/headgate/headgate/internal/testing/cells"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// rounds returns how often a long test repeats: n/10 times with make test.
func rounds(n uint64) uint64 { return tier.Pick(n/10, n, 10*n) }

// cell is a cell as a store keeps it.
type cell struct {
	cells.Cell
	last int64 // number of an entry
}

// apply applies one op at a time.
func (c *cell) apply(op law.Op, now int64) law.Outcome {
	op.Now = now
	return c.batch(op)[0]
}

// batch applies ops as one batch, and does the store's part of the work.
func (c *cell) batch(ops ...law.Op) []law.Outcome {
	if c.Receipts == nil {
		c.Receipts = map[string]law.Receipt{}
	}
	record, records := c.Record(), make([]*law.Record, len(ops))
	for i := range ops {
		if records[i] = record; ops[i].Cell.Limit == "" {
			ops[i].Cell.Limit = "l"
		}
	}
	outs := make([]law.Outcome, len(ops))
	law.Apply(ops, outs, 0, records)
	c.Write(record, &c.last)
	for i := range outs {
		record.Number(&outs[i])
	}
	return outs
}

func take(p law.Params, credits int64) law.Op {
	return law.Op{Verb: law.Take, Params: p, Cost: credits, Count: 1}
}
