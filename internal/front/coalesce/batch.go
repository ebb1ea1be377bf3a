package coalesce

import (
	"github.com/headgate/headgate/internal/flight"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// batch is the ops of the parties of a flight, in the order in which they came.
type batch struct {
	ops  []law.Op
	outs []law.Outcome
}

// gather appends the ops of parties, and numbers their groups.
func (b *batch) gather(parties []*flight.Party[law.Cell, *party]) {
	b.ops = b.ops[:0]
	group := uint32(0)
	for _, p := range parties {
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

// scatter gives the parties their outcomes.
func (b *batch) scatter(parties []*flight.Party[law.Cell, *party]) {
	at := 0
	for _, p := range parties {
		n := len(p.Load.ops)
		p.Load.outs = append(p.Load.outs[:0], b.outs[at:at+n]...)
		at += n
	}
	clear(b.ops) // they hold strings
	store.Void(b.outs)
}
