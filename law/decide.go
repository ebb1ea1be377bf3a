package law

import "math/bits"

// clockSlack is how far at least, in microseconds, the clock may go back before a cell follows it. Servers of one store
// whose clocks differ by less never heal each other's cells, and so mint nothing.
const clockSlack = 2_000_000

// HealAfter returns how far, in microseconds, a cell's time may lie ahead of the clock before the cell is healed.
func (p *Params) HealAfter() int64 { return max(p.DrainTime(), clockSlack) }

// Verdict is the result of one op on one cell, before it is known whether the other charges of its request pass.
type Verdict struct {
	Outcome Outcome // State is the state with the charge applied

	// Base is the cell without the charge, which remains if the request is refused. Moved says that Base differs from
	// the stored state and must be written even then: the clock ran ahead and came back, the limit was changed, or the
	// refusal blocks the cell.
	Base  State
	Moved bool

	Now   int64 // time of the decision: the clock, but never before the cell's own time
	Over  int64 // if not 0: credits charged by another definition, too many to convert; everything is refused
	Clear bool  // the entries that are in the log stop counting
	Carry int64 // if not 0: credits of the one entry that replaces the cleared ones
}

// Decide applies a valid op of verb Take or Check to a cell. clock is op.Now or else the store's; pending are the
// credits that earlier charges of the same request have already put into s; log is the cell's ledger, for the log law.
func Decide(s State, op *Op, clock, pending int64, log Ledger) Verdict { //nolint:gocyclo // the whole law
	d := rebase(s, op, clock)
	if op.isStale(d.Now) {
		return Verdict{Base: s, Now: d.Now, Outcome: Outcome{State: s, Clock: d.Now, Stale: true}}
	}
	p := &op.Params
	if d.Clear {
		log = noLog{}
	}
	u := usage{x: d.Over}
	if d.Over == 0 {
		u = d.use(op, log)
	}

	ceiling := p.Capacity
	if op.Ceiling > 0 {
		ceiling = op.Ceiling
	}
	if op.Deferred && op.Count*op.Cost > p.Capacity-pending { // would never start
		ceiling = 0
	}
	blocked := d.Base.BlockedUntil > d.Now
	var granted int64
	if u.x <= ceiling && !blocked && d.Over == 0 {
		granted = min(op.Count, (ceiling-u.x)/op.Cost)
		if granted < op.Count && !op.Partial {
			granted = 0
		}
	}
	u.x += granted * op.Cost
	u.win.level += granted * op.Cost

	out := Outcome{Granted: granted, Used: u.x, Clock: clock}
	if granted < op.Count {
		need := op.Count * op.Cost
		if op.Partial {
			need = op.Cost // for the next of Count
		}
		switch {
		case need > ceiling-pending:
			out.RetryAt = Never
		case d.Over > 0:
			out.RetryAt = d.Base.EmptyAt
		case u.x <= ceiling-need: // only a block is in the way
			out.RetryAt = d.Now
		default:
			out.RetryAt = u.fitsAt(op, need, ceiling, &d, log)
			switch empty := d.Base.EmptyAt; { // see rebase
			case granted > 0:
			case p.isFixedWindow():
				out.RetryAt = empty
			default:
				out.RetryAt = min(out.RetryAt, empty)
			}
		}
		if p.Block > 0 && op.Verb == Take && !blocked && out.RetryAt != Never {
			d.Base.BlockedUntil = d.Now + p.Block
			d.Moved = true
		}
		out.RetryAt = max(out.RetryAt, d.Base.BlockedUntil)
	} else if one := min(p.Unit, p.Capacity); p.Kind == Log && op.Verb == Take && !op.extends && u.x > p.Capacity-one {
		out.RetryAt = u.fitsAt(op, one, p.Capacity, &d, log) // see Outcome.RetryAt
	}

	out.State = d.Base
	if granted > 0 {
		u.charge(op, &out.State, d.Now)
	}
	d.Outcome = out
	return d
}

// DecidedAt returns the time, in microseconds, for which an op of verb Take or Check was decided: the store's clock,
// but never before the cell's own time, which is ahead of the clock if that was set back a little. Starts, and what
// passes in an interval, are counted by this time. The wait until a refused cost can pass is counted from Outcome.Clock
// instead, since the cell drains no further until the clock has reached the cell's time.
func (op *Op) DecidedAt(out *Outcome) int64 {
	// A Check does not write a healed cell, so State.At can still be far ahead.
	if out.State.At <= out.Clock || out.State.At-out.Clock > op.Params.HealAfter() {
		return out.Clock
	}
	return out.State.At
}

// usage is the state of a cell at the time of a decision.
type usage struct {
	x   int64    // credits in use
	t   int64    // Bucket: the time x holds for
	win counters // Window
}

// use computes the usage of the cell at the time of the decision.
func (d *Verdict) use(op *Op, log Ledger) (u usage) {
	switch p := &op.Params; p.Kind {
	case Bucket:
		u.x, u.t = d.Base.bucketInUse(op, d.Now)
	case Window:
		u.win = countersAt(&d.Base, p, d.Now)
		u.x = u.win.carry + u.win.level
	case Log:
		u.x = d.Carry
		if !d.Clear {
			u.x = logInUse(&d.Base, d.Now, log)
		}
	}
	return u
}

// fitsAt returns when need credits fit below ceiling if nobody else comes. They do not fit now; need <= ceiling.
func (u *usage) fitsAt(op *Op, need, ceiling int64, d *Verdict, log Ledger) int64 {
	over := u.x - (ceiling - need)
	switch op.Params.Kind {
	case Bucket:
		return op.after(u.t, over)
	case Window:
		return u.win.fitsAt(&op.Params, need, ceiling)
	default:
		// Credits that were granted just now, or carried over, are not in the ledger yet; they expire last, unless the
		// limit had a longer step before.
		return min(log.Freed(d.Now, over), max(d.Now+op.Params.Step, d.Base.EmptyAt))
	}
}

// charge writes the usage, which includes the granted credits, into the state.
func (u *usage) charge(op *Op, s *State, now int64) {
	p := &op.Params
	s.Step = p.Step
	switch p.Kind {
	case Bucket:
		empty := op.after(u.t, u.x)
		if s.Prev > 0 { // never before earlier charges have drained: see correct
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

// rebase makes the cell one of the op's limit at the time of the decision: a fresh cell starts, one ahead of a clock
// that was set back is healed, and one charged under another definition of the limit is converted.
func rebase(s State, op *Op, clock int64) Verdict {
	p := &op.Params
	d := Verdict{Base: s}
	b := &d.Base
	if b.Kind == 0 {
		b.Kind, b.Unit, b.Step = p.Kind, p.Unit, p.Step
	}
	// Only At is healed, never the level: else two servers whose clocks differ would mint without end.
	healed := b.At-clock > p.HealAfter()
	if healed {
		b.At = clock
	}
	d.Now = max(clock, b.At)
	if !healed && d.Now >= b.EmptyAt {
		b.Level, b.Prev = 0, 0
	}
	var converted bool
	if converted, d.Over = b.convert(p, d.Now, healed); d.Over > 0 {
		// Entries of a log count until they expire, so it cannot be empty before.
		empty := addSteps(d.Now, ceilDiv(d.Over, p.perStep()), p.Step)
		if d.Over < Max && b.Kind != Log && empty < b.EmptyAt {
			b.EmptyAt, d.Moved = empty, true
		}
		return d
	}
	d.Moved = healed || converted
	if d.Moved {
		// Earlier charges count no longer than they would have without the change. So a key that two definitions charge
		// in turn, each converting the cell, becomes empty all the same.
		// But at EmptyAt a bucket forgets the sum returned to it (Prev). It must not do so before each charge has
		// drained by the definition that made it, unless the new one empties the bucket in one step, as unlimited does.
		keeps := b.Prev > 0 && (b.Level == 0 || p.Kind == Bucket && p.Anchor != Calendar && p.Drain < p.Capacity)
		if empty := op.emptyAt(b, d.Now); healed || empty < b.EmptyAt && !keeps {
			b.EmptyAt = empty
		}
		if p.Kind == Log {
			// The entries no longer add up to the level: one entry replaces them.
			d.Clear, d.Carry = true, b.Level
		}
	}
	return d
}

// convert converts a cell that was charged under another definition of the limit to p, and reports whether it had to.
// Earlier charges count as made at the latest time at which they can have been.
//
// A cell whose level exceeds what the law can count, or what a p that empties in one step admits, stays as it is,
// unless it is healed: over is then the level in credits of p.
func (s *State) convert(p *Params, now int64, healed bool) (converted bool, over int64) {
	stepChanged := p.Kind == Bucket && s.Step != p.Step
	// fold: the level becomes one sum that was charged now
	fold := s.Kind != p.Kind || p.Kind == Log && s.Unit != p.Unit || p.Kind == Window && s.Step != p.Step
	if !stepChanged && !fold && s.Unit == p.Unit {
		return false, 0
	}
	level := s.Level
	if fold && s.Kind == Window {
		level += s.Prev
	}
	level = rescale(level, s.Unit, p.Unit, Max)
	if !healed && (level >= Max || level > p.Capacity && p.perStep() == p.Capacity) {
		return false, level
	}
	switch {
	case fold:
		s.Prev, s.At = 0, now
	case stepChanged:
		// At is the start of the step in which the last charge was made.
		s.At = min(now, addSteps(s.At, 1, s.Step))
	}
	most := p.Highest()
	s.Level, s.Prev = min(level, most), rescale(s.Prev, s.Unit, p.Unit, most)
	if p.Kind == Bucket {
		// No earlier charge can be returned: neither p nor the earlier definition knows how much of it has drained.
		s.Prev = min(s.Prev+s.Level, Max)
	}
	s.Kind, s.Unit, s.Step = p.Kind, p.Unit, p.Step
	return true, 0
}

// perStep returns the most credits that a cell of the limit can forget in one step.
func (p *Params) perStep() int64 {
	if p.Kind == Bucket {
		return min(p.Drain, p.Capacity)
	}
	return p.Capacity
}

// emptyAt returns when a cell with the state s at now is empty if it is not charged again; 0 if it is empty already.
func (op *Op) emptyAt(s *State, now int64) int64 {
	p := &op.Params
	switch {
	case s.Level == 0 && (s.Prev == 0 || p.Kind == Bucket):
		return 0
	case p.Kind == Window:
		c := counters{prev: s.Prev, level: s.Level, start: now - now%p.Step}
		return c.emptyAt(p)
	case p.Kind == Log:
		return now + p.Step
	case p.Anchor == Calendar:
		return op.nextBoundary(now)
	}
	return p.after(s.At, s.Level)
}

// rescale converts credits of the unit from into credits of the unit to, rounded up, and at most the parameter most.
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
