package coalesce

import (
	"github.com/headgate/headgate/internal/flight"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// batch is the ops of the passengers of a flight, in the order in which they came.
type batch struct {
	ops  []law.Op
	outs []law.Outcome
}

// gather appends the ops of passengers, and numbers their groups.
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

// scatter gives the passengers their outcomes.
func (b *batch) scatter(passengers []*flight.Passenger[law.Cell, *payload]) {
	at := 0
	for _, p := range passengers {
		n := len(p.Load.ops)
		p.Load.outs = append(p.Load.outs[:0], b.outs[at:at+n]...)
		at += n
	}
	clear(b.ops) // they hold strings
	store.Void(b.outs)
}
