package law

// The return rule: how much of a charge can be given back without letting more
// pass than the limit allows. To give everything back would: what was charged
// has drained a part already, and others were admitted in the meantime because
// of it. The cell keeps the sum that was returned to it, so that two who return
// do not count the same drain twice. In a window nothing drains before its end: all of a charge
// can be given back until then, whatever others return. A reset forgets that sum: what was charged
// before it should not be returned after it.

// Back returns the op that gives back credits of a charge that op made with the
// outcome out. Credits are at least 1 and at most what was charged; or less than
// 0, and charged in addition.
func Back(op *Op, out *Outcome, credits int64) Op {
	back := Op{
		Verb: Return, Group: op.Group, Cell: op.Cell, Params: op.Params, Window: op.Window, Now: op.Now,
		Cost: credits, Count: 1,
	}
	back.of(out)
	return back
}

// of says which charge is to be corrected: that with the outcome out.
func (op *Op) of(out *Outcome) {
	switch op.Params.Kind {
	case Bucket:
		op.Level, op.At, op.Returned = out.State.Level, out.State.At, out.State.Prev
	case Window:
		op.At = out.State.At
	case Log:
		op.EntryNumber = out.EntryNumber
	}
}

// correct applies an op of verb Return. Outcome.Granted is how many credits were
// given back, or less than 0: were charged in addition, whatever the level. A
// window, and an entry of a log, is corrected as long as it counts.
func (r *Record) correct(op *Op, clock int64) Outcome {
	s := r.State
	now := max(clock, s.At)
	out := Outcome{State: s, Clock: clock}
	if op.stale(now) {
		return Outcome{State: s, Clock: now, Stale: true}
	}
	n := op.Cost * op.Count
	if s.Kind == 0 && n < 0 { // empty for so long that it was swept
		s.Kind, s.Unit, s.Step = op.Params.Kind, op.Params.Unit, op.Params.Step
	}
	if !s.of(&op.Params) {
		return out // reset, or the limit was changed
	}
	if now >= s.EmptyAt {
		s.Level, s.Prev = 0, 0
	}
	var u usage
	switch s.Kind {
	case Bucket:
		u.x, u.t = s.inUse(op, now)
		switch {
		case n > 0:
			// A cell that could not keep the sum any more would forget who has
			// returned what: so would one that was swept before the end of a charge
			// that may still be returned. Therefore EmptyAt does not come nearer.
			if out.Granted = min(op.undrained(&s, u.x, now), u.x); s.Prev > Max-out.Granted {
				out.Granted = 0
			}
			if !op.Params.window() {
				s.Prev += out.Granted
			}
		case !op.over(now):
			out.Granted = max(n, u.x-Max)
		}
	case Window:
		u.win = window(&s, &op.Params, now)
		u.x = u.win.carry + u.win.level
		if w := op.Params.Step; op.At-op.At%w == u.win.start {
			out.Granted = max(min(n, u.win.level), u.win.level-(maxWindow-1))
			u.win.level -= out.Granted
		}
	case Log:
		log := r.ledger()
		u.x = logged(&s, now, log)
		if cost, expires := log.Entry(op.EntryNumber); expires > now {
			if out.Granted = max(min(n, cost, u.x), u.x-Max); out.Granted != 0 {
				r.lower(op.EntryNumber, out.Granted, expires)
			}
		}
	}
	u.x -= out.Granted
	out.Used = u.x
	if out.Granted == 0 {
		return out
	}
	empty := s.EmptyAt
	u.charge(op, &s, now)
	if s.Kind == Log || s.Kind == Bucket && out.Granted > 0 {
		s.EmptyAt = empty
	}
	r.State, r.Dirty = s, true
	out.State = s
	return out
}

// of reports whether a cell was charged last by the definition p of its limit.
func (s *State) of(p *Params) bool {
	return s.Kind == p.Kind && s.Unit == p.Unit && (p.Kind == Log || s.Step == p.Step)
}

// over reports whether a charge was made in a window that has ended: of a bucket
// that each step empties.
func (op *Op) over(now int64) bool {
	if op.Params.Anchor == Own && op.Params.Drain < op.Params.Capacity {
		return false
	}
	x, _ := bucket(1, op.At, op, max(now, op.At))
	return x == 0
}

// undrained returns how much of a charge to a bucket can be given back: what has
// not drained of the level that it made, less what was returned since. While the
// level is above the capacity nobody starts, but each waiter has a start
// already: then it is what later charges leave of it.
func (op *Op) undrained(s *State, x, now int64) int64 {
	if op.At > now { // the clock was set back, and the cell has followed: what has drained is not known
		return 0
	}
	unused := op.Cost * op.Count
	left, _ := bucket(op.Level, op.At, op, now)
	returned := max(0, s.Prev-op.Returned)
	if p := &op.Params; x > p.Capacity && !p.window() {
		// A start is put off to the end of a step. Of a charge that needs nearly the
		// whole capacity, what drains within that step stays.
		return max(0, min(unused, p.Capacity-(p.Drain-1))-max(0, x-left+returned))
	}
	return min(unused, max(0, left-returned))
}

// lower takes credits from an entry of the log.
func (r *Record) lower(number, credits, expires int64) {
	if number > 0 {
		r.Lower = append(r.Lower, Lowered{Number: number, Credits: credits, ExpiresAt: expires})
		return
	}
	e := &r.Add[-number-1] // of this batch
	if e.Cost -= credits; e.Cost == 0 {
		e.ExpiresAt = 0
	}
}
