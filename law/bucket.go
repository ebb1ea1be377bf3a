package law

// The bucket law: a level that drains by Drain credits each Step. Textbook
// names for the same thing: tokens = (Capacity - level) / Unit, theoretical
// arrival time = at + level / drain rate.

// bucket returns the credits x in use at now, and the time t that x holds
// for: the last step not after now. The drain is bounded by the stored level
// and not by the capacity, so that a level forced above it drains too.
func bucket(s *State, op *Op, now int64) (x, t int64) {
	p := &op.Params
	var steps int64
	switch p.Anchor {
	case Own:
		steps = (now - s.At) / p.Step
		t = s.At + steps*p.Step
	case Epoch:
		t = max(s.At, now-now%p.Step)
		steps = ceilDiv(t-s.At, p.Step)
	case Calendar:
		// The windows of a calendar empty in one step, so their unequal
		// lengths do not matter here.
		t = max(s.At, op.lastBound(now))
		if t > s.At {
			steps = 1
		}
	}
	if steps >= ceilDiv(s.Level, p.Drain) { // never multiply first
		if p.Anchor == Own {
			t = now // an empty cell has no phase
		}
		return 0, t
	}
	return s.Level - p.Drain*steps, t
}

// after returns the time at which credits more than there are at t have
// drained.
func (op *Op) after(t, credits int64) int64 {
	p := &op.Params
	if credits <= 0 {
		return t
	}
	switch p.Anchor {
	case Epoch:
		t -= t % p.Step
	case Calendar:
		return op.nextBound(t)
	}
	return addSteps(t, ceilDiv(credits, p.Drain), p.Step)
}

// lastBound returns the last window boundary not after now.
func (op *Op) lastBound(now int64) int64 {
	for i := 2; i > 0; i-- {
		if op.Bounds[i] <= now {
			return op.Bounds[i]
		}
	}
	return op.Bounds[0]
}

// nextBound returns the first window boundary after t.
func (op *Op) nextBound(t int64) int64 {
	for _, b := range op.Bounds {
		if b > t {
			return b
		}
	}
	return op.Bounds[3]
}

// stale reports whether now lies outside the boundaries of a calendar.
func (op *Op) stale(now int64) bool {
	return op.Params.Kind == Bucket && op.Params.Anchor == Calendar &&
		(now < op.Bounds[0] || now >= op.Bounds[3])
}

// drainTime is how long a full cell takes to empty, in microseconds,
// saturated at Max.
func (p *Params) drainTime() int64 {
	switch p.Kind {
	case Bucket:
		return addSteps(0, ceilDiv(p.Capacity, p.Drain), p.Step)
	case Window:
		return addSteps(0, 2, p.Step)
	default:
		return p.Step
	}
}

// addSteps returns t + steps*step, saturated at Max.
func addSteps(t, steps, step int64) int64 {
	if t >= Max || steps > (Max-t)/step {
		return Max
	}
	return t + steps*step
}

// ceilDiv divides rounding up; a is not negative, b is positive.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}
