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
	ops        []law.Op
	outs       []law.Outcome // outcomes of ops, when the batch has come back
	shared     bool          // other callers may share the op, see shareable
	ranks      int           // number of callers so far, also those that left; a caller's rank is its index
	leftBefore []int         // ranks of the callers that left before departure
	leftAfter  []int         // ranks of the callers that left later, whose grants are to be given back

	contexts []context.Context // contexts of the callers, for Config.Context
}

// queue holds callers who wait for batches.
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
		ops: p.ops[:0], outs: p.outs[:0], contexts: p.contexts[:0],
		leftBefore: p.leftBefore[:0], leftAfter: p.leftAfter[:0],
	}
}

// shareable reports whether several callers may share an op: it must be one take or check, so that the answers depend
// only on the order. An attempt that goes into a history, is a lease, starts later or has an ID cannot be shared.
func shareable(ops []law.Op) bool {
	op := &ops[0]
	return len(ops) == 1 && (op.Verb == law.Take || op.Verb == law.Check) && op.Alone() && op.Count == 1 &&
		!op.Partial && op.Params.History == 0 && !op.Params.Leased
}

// addCaller adds a caller with the same op, and returns its rank. ok is false if the op differs.
func (p *payload) addCaller(op *law.Op) (rank int, ok bool) {
	a := &p.ops[0]
	if !p.shared || a.Verb != op.Verb || a.Cost != op.Cost || a.Now != op.Now || a.Ceiling != op.Ceiling ||
		a.Params != op.Params || a.Window != op.Window || a.From != op.From || a.Until != op.Until ||
		int64(p.ranks) >= law.Max/op.Cost { // the sum of the costs must not overflow
		return 0, false
	}
	p.ranks++
	return p.ranks - 1, true
}

// mergeCallers turns a shared take into one op with a count, of the callers that have not left.
func (p *payload) mergeCallers() {
	if n := p.ranks - len(p.leftBefore); n > 1 && p.ops[0].Verb == law.Take {
		p.ops[0].Count, p.ops[0].Partial = int64(n), true
	}
}

// allFailed reports whether each of the ops has an error of its own. If the store has failed, only these errors count:
// an outcome without an Err is no decision, whatever is in it.
func (p *payload) allFailed() bool {
	return !slices.ContainsFunc(p.outs, func(o law.Outcome) bool { return o.Err == nil })
}

// allHeld reports whether nothing was done, since another client holds a cell of each group. It can be sent again.
func (p *payload) allHeld() bool {
	free := func(o law.Outcome) bool { return !errors.Is(o.Err, store.ErrHeld) }
	return len(p.outs) > 0 && !slices.ContainsFunc(p.outs, free)
}

// copyAnswer copies the outcomes for the caller with a rank. The first callers get the grants of a shared op.
func (p *payload) copyAnswer(rank int, outs []law.Outcome) {
	copy(outs, p.outs)
	if !p.shared || !p.ops[0].Partial {
		return
	}
	index := int64(rank) // among the callers that were sent
	for _, left := range p.leftBefore {
		if left < rank {
			index--
		}
	}
	outs[0] = law.Split(&p.ops[0], &p.outs[0], index)
}

// appendReturns appends the ops that give back the grants of the caller with a rank, who has left.
func (p *payload) appendReturns(rank int, back []law.Op) []law.Op {
	outs := make([]law.Outcome, len(p.ops))
	p.copyAnswer(rank, outs)
	if p.shared {
		// The callers were decided at the same instant: any of them may have been the last.
		outs[0].State = p.outs[0].State
	}
	for i, j := 0, law.AlternativeEnd(p.ops, 0); i < len(p.ops); i, j = j, law.AlternativeEnd(p.ops, j) {
		// A caller repeats a request with an ID under the same ID, and the charge must remain for that.
		granted := p.ops[i].Verb == law.Take && p.ops[i].ID == ""
		for k := i; k < j; k++ {
			requested := p.ops[k].Count
			if p.shared {
				requested = 1
			}
			granted = granted && outs[k].Err == nil && !outs[k].Stale && outs[k].Granted > 0 &&
				(outs[k].Granted == requested || p.ops[k].Partial)
		}
		for k := i; granted && k < j; k++ {
			op := law.Back(&p.ops[k], &outs[k], outs[k].Granted*p.ops[k].Cost)
			op.Group = uint32(len(back) + 1)
			back = append(back, op)
		}
	}
	return back
}
