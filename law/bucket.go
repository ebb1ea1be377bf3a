package law

import "math/bits"

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
	t = max(at, op.lastBound(now))
	return p.drain(level, min(t-at, 1)), t
}

// bucketInUse returns the credits x in use at now, and the time t that x holds for, of a cell before its EmptyAt.
// In a window all credits count until EmptyAt, even if the windows were different when the cell was charged.
func (s *State) bucketInUse(op *Op, now int64) (x, t int64) {
	p := &op.Params
	x, t = bucket(s.Level, s.At, op, now)
	if p.isWindow() && s.Level > 0 {
		x = s.Level
		if p.Anchor == Own {
			t = s.At + div(now-s.At, p.Step)*p.Step
		}
	}
	return x, t
}

// isWindow reports whether the limit is a fixed window: a bucket that each step empties, whatever its level.
func (p *Params) isWindow() bool {
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
		return op.nextBound(t)
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

// lastBound returns the last window boundary not after now, which must not be stale.
func (op *Op) lastBound(now int64) int64 {
	for i := 2; i > 0; i-- {
		if op.Window[i] <= now {
			return op.Window[i]
		}
	}
	return op.Window[0]
}

// nextBound returns the first window boundary after t, or the last one if none is.
func (op *Op) nextBound(t int64) int64 {
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
