package law

// The return rule: how much of a charge can be given back without letting more
// pass than the limit allows. To give everything back would: what was charged
// has drained a part already, and others were admitted in the meantime because
// of it. The cell keeps the sum that was ever returned to it, so that two who
// return do not count the same drain twice.

// Back returns the op that gives back credits of a charge that op made with the
// outcome out. Credits are at least 1 and at most what was charged.
func Back(op *Op, out *Outcome, credits int64) Op {
	back := Op{
		Verb: Return, Group: op.Group, Cell: op.Cell, Params: op.Params, Bounds: op.Bounds, Now: op.Now,
		Cost: credits, Count: 1,
	}
	switch op.Params.Kind {
	case Bucket:
		back.End, back.Returned = out.State.EmptyAt, out.State.Prev
	case Window:
		back.End = out.State.At
	case Log:
		back.Entry = out.Entry
	}
	return back
}

// giveBack applies an op of verb Return. Outcome.Granted is how many credits
// were given back.
func (r *Record) giveBack(op *Op, clock int64) Outcome {
	s := r.State
	now := max(clock, s.At)
	out := Outcome{State: s, Clock: clock}
	if op.stale(now) {
		return Outcome{State: s, Clock: now, Stale: true}
	}
	if s.Kind != op.Params.Kind || s.Unit != op.Params.Unit {
		return out // reset, or the limit was changed
	}
	var u usage
	switch s.Kind {
	case Bucket:
		u.x, u.t = bucket(&s, op, now)
		out.Granted = min(op.undrained(&s, u.x, now), u.x)
		s.Prev = min(Max, s.Prev+out.Granted)
	case Window:
		u.win = window(&s, &op.Params, now)
		u.x = u.win.carry + u.win.level
		if w := op.Params.Step; op.End-op.End%w == u.win.start {
			out.Granted = min(op.Cost*op.Count, u.win.level)
			u.win.level -= out.Granted
		}
	case Log:
		log := r.ledger()
		u.x = logged(&s, now, log)
		if cost, expires := log.Entry(op.Entry); expires > now {
			out.Granted = min(op.Cost*op.Count, cost, u.x)
			r.Lower = append(r.Lower, Lowered{Number: op.Entry, Credits: out.Granted, ExpiresAt: expires})
		}
	}
	u.x -= out.Granted
	out.Used = u.x
	if out.Granted == 0 {
		return out
	}
	empty := s.EmptyAt
	u.charge(op, &s, now)
	if s.Kind == Log {
		s.EmptyAt = empty
	}
	r.State, r.Dirty = s, true
	out.State = s
	return out
}

// undrained returns how much of a charge to a bucket can be given back: as much
// as drains until its end, which every return since then has brought nearer.
// From a level above the capacity, where nobody is admitted, it can also be all
// that has come after it leaves.
func (op *Op) undrained(s *State, x, now int64) int64 {
	p, unused := &op.Params, op.Cost*op.Count
	steps := op.stepsUntil(s, now)
	returned := max(0, s.Prev-op.Returned)
	var back int64
	if left := steps - ceilDiv(returned, p.Drain); left >= ceilDiv(unused, p.Drain) {
		back = unused
	} else if left > 0 {
		back = left * p.Drain
	}
	if x > p.Capacity {
		others := returned // charged since then
		if steps < ceilDiv(x, p.Drain) {
			others += x - steps*p.Drain
		}
		back = max(back, unused-others)
	}
	return back
}

// stepsUntil counts the steps of a bucket in (now, op.End].
func (op *Op) stepsUntil(s *State, now int64) int64 {
	p := &op.Params
	switch {
	case op.End <= now:
		return 0
	case p.Anchor == Own:
		return (op.End-s.At)/p.Step - (now-s.At)/p.Step
	case p.Anchor == Epoch:
		return op.End/p.Step - now/p.Step
	}
	return 1 // the windows of a calendar empty in one step
}
