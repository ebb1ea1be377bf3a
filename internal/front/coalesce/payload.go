package coalesce

import (
	"context"
	"errors"
	"slices"

	"github.com/headgate/headgate/internal/flight"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// payload has the ops of a caller, which are adjacent groups, or one op of one cell that several callers share.
type payload struct {
	ops    []law.Op
	outs   []law.Outcome // of ops, when the batch has come back
	shared bool          // others may share the op
	ranks  int           // callers who shared it, also those that left
	left   []int         // ranks of the callers that left before departure
	late   []int         // ranks of those that left later: what they are granted is to be given back

	contexts []context.Context // of callers, if somebody wants to know
}

// queue is callers who wait for batches.
type queue = flight.Queue[law.Cell, *payload]

// Size implements flight.Load.
func (p *payload) Size() int { return len(p.ops) }

// Keys implements flight.Load.
func (p *payload) Keys() int { return len(p.ops) }

// Key implements flight.Load: the cell of an op.
func (p *payload) Key(i int) law.Cell { return p.ops[i].Cell }

// Clear implements flight.Load.
func (p *payload) Clear() {
	clear(p.ops) // they hold strings
	clear(p.outs)
	clear(p.contexts)
	*p = payload{
		ops: p.ops[:0], outs: p.outs[:0], left: p.left[:0], late: p.late[:0], contexts: p.contexts[:0],
	}
}

// load makes it the payload of one caller.
func (p *payload) load(ops []law.Op) {
	p.ops = append(p.ops, ops...)
	p.shared, p.ranks = shareable(ops), 1
}

// shareable reports whether callers of an op may share it: it is one plain
// question, whose answers differ in nothing but their order. An attempt that
// goes into a history, is held, starts later or has an ID is one of its own.
func shareable(ops []law.Op) bool {
	op := &ops[0]
	return len(ops) == 1 && (op.Verb == law.Take || op.Verb == law.Check) && op.Alone() && op.Count == 1 &&
		!op.Partial && op.Params.History == 0 && !op.Params.Leased
}

// share lets another caller share the op, if it asks the same, and returns its rank.
func (p *payload) share(op *law.Op) (rank int, ok bool) {
	a := &p.ops[0]
	if !p.shared || a.Verb != op.Verb || a.Cost != op.Cost || a.Now != op.Now || a.Ceiling != op.Ceiling ||
		a.Params != op.Params || a.Window != op.Window || a.From != op.From || a.Until != op.Until ||
		int64(p.ranks) >= law.Max/op.Cost { // together they are a charge that the laws can count
		return 0, false
	}
	p.ranks++
	return p.ranks - 1, true
}

// depart turns an op that is shared into a count.
func (p *payload) depart() {
	if n := p.ranks - len(p.left); n > 1 && p.ops[0].Verb == law.Take {
		p.ops[0].Count, p.ops[0].Partial = int64(n), true
	}
}

// failed reports whether each of the ops has an error of its own. Of a store that
// failed, only that stands: an outcome without an Err is no decision, whatever is in it.
func (p *payload) failed() bool {
	return !slices.ContainsFunc(p.outs, func(o law.Outcome) bool { return o.Err == nil })
}

// held reports whether nothing was done for it, since somebody else holds a cell of each of
// its groups. So it can be asked again as a whole.
func (p *payload) held() bool {
	free := func(o law.Outcome) bool { return !errors.Is(o.Err, store.ErrHeld) }
	return len(p.outs) > 0 && !slices.ContainsFunc(p.outs, free)
}

// answer copies the outcomes of the caller of a rank. Of a shared op, grants go to those
// who came first.
func (p *payload) answer(rank int, outs []law.Outcome) {
	copy(outs, p.outs)
	if !p.shared || !p.ops[0].Partial {
		return
	}
	turn := int64(rank)
	for _, left := range p.left {
		if left < rank {
			turn--
		}
	}
	outs[0] = law.Split(&p.ops[0], &p.outs[0], turn)
}

// giveBack appends the returns of what the caller of a rank was granted, who has left.
func (p *payload) giveBack(rank int, back []law.Op) []law.Op {
	outs := make([]law.Outcome, len(p.ops))
	p.answer(rank, outs)
	if p.shared {
		// They were decided at the same instant: any of them may have been last.
		outs[0].State = p.outs[0].State
	}
	for i, j := 0, law.GroupEnd(p.ops, 0); i < len(p.ops); i, j = j, law.GroupEnd(p.ops, j) {
		// One with an ID is asked again under it, and must have been charged then.
		granted := p.ops[i].Verb == law.Take && p.ops[i].ID == ""
		for k := i; k < j; k++ {
			full := p.ops[k].Count
			if p.shared {
				full = 1
			}
			granted = granted && outs[k].Err == nil && !outs[k].Stale && outs[k].Granted > 0 &&
				(outs[k].Granted == full || p.ops[k].Partial)
		}
		for k := i; granted && k < j; k++ {
			op := law.Back(&p.ops[k], &outs[k], outs[k].Granted*p.ops[k].Cost)
			op.Group = uint32(len(back) + 1)
			back = append(back, op)
		}
	}
	return back
}
