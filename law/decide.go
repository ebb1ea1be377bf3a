package law

import "math/bits"

// clockSlack is the least step of the clock backwards, in microseconds, that
// makes a cell follow it. Nodes of one store whose clocks differ by less
// never heal each other's cells, and so mint nothing.
const clockSlack = 2_000_000

// HealAfter returns how far, in microseconds, the time of a cell may lie ahead
// of the clock before the cell is made to follow it.
func (p *Params) HealAfter() int64 { return max(p.DrainTime(), clockSlack) }

// Verdict is one op applied to one cell, before it is known whether the
// other charges of its request pass.
type Verdict struct {
	Outcome Outcome // State is the state with the charge applied

	// Base is the cell without the charge: what stays when the request is
	// refused. Moved says that it differs from what was stored and must be
	// written even then: the clock had run ahead and came back, the limit was
	// changed, or the refusal blocks the cell.
	Base  State
	Moved bool

	Now   int64 // the time used: the clock, but never before the cell's own
	Over  int64 // if not 0: credits in use under another definition, which this one must not forget; all is refused
	Clear bool  // first: entries already in the log count no more
	Carry int64 // then, if not 0: credits to be entered into the log in their place
}

// Decide applies a valid op of verb Take or Check to a cell. clock is the
// store's; pending are the credits that earlier charges of the same request
// have already put into s; log is the cell's ledger, read for the log law
// only.
func Decide(s State, op *Op, clock, pending int64, log Ledger) Verdict { //nolint:gocyclo // the whole law
	d := rebase(s, op, clock)
	if op.stale(d.Now) {
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
	var k int64
	if u.x <= ceiling && !blocked && d.Over == 0 {
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
		case d.Over > 0:
			out.RetryAt = d.Base.EmptyAt
		case u.x <= ceiling-need: // only a block is in the way
			out.RetryAt = d.Now
		default:
			out.RetryAt = u.retry(op, need, ceiling, &d, log)
			switch empty := d.Base.EmptyAt; { // see rebase
			case k > 0:
			case p.window():
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
		out.RetryAt = u.retry(op, one, p.Capacity, &d, log)
	}

	out.State = d.Base
	if k > 0 {
		u.charge(op, &out.State, d.Now)
	}
	d.Outcome = out
	return d
}

// DecidedAt returns the time that an op of verb Take or Check was decided for, in
// microseconds: the store's clock, but never before the cell's own time, which is
// ahead of it where the clock was set back a little. The time until a refused cost can
// pass is counted from Outcome.Clock, since the cell drains no further until the clock has
// reached its time; starts, and what passed in some interval, are counted by this.
func (op *Op) DecidedAt(out *Outcome) int64 {
	// a Check leaves a cell that is to be healed as it is
	if out.State.At <= out.Clock || out.State.At-out.Clock > op.Params.HealAfter() {
		return out.Clock
	}
	return out.State.At
}

// usage is the state of a cell at the time of a decision.
type usage struct {
	x   int64 // credits in use
	t   int64 // Bucket: the time x holds for
	win slid  // Window
}

// use brings the cell forward to the time of the decision.
func (d *Verdict) use(op *Op, log Ledger) (u usage) {
	switch p := &op.Params; p.Kind {
	case Bucket:
		u.x, u.t = d.Base.inUse(op, d.Now)
	case Window:
		u.win = window(&d.Base, p, d.Now)
		u.x = u.win.carry + u.win.level
	case Log:
		u.x = d.Carry
		if !d.Clear {
			u.x = logged(&d.Base, d.Now, log)
		}
	}
	return u
}

// retry returns the time at which need credits fit below ceiling if nobody
// else comes. They do not fit now, and need <= ceiling.
func (u *usage) retry(op *Op, need, ceiling int64, d *Verdict, log Ledger) int64 {
	over := u.x - (ceiling - need)
	switch op.Params.Kind {
	case Bucket:
		return op.after(u.t, over)
	case Window:
		return u.win.retry(&op.Params, need, ceiling)
	default:
		// What was granted just now, or carried over, is not in the ledger
		// yet; it expires last, unless the limit had a longer step before.
		return min(log.Freed(d.Now, over), max(d.Now+op.Params.Step, d.Base.EmptyAt))
	}
}

// charge writes the usage, the grant included, into the state.
func (u *usage) charge(op *Op, s *State, now int64) {
	p := &op.Params
	s.Step = p.Step
	switch p.Kind {
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
func rebase(s State, op *Op, clock int64) Verdict {
	p := &op.Params
	d := Verdict{Base: s}
	b := &d.Base
	if b.Kind == 0 {
		b.Kind, b.Unit, b.Step = p.Kind, p.Unit, p.Step
	}
	// Only At heals, never the level: healing the level as well would let
	// two nodes whose clocks differ mint without end.
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
		// What was used counts no longer than it would have without the
		// change. So a key that is requested by two definitions in turn, each
		// of which converts the cell, becomes empty all the same.
		// But a bucket forgets at EmptyAt what was returned to it. It must not do so
		// before each charge has drained by the definition that made it. A definition
		// that empties the bucket in one step, such as unlimited, is an exception.
		keeps := b.Prev > 0 && (b.Level == 0 || p.Kind == Bucket && p.Anchor != Calendar && p.Drain < p.Capacity)
		if empty := op.emptyAt(b, d.Now); healed || empty < b.EmptyAt && !keeps {
			b.EmptyAt = empty
		}
		if p.Kind == Log {
			// What the entries said no longer fits the level: one entry takes
			// their place.
			d.Clear, d.Carry = true, b.Level
		}
	}
	return d
}

// convert makes a cell that was charged under another definition of the limit one
// of p, and reports whether it was. What was used counts as used at the latest time
// at which it can have been.
//
// A cell in which more is in use than p could ever forget in one step, or count,
// stays as it is, unless it is healed: over is how much that is, in credits of p.
func (s *State) convert(p *Params, now int64, healed bool) (converted bool, over int64) {
	other := p.Kind == Bucket && s.Step != p.Step
	fold := s.Kind != p.Kind || p.Kind == Log && s.Unit != p.Unit || p.Kind == Window && s.Step != p.Step
	if !other && !fold && s.Unit == p.Unit {
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
	case other:
		// At is the start of the step in which the last charge was made.
		s.At = min(now, addSteps(s.At, 1, s.Step))
	}
	most := p.Highest()
	s.Level, s.Prev = min(level, most), rescale(s.Prev, s.Unit, p.Unit, most)
	if p.Kind == Bucket {
		// Nothing that was charged before can be returned: neither p nor the
		// earlier definition knows how much of it has drained.
		s.Prev = min(s.Prev+s.Level, Max)
	}
	s.Kind, s.Unit, s.Step = p.Kind, p.Unit, p.Step
	return true, 0
}

// perStep returns how many credits a cell of the limit forgets in a step at most.
func (p *Params) perStep() int64 {
	if p.Kind == Bucket {
		return min(p.Drain, p.Capacity)
	}
	return p.Capacity
}

// emptyAt returns when a cell of the op's limit, as of now, is empty if it is not
// charged again.
func (op *Op) emptyAt(s *State, now int64) int64 {
	p := &op.Params
	switch {
	case s.Level == 0 && (s.Prev == 0 || p.Kind == Bucket):
		return 0
	case p.Kind == Window:
		w := slid{prev: s.Prev, level: s.Level, start: now - now%p.Step}
		return w.emptyAt(p)
	case p.Kind == Log:
		return now + p.Step
	case p.Anchor == Calendar:
		return op.nextBound(now)
	}
	return p.after(s.At, s.Level)
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
