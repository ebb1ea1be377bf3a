package law_test

import (
	"github.com/headgate/headgate/internal/testing/cells"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// rounds returns how often a long test repeats: n/10, n or 10n times, by the tier of the tests.
func rounds(n uint64) uint64 { return tier.Pick(n/10, n, 10*n) }

// cell is a cell as a store keeps it.
type cell struct {
	cells.Cell
	lastEntry int64 // the number of the newest entry in the log
}

// apply applies one op at the time now.
func (c *cell) apply(op law.Op, now int64) law.Outcome {
	op.Now = now
	return c.batch(op)[0]
}

// batch applies ops to the cell as one batch, and writes it as a store does.
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
	c.Write(record, &c.lastEntry)
	for i := range outs {
		record.SetEntryNumber(&outs[i])
	}
	return outs
}

func take(p law.Params, credits int64) law.Op {
	return law.Op{Verb: law.Take, Params: p, Cost: credits, Count: 1}
}
