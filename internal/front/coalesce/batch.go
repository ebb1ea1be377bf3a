package coalesce

import (
	"github.com/headgate/headgate/internal/flight"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// batch has the ops of the passengers of a flight, in the order of their arrival.
type batch struct {
	ops  []law.Op
	outs []law.Outcome
}

// gather copies the ops of passengers into the batch, and numbers their groups.
func (b *batch) gather(passengers []*flight.Passenger[law.Cell, *payload]) {
	b.ops = b.ops[:0]
	group := uint32(0)
	for _, p := range passengers {
		for i := range p.Load.ops {
			op := &p.Load.ops[i]
			if i == 0 || op.Group != p.Load.ops[i-1].Group {
				group++
			}
			b.ops = append(b.ops, *op)
			b.ops[len(b.ops)-1].Group = group
		}
	}
	b.outs = append(b.outs[:0], make([]law.Outcome, len(b.ops))...)
}

// scatter copies the outcomes to the passengers, and clears the batch for reuse.
func (b *batch) scatter(passengers []*flight.Passenger[law.Cell, *payload]) {
	start := 0
	for _, p := range passengers {
		n := len(p.Load.ops)
		p.Load.outs = append(p.Load.outs[:0], b.outs[start:start+n]...)
		start += n
	}
	clear(b.ops) // they hold strings
	store.Void(b.outs)
}
