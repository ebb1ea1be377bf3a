package law

// The return rule says how much of a charge can be given back without letting more pass than the limit allows. To give
// back all of it would let more pass: a part of it has already drained, which has let others be admitted since. The
// cell keeps the sum of all returned credits (State.Prev), so that two returns do not count the same drain twice. In a
// window nothing drains before its end: until then all of a charge can be given back, whatever else was returned. A
// reset forgets that sum: charges from before a reset should not be returned after it.

// Back returns the op that gives back credits of the charge that op made with the outcome out. credits is from 1 up to
// the amount charged; or less than 0, to charge that many more.
func Back(op *Op, out *Outcome, credits int64) Op {
	back := Op{
		Verb: Return, Group: op.Group, Cell: op.Cell, Params: op.Params, Window: op.Window, Now: op.Now,
		Cost: credits, Count: 1,
	}
	back.setCharge(out)
	return back
}

// setCharge makes op one that corrects the charge with the outcome out.
func (op *Op) setCharge(out *Outcome) {
	switch op.Params.Kind {
	case Bucket:
		op.Level, op.At, op.Returned = out.State.Level, out.State.At, out.State.Prev
	case Window:
		op.At = out.State.At
	case Log:
		op.EntryNumber = out.EntryNumber
	}
}

// correct applies an op of verb Return, or of Settle. Outcome.Granted is how many credits were given back, or less than
// 0: charged in addition, whatever the level. Entries of a log can be corrected as long as they count, a sliding window
// until it ends.
func (r *Record) correct(op *Op, clock int64) Outcome {
	s := r.State
	now := max(clock, s.At)
	out := Outcome{State: s, Clock: clock}
	if op.isStale(now) {
		return Outcome{State: s, Clock: now, Stale: true}
	}
	n := op.Cost * op.Count
	if s.Kind == 0 && n < 0 { // the cell was empty for so long that it was swept
		s.Kind, s.Unit, s.Step = op.Params.Kind, op.Params.Unit, op.Params.Step
	}
	if !s.isOf(&op.Params) {
		return out // the cell was reset, or the limit was changed
	}
	if now >= s.EmptyAt {
		s.Level, s.Prev = 0, 0
	}
	var u usage
	switch s.Kind {
	case Bucket:
		u.x, u.t = s.bucketInUse(op, now)
		switch {
		case n > 0:
			// The sum Prev must stay exact: nothing is given back if it would exceed Max. EmptyAt does not come nearer
			// (see below): a cell swept before the end of a charge that may still be returned would forget the sum.
			if out.Granted = min(op.undrained(&s, u.x, now), u.x); s.Prev > Max-out.Granted {
				out.Granted = 0
			}
			if !op.Params.isFixedWindow() {
				s.Prev += out.Granted
			}
		case !op.over(now):
			out.Granted = max(n, u.x-Max)
		}
	case Window:
		u.win = countersAt(&s, &op.Params, now)
		u.x = u.win.carry + u.win.level
		if w := op.Params.Step; op.At-op.At%w == u.win.start {
			out.Granted = max(min(n, u.win.level), u.win.level-(windowLevelEnd-1))
			u.win.level -= out.Granted
		}
	case Log:
		log := r.ledger()
		u.x = logInUse(&s, now, log)
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

// isOf reports whether the cell was last charged by the definition p of its limit.
func (s *State) isOf(p *Params) bool {
	return s.Kind == p.Kind && s.Unit == p.Unit && (p.Kind == Log || s.Step == p.Step)
}

// over reports whether the charge that op corrects was made in a window that has ended. It is always false for buckets
// of the anchor Own that drain in several steps.
func (op *Op) over(now int64) bool {
	if op.Params.Anchor == Own && op.Params.Drain < op.Params.Capacity {
		return false
	}
	x, _ := bucket(1, op.At, op, max(now, op.At))
	return x == 0
}

// undrained returns how much of the charge that op corrects can be given back to a bucket with x credits in use: the
// undrained part of the level after the charge, less the credits returned since. While the level is above the capacity
// nobody starts, but each waiter has a start already: then it is the part that later charges do not need.
func (op *Op) undrained(s *State, x, now int64) int64 {
	if op.At > now { // the clock was set back, and the cell has followed: the drain since is not known
		return 0
	}
	unused := op.Cost * op.Count
	left, _ := bucket(op.Level, op.At, op, now)
	returned := max(0, s.Prev-op.Returned)
	if p := &op.Params; x > p.Capacity && !p.isFixedWindow() {
		// A start is put off to the end of a step. So a charge that needs nearly the whole capacity keeps the credits
		// that drain within that step.
		return max(0, min(unused, p.Capacity-(p.Drain-1))-max(0, x-left+returned))
	}
	return min(unused, max(0, left-returned))
}

// lower takes credits from an entry of the log, or adds them if they are less than 0.
func (r *Record) lower(number, credits, expires int64) {
	if number > 0 {
		r.Lower = append(r.Lower, Lowered{Number: number, Credits: credits, ExpiresAt: expires})
		return
	}
	e := &r.Add[-number-1] // an entry of this batch
	if e.Cost -= credits; e.Cost == 0 {
		e.ExpiresAt = 0
	}
}
