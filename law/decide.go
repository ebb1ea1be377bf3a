package law

import "math/bits"

// clockSlack is the least step of the clock backwards, in microseconds, that
// makes a cell follow it. Nodes of one store whose clocks differ by less
// never heal each other's cells, and so mint nothing.
const clockSlack = 2_000_000

// HealAfter returns how far, in microseconds, the time of a cell may lie ahead
// of the clock before the cell is made to follow it.
func (p *Params) HealAfter() int64 { return max(p.drainTime(), clockSlack) }

// Decision is one op applied to one cell, before it is known whether the
// other charges of its request pass.
type Decision struct {
	Outcome Outcome // State is the state with the charge applied

	// Base is the cell without the charge: what stays when the request is
	// refused. Moved says that it differs from what was stored and must be
	// written even then: the clock had run ahead and came back, the limit was
	// changed, or the refusal blocks the cell.
	Base  State
	Moved bool

	Now   int64 // the time used: the clock, but never before the cell's own
	Clear bool  // first: entries already in the log count no more
	Carry int64 // then, if not 0: credits to be entered into the log in their place
}

// Decide applies a valid op of verb Take or Check to a cell. clock is the
// store's; pending are the credits that earlier charges of the same request
// have already put into s; log is the cell's ledger, read for the log law
// only.
func Decide(s State, op *Op, clock, pending int64, log Ledger) Decision {
	d := rebase(s, op, clock, log)
	if op.stale(d.Now) {
		return Decision{Base: s, Now: d.Now, Outcome: Outcome{State: s, Clock: d.Now, Stale: true}}
	}
	p := &op.Params
	if d.Clear {
		log = noLog{}
	}
	u := d.use(op, log)

	ceiling := p.Capacity
	if op.Ceiling > 0 {
		ceiling = op.Ceiling
	}
	if op.Late && op.Count*op.Cost > p.Capacity-pending { // would never start
		ceiling = 0
	}
	blocked := d.Base.BlockedUntil > d.Now
	var k int64
	if u.x <= ceiling && !blocked {
		k = min(op.Count, (ceiling-u.x)/op.Cost)
		if k < op.Count && !op.Partial {
			k = 0
		}
	}
	u.x += k * op.Cost
	u.win.level += k * op.Cost

	out := Outcome{Granted: k, Used: u.x, Clock: clock}
	if k < op.Count {
		need := op.Count * op.Cost
		if op.Partial {
			need = op.Cost // of the next one
		}
		switch {
		case need > ceiling-pending:
			out.RetryAt = Never
		case u.x <= ceiling-need: // only a block is in the way
			out.RetryAt = d.Now
		default:
			out.RetryAt = u.retry(op, need, ceiling, d.Now, log)
		}
		if p.Block > 0 && op.Verb == Take && !blocked && out.RetryAt != Never {
			d.Base.BlockedUntil = d.Now + p.Block
			d.Moved = true
		}
		out.RetryAt = max(out.RetryAt, d.Base.BlockedUntil)
	}

	out.State = d.Base
	if k > 0 {
		u.charge(op, &out.State, d.Now)
	}
	d.Outcome = out
	return d
}

// usage is what a law finds in a cell at the time of a decision.
type usage struct {
	x   int64 // credits in use
	t   int64 // Bucket: the time x holds for
	win slid  // Window
}

// use brings the cell forward to the time of the decision. A cell that
// empties later than was written, because its limit was changed, is marked so
// that it is not swept too early.
func (d *Decision) use(op *Op, log Ledger) (u usage) {
	var empty int64
	switch p := &op.Params; p.Kind {
	case Bucket:
		u.x, u.t = bucket(&d.Base, op, d.Now)
		if u.x > 0 {
			empty = op.after(u.t, u.x)
		}
	case Window:
		u.win = window(&d.Base, p, d.Now)
		u.x = u.win.carry + u.win.level
		empty = u.win.emptyAt(p)
	case Log:
		u.x = d.Carry
		if !d.Clear {
			u.x = logged(&d.Base, d.Now, log)
		}
	}
	if empty > d.Base.EmptyAt {
		d.Base.EmptyAt = empty
		d.Moved = true
	}
	return u
}

// retry returns the time at which need credits fit below ceiling if nobody
// else comes. They do not fit now, and need <= ceiling.
func (u *usage) retry(op *Op, need, ceiling, now int64, log Ledger) int64 {
	over := u.x - (ceiling - need)
	switch op.Params.Kind {
	case Bucket:
		return op.after(u.t, over)
	case Window:
		return u.win.retry(&op.Params, need, ceiling)
	default:
		// What was granted just now, or carried over, is not in the ledger
		// yet; it expires last.
		return min(log.Freed(now, over), now+op.Params.Step)
	}
}

// charge writes the usage, the grant included, into the state.
func (u *usage) charge(op *Op, s *State, now int64) {
	switch p := &op.Params; p.Kind {
	case Bucket:
		empty := op.after(u.t, u.x)
		if s.Prev > 0 { // not before the ends of all that were charged: see giveBack
			empty = max(empty, s.EmptyAt)
		}
		s.Level, s.At, s.EmptyAt = u.x, u.t, empty
	case Window:
		s.Prev, s.Level, s.At = u.win.prev, u.win.level, now
		s.EmptyAt = u.win.emptyAt(p)
	case Log:
		s.Level, s.At = u.x, now
		s.EmptyAt = max(s.EmptyAt, now+p.Step)
	}
}

// rebase returns the cell as the op's limit sees it: fresh, healed after a
// step of the clock, converted after a change of the limit.
func rebase(s State, op *Op, clock int64, log Ledger) Decision {
	p := &op.Params
	d := Decision{Base: s}
	b := &d.Base
	if b.Kind == 0 {
		b.Kind, b.Unit = p.Kind, p.Unit
	}
	converted := b.Kind != p.Kind || b.Unit != p.Unit

	// Only At heals, never the level: healing the level as well would let
	// two nodes whose clocks differ mint without end.
	healed := b.At-clock > p.HealAfter()
	if healed {
		b.At, b.EmptyAt = clock, 0 // EmptyAt is recomputed by use
	}
	d.Now = max(clock, b.At)

	if converted {
		level := b.Level
		if b.Kind != p.Kind || p.Kind == Log { // the tokens used are carried over
			if b.Kind == Window {
				level += b.Prev
			}
			if d.Now >= s.EmptyAt {
				level = 0
			}
			b.Prev, b.At, b.EmptyAt = 0, d.Now, 0
		}
		most := int64(Max)
		if p.Kind == Window {
			most = maxWindow - 1
		}
		b.Level = rescale(level, b.Unit, p.Unit, most)
		b.Prev = rescale(b.Prev, b.Unit, p.Unit, most)
		b.Kind, b.Unit = p.Kind, p.Unit
	}
	d.Moved = healed || converted
	if p.Kind == Log && d.Moved {
		// What the entries said no longer fits the level: one entry takes
		// their place, and counts for a whole window from now.
		d.Clear, d.Carry = true, b.Level
		b.EmptyAt = d.Now + p.Step
	}
	return d
}

// rescale converts credits of one unit into credits of another, rounded up
// and saturated at most.
func rescale(credits, from, to, most int64) int64 {
	hi, lo := bits.Mul64(uint64(credits), uint64(to))
	if hi >= uint64(from) {
		return most
	}
	q, r := bits.Div64(hi, lo, uint64(from))
	if r > 0 {
		q++
	}
	return int64(min(q, uint64(most)))
}
