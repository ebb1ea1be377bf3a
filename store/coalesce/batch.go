package coalesce

import (
	"slices"

	"github.com/headgate/headgate/law"
)

// batch is the batch of one flight. Callers who ask the same of a cell, one
// after another, share an op.
type batch struct {
	most    int // ops at which it is full
	ops     []law.Op
	outs    []law.Outcome
	slots   []slot           // of each op
	last    map[law.Cell]int // the last op on a cell
	group   uint32           // of the last op
	callers int              // that joined, also those that left
	left    []place          // who left after departure, and whose charges are to be given back
}

// slot says who shares an op.
type slot struct {
	callers int   // that joined, also those that left
	left    []int // ranks of the callers that left before departure
}

// place says where the ops of a caller are in a batch.
type place struct {
	first, n int
	rank     int // among the callers who share the op; -1: it is the caller's own
}

func (c *batch) Full() bool { return len(c.ops) >= c.most }

func (c *batch) Clear() {
	clear(c.ops) // they hold strings
	clear(c.outs)
	clear(c.slots)
	c.ops, c.outs, c.slots, c.left, c.group, c.callers = c.ops[:0], c.outs[:0], c.slots[:0], c.left[:0], 0, 0
	clear(c.last)
}

// shareable reports whether callers of an op may share it: it is one plain
// question, whose answers differ in nothing but their order. An attempt that
// goes into a history, is held, starts later or has an ID is one of its own.
func shareable(ops []law.Op) bool {
	op := &ops[0]
	return len(ops) == 1 && (op.Verb == law.Take || op.Verb == law.Check) && op.Alone() && op.Count == 1 &&
		!op.Partial &&
		op.Params.History == 0 && !op.Params.Leased
}

// same reports whether two shareable ops ask the same.
func same(a, b *law.Op) bool {
	return a.Verb == b.Verb && a.Cost == b.Cost && a.Now == b.Now && a.Ceiling == b.Ceiling &&
		a.Params == b.Params && a.Window == b.Window
}

// join adds the ops of a caller, which are adjacent groups.
func (c *batch) join(ops []law.Op) place {
	c.callers++
	shared := shareable(ops)
	if shared {
		if i, ok := c.last[ops[0].Cell]; ok && c.slots[i].callers > 0 && same(&c.ops[i], &ops[0]) &&
			int64(c.slots[i].callers) < law.Max/ops[0].Cost { // together they are a charge that the laws can count
			rank := c.slots[i].callers
			c.slots[i].callers++
			return place{first: i, n: 1, rank: rank}
		}
	}
	t := place{first: len(c.ops), n: len(ops), rank: -1}
	for i := range ops {
		if i == 0 || ops[i].Group != ops[i-1].Group {
			c.group++
		}
		c.last[ops[i].Cell] = len(c.ops)
		c.ops = append(c.ops, ops[i])
		c.ops[len(c.ops)-1].Group = c.group
		c.slots = append(c.slots, slot{})
	}
	if shared {
		t.rank = 0
		c.slots[t.first].callers = 1
	}
	return t
}

// leave takes a caller out before departure: its ops ask, and change nothing.
func (c *batch) leave(t place) {
	if t.rank >= 0 {
		s := &c.slots[t.first]
		if s.left = append(s.left, t.rank); len(s.left) < s.callers {
			return
		}
	}
	for i := t.first; i < t.first+t.n; i++ {
		switch op := &c.ops[i]; op.Verb {
		case law.Check:
		case law.Take:
			op.Verb, op.Deferred, op.ID = law.Check, false, ""
		default:
			*op = law.Op{
				Verb: law.Check, Group: op.Group, Cell: op.Cell, Params: op.Params, Cost: 1, Count: 1, Now: op.Now,
			}
		}
	}
}

// depart turns the ops that are shared into counts.
func (c *batch) depart() {
	c.outs = append(c.outs, make([]law.Outcome, len(c.ops))...)
	for i := range c.ops {
		if n := c.slots[i].callers - len(c.slots[i].left); n > 1 && c.ops[i].Verb == law.Take {
			c.ops[i].Count, c.ops[i].Partial = int64(n), true
		}
	}
}

// failed reports whether each of a caller's ops has an error of its own. Of a
// store that failed, only that stands: an outcome without an Err is no decision,
// whatever is in it.
func (c *batch) failed(t place) bool {
	return !slices.ContainsFunc(c.outs[t.first:t.first+t.n], func(o law.Outcome) bool { return o.Err == nil })
}

// answer copies the outcomes of a caller. Of a shared op, grants go to those
// who came first.
func (c *batch) answer(t place, outs []law.Outcome) {
	copy(outs, c.outs[t.first:t.first+t.n])
	op := &c.ops[t.first]
	if t.rank < 0 || !op.Partial {
		return
	}
	rank := int64(t.rank)
	for _, left := range c.slots[t.first].left {
		if left < t.rank {
			rank--
		}
	}
	outs[0] = law.Split(op, &c.outs[t.first], rank)
}

// giveBack appends the returns of what a caller who has left was granted.
func (c *batch) giveBack(t place, back []law.Op) []law.Op {
	outs := make([]law.Outcome, t.n)
	c.answer(t, outs)
	if t.rank >= 0 {
		// They were decided at the same instant: any of them may have been last.
		outs[0].State = c.outs[t.first].State
	}
	for i := 0; i < t.n; {
		ops := c.ops[t.first : t.first+t.n]
		j := law.GroupEnd(ops, i)
		// One with an ID is asked again under it, and must have been charged then.
		granted := ops[i].Verb == law.Take && ops[i].ID == ""
		for k := i; k < j; k++ {
			full := ops[k].Count
			if t.rank >= 0 {
				full = 1
			}
			granted = granted && outs[k].Err == nil && !outs[k].Stale && outs[k].Granted > 0 &&
				(outs[k].Granted == full || ops[k].Partial)
		}
		for k := i; granted && k < j; k++ {
			op := law.Back(&ops[k], &outs[k], outs[k].Granted*ops[k].Cost)
			op.Group = uint32(len(back) + 1)
			back = append(back, op)
		}
		i = j
	}
	return back
}
