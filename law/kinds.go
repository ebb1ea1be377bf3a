package law

import "math/bits"

// How the three kinds of cell count what they have in use: the bucket law, the window law and the log law; and the
// arithmetic of whole numbers that they share.

// The bucket law: a level that drains by Drain credits each Step. In textbook terms, tokens = (Capacity - level) / Unit
// and theoretical arrival time = at + level / drain rate.

// bucket drains a level that holds for the time at until now. It returns the credits x in use then, and the time t, not
// after now, that x holds for.
func bucket(level, at int64, op *Op, now int64) (x, t int64) {
	p := &op.Params
	if p.Anchor != Calendar {
		return p.drained(level, at, now)
	}
	// A calendar's window empties in one step, so unequal lengths do not matter here.
	t = max(at, op.lastBoundary(now))
	return p.drain(level, min(t-at, 1)), t
}

// bucketInUse returns the credits x in use at now, and the time t that x holds for, of a cell before its EmptyAt.
// In a fixed window all credits count until EmptyAt, even if the windows were different when the cell was charged.
func (s *State) bucketInUse(op *Op, now int64) (x, t int64) {
	p := &op.Params
	x, t = bucket(s.Level, s.At, op, now)
	if p.isFixedWindow() && s.Level > 0 {
		x = s.Level
		if p.Anchor == Own {
			t = s.At + div(now-s.At, p.Step)*p.Step
		}
	}
	return x, t
}

// isFixedWindow reports whether the limit is a fixed window: a bucket that each step empties, whatever its level.
func (p *Params) isFixedWindow() bool {
	return p.Kind == Bucket && (p.Anchor == Calendar || p.Drain == Max)
}

// drained drains a level from the time at until now, for the anchors Own and Epoch.
func (p *Params) drained(level, at, now int64) (x, t int64) {
	if p.Anchor == Epoch {
		t = max(at, now-now%p.Step)
		return p.drain(level, ceilDiv(t-at, p.Step)), t
	}
	steps := div(now-at, p.Step)
	if x = p.drain(level, steps); x == 0 {
		return 0, now // an empty cell has no phase
	}
	return x, at + steps*p.Step
}

// drain returns the level after steps. It is not capped at the capacity, so that a level above the capacity drains too.
func (p *Params) drain(level, steps int64) int64 {
	hi, lo := bits.Mul64(uint64(steps), uint64(p.Drain)) // the product may exceed Max
	if hi > 0 || lo >= uint64(level) {
		return 0
	}
	return level - int64(lo)
}

// after returns when so many credits have drained, counted from t.
func (op *Op) after(t, credits int64) int64 {
	if op.Params.Anchor == Calendar && credits > 0 {
		return op.nextBoundary(t)
	}
	return op.Params.after(t, credits)
}

// after returns when so many credits have drained, counted from t, for the anchors Own and Epoch.
func (p *Params) after(t, credits int64) int64 {
	if credits <= 0 {
		return t
	}
	if p.Anchor == Epoch {
		t -= t % p.Step
	}
	return addSteps(t, ceilDiv(credits, p.Drain), p.Step)
}

// lastBoundary returns the last window boundary not after now, which must not be stale.
func (op *Op) lastBoundary(now int64) int64 {
	for i := 2; i > 0; i-- {
		if op.Window[i] <= now {
			return op.Window[i]
		}
	}
	return op.Window[0]
}

// nextBoundary returns the first window boundary after t, or the last one if none is.
func (op *Op) nextBoundary(t int64) int64 {
	for _, b := range op.Window {
		if b > t {
			return b
		}
	}
	return op.Window[3]
}

// isStale reports whether now lies outside the calendar boundaries of op, or the time for which its parameters hold.
func (op *Op) isStale(now int64) bool {
	return op.Params.Kind == Bucket && op.Params.Anchor == Calendar && (now < op.Window[0] || now >= op.Window[3]) ||
		now < op.From || op.Until != 0 && now >= op.Until
}

// The window law: a sliding window counter. The credits of the previous window count in proportion to the part of it
// that still lies within the last Step microseconds. That part is counted in grains, of which a window has at most
// 2^20, and all is rounded up, so that the law never admits more than the exact proportion would.

// grains returns how a window of w microseconds is divided: into f grains of q microseconds, q being the smallest for
// which w/q is at most 2^20. If that does not divide a window of whole seconds, q is a millionth of the window: with a
// grain that divides the window, the law is exact at round times, such as half way through.
func grains(w int64) (q, f int64) {
	q = ceilDiv(w, 1<<20)
	if w%q != 0 && w%1_000_000 == 0 {
		q = w / 1_000_000
	}
	return q, w / q
}

// counters are the two counters of a sliding window at the time of a decision.
type counters struct {
	prev, level int64 // credits of the previous window, and of the present one
	start       int64 // start of the present window
	carry       int64 // credits that prev still counts for
}

// countersAt rolls the two counters of a cell forward to now.
func countersAt(s *State, p *Params, now int64) counters {
	w := p.Step
	c := counters{prev: s.Prev, level: s.Level, start: now - now%w}
	switch s.At - s.At%w {
	case c.start:
	case c.start - w:
		c.prev, c.level = s.Level, 0
	default:
		c.prev, c.level = 0, 0
	}
	q, f := grains(w)
	grainsLeft := min(f, ceilDiv(w-(now-c.start), q)) // of the previous window
	c.carry = ceilDiv(c.prev*grainsLeft, f)           // prev < 2^32, grainsLeft <= 2^20: the product fits
	return c
}

// emptyAt returns when both windows have stopped counting; 0 if neither counts now.
func (c *counters) emptyAt(p *Params) int64 {
	switch {
	case c.level > 0:
		return c.start + 2*p.Step
	case c.prev > 0:
		return c.start + p.Step
	}
	return 0
}

// fitsAt returns when need credits fit below ceiling if nobody else comes. They do not fit now; need <= ceiling.
func (c *counters) fitsAt(p *Params, need, ceiling int64) int64 {
	at, prev, level := c.start, c.prev, c.level
	if need > ceiling-level { // not within this window
		at, prev, level = c.start+p.Step, c.level, 0
	}
	if prev == 0 {
		return at
	}
	q, f := grains(p.Step)
	room := ceiling - level - need
	if room >= prev { // fits from the first instant of the window
		return at
	}
	// grainsLeft <= room*f/prev  <=>  time since at >= Step - q*(room*f div prev).
	// room < prev < 2^32 keeps the product within Max.
	return at + p.Step - q*(room*f/prev)
}

// ChargedState returns the state of a cell after a charge at the time at, and the credits in use then. The cell is
// plain or of the window law; level includes the charge, and prev is the previous window's credits, 0 for a bucket.
func (p *Params) ChargedState(level, prev, at int64) (s State, used int64) {
	if p.Kind != Window {
		return p.PlainState(level, at), level
	}
	s = State{Kind: Window, Level: level, Prev: prev, At: at, Unit: p.Unit, Step: p.Step}
	c := countersAt(&s, p, at)
	s.EmptyAt = c.emptyAt(p)
	return s, level + c.carry
}

// The log law: an exact sliding window. The cell is what a store locks; its level is the sum of the entries that count.
// An entry counts while now < ExpiresAt.

// logInUse returns the credits in use at now. From EmptyAt on nothing counts, whatever the level is: so a level whose
// entries were swept corrects itself.
func logInUse(s *State, now int64, log Ledger) int64 {
	if now >= s.EmptyAt || s.Level == 0 {
		return 0
	}
	return max(0, s.Level-log.Sum(s.At, now)) // the level contains entries that have expired since At
}

// entry returns the entry that a decision at now appends to the log.
func (op *Op) entry(now, credits int64, granted bool) Entry {
	e := Entry{ID: op.ID, At: now, KeepUntil: now + op.Params.History, Cost: credits, Granted: granted}
	if granted {
		e.ExpiresAt = now + op.Params.Step
		e.KeepUntil = max(e.KeepUntil, e.ExpiresAt)
	}
	return e
}

// DrainTime returns how long a full cell takes to empty at the longest, in microseconds, saturated at Max.
func (p *Params) DrainTime() int64 {
	switch p.Kind {
	case Bucket:
		return addSteps(0, ceilDiv(p.Capacity, p.Drain), p.Step)
	case Window:
		return addSteps(0, 2, p.Step)
	default:
		return p.Step
	}
}

// addSteps returns t + steps*step, saturated at Max. No argument is negative.
func addSteps(t, steps, step int64) int64 {
	hi, lo := bits.Mul64(uint64(steps), uint64(step))
	if t >= Max || hi > 0 || lo > uint64(Max-t) {
		return Max
	}
	return t + int64(lo)
}

// ceilDiv returns a/b rounded up; a is not negative, b is positive.
func ceilDiv(a, b int64) int64 {
	if b == 1 {
		return a
	}
	q := uint64(a) / uint64(b)
	if uint64(a)%uint64(b) > 0 {
		q++
	}
	return int64(q)
}

// div returns a/b rounded down; a is not negative, b is positive. It skips the division by 1: many limits have that
// step, and a division is a good part of a decision's time.
func div(a, b int64) int64 {
	if b == 1 {
		return a
	}
	return int64(uint64(a) / uint64(b))
}
