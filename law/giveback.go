package law

// The return rule: how much of a charge can be given back without letting more
// pass than the limit allows. To give everything back would: what was charged
// has drained a part already, and others were admitted in the meantime because
// of it. The cell keeps the sum that was returned to it, so that two who return
// do not count the same drain twice. A reset forgets that sum: what was charged
// before it should not be returned after it.

// Back returns the op that gives back credits of a charge that op made with the
// outcome out. Credits are at least 1 and at most what was charged.
func Back(op *Op, out *Outcome, credits int64) Op {
	back := Op{
		Verb: Return, Group: op.Group, Cell: op.Cell, Params: op.Params, Bounds: op.Bounds, Now: op.Now,
		Cost: credits, Count: 1,
	}
	switch op.Params.Kind {
	case Bucket:
		back.Level, back.At, back.Returned = out.State.Level, out.State.At, out.State.Prev
	case Window:
		back.At = out.State.At
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
		// A cell that could not keep the sum any more would forget who has
		// returned what: so would one that was swept before the end of a charge
		// that may still be returned. Therefore EmptyAt does not come nearer.
		if out.Granted = min(op.undrained(&s, u.x, now), u.x); s.Prev > Max-out.Granted {
			out.Granted = 0
		}
		s.Prev += out.Granted
	case Window:
		u.win = window(&s, &op.Params, now)
		u.x = u.win.carry + u.win.level
		if w := op.Params.Step; op.At-op.At%w == u.win.start {
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
	if s.Kind != Window {
		s.EmptyAt = empty
	}
	r.State, r.Dirty = s, true
	out.State = s
	return out
}

// undrained returns how much of a charge to a bucket can be given back: what has
// not drained of the level that it made, less what was returned since. While the
// level is above the capacity nobody starts, but each who waits has a start
// already: then it is what those who came after it leave of it.
func (op *Op) undrained(s *State, x, now int64) int64 {
	unused := op.Cost * op.Count
	left, _ := bucket(&State{Level: op.Level, At: op.At}, op, max(now, op.At))
	returned := max(0, s.Prev-op.Returned)
	if x > op.Params.Capacity {
		return max(0, unused-max(0, x-left+returned))
	}
	return min(unused, max(0, left-returned))
}
