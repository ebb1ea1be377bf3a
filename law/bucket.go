package law

import "math/bits"

// The bucket law: a level that drains by Drain credits each Step. Textbook
// names for the same thing: tokens = (Capacity - level) / Unit, theoretical
// arrival time = at + level / drain rate.

// bucket returns the credits x in use at now of a level as of a time at, and
// the time t that x holds for: the last step not after now.
func bucket(level, at int64, op *Op, now int64) (x, t int64) {
	p := &op.Params
	if p.Anchor != Calendar {
		return p.drained(level, at, now)
	}
	// The windows of a calendar empty in one step, so their unequal lengths
	// do not matter here.
	t = max(at, op.lastBound(now))
	return p.drain(level, min(t-at, 1)), t
}

// inUse applies before a cell is empty. In a window all of it counts until
// then, also if the windows were others when it was charged.
func (s *State) inUse(op *Op, now int64) (x, t int64) {
	p := &op.Params
	x, t = bucket(s.Level, s.At, op, now)
	if p.window() && s.Level > 0 {
		x = s.Level
		if p.Anchor == Own {
			t = s.At + div(now-s.At, p.Step)*p.Step
		}
	}
	return x, t
}

// window reports whether a bucket forgets all at once: each step empties it.
func (p *Params) window() bool {
	return p.Kind == Bucket && (p.Anchor == Calendar || p.Drain == Max)
}

// drained handles anchors without boundaries.
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

// drain returns what is left of a level after steps. The drain is
// bounded by the level and not by the capacity, so that a level forced above
// it drains too.
func (p *Params) drain(level, steps int64) int64 {
	hi, lo := bits.Mul64(uint64(steps), uint64(p.Drain)) // may pass Max
	if hi > 0 || lo >= uint64(level) {
		return 0
	}
	return level - int64(lo)
}

// after returns the time at which credits more than there are at t have
// drained.
func (op *Op) after(t, credits int64) int64 {
	if op.Params.Anchor == Calendar && credits > 0 {
		return op.nextBound(t)
	}
	return op.Params.after(t, credits)
}

// after handles anchors without boundaries.
func (p *Params) after(t, credits int64) int64 {
	if credits <= 0 {
		return t
	}
	if p.Anchor == Epoch {
		t -= t % p.Step
	}
	return addSteps(t, ceilDiv(credits, p.Drain), p.Step)
}

// lastBound returns the last window boundary not after now.
func (op *Op) lastBound(now int64) int64 {
	for i := 2; i > 0; i-- {
		if op.Window[i] <= now {
			return op.Window[i]
		}
	}
	return op.Window[0]
}

// nextBound returns the first window boundary after t.
func (op *Op) nextBound(t int64) int64 {
	for _, b := range op.Window {
		if b > t {
			return b
		}
	}
	return op.Window[3]
}

// stale reports whether now lies outside the boundaries of a calendar, or outside the time for
// which the parameters hold.
func (op *Op) stale(now int64) bool {
	return op.Params.Kind == Bucket && op.Params.Anchor == Calendar && (now < op.Window[0] || now >= op.Window[3]) ||
		now < op.From || op.Until != 0 && now >= op.Until
}

// DrainTime returns how long a full cell takes to empty, in microseconds, saturated at Max.
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

// addSteps returns t + steps*step, saturated at Max. None is negative.
func addSteps(t, steps, step int64) int64 {
	hi, lo := bits.Mul64(uint64(steps), uint64(step))
	if t >= Max || hi > 0 || lo > uint64(Max-t) {
		return Max
	}
	return t + int64(lo)
}

// ceilDiv divides rounding up; a is not negative, b is positive.
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

// div divides rounding down; a is not negative, b is positive. Many limits
// step by one, and a division is a good part of a decision.
func div(a, b int64) int64 {
	if b == 1 {
		return a
	}
	return int64(uint64(a) / uint64(b))
}
