package law

// A reservation is a charge beyond the capacity: up to a ceiling that says how
// long its holder is ready to wait. What is above the capacity has to drain
// before it may start; so each holder has a start of its own, in the order in
// which they came. A request of several charges starts when the last of them
// may, and all of them count from there: otherwise a cell that has room now
// could be full by then.

// Ceiling returns the level up to which to admit what may start within wait
// microseconds. It is for cells of the bucket law with an anchor of their own.
func (p *Params) Ceiling(wait int64) int64 {
	steps := max(wait, 0) / p.Step
	if steps > (Max-p.Capacity)/p.Drain {
		return Max
	}
	return p.Capacity + steps*p.Drain
}

// late settles when a deferred request may start that every cell of it admits, and
// raises the levels of cells that have room before that to what they have to be
// for all to count from then: as if they had been kept busy until the start. It
// reports whether the levels can be written down; if not, the outcomes are those
// of a refusal.
func late(ops []Op, outs []Outcome, decisions []Verdict, records []*Record) bool {
	own := make([]int64, len(ops)) // when each could start if it were alone
	var start int64
	for i := range ops {
		own[i] = decisions[i].Now
		if over := outs[i].Used - ops[i].Params.Capacity; over > 0 {
			own[i] = max(own[i], ops[i].Params.after(outs[i].State.At, over))
		}
		start = max(start, own[i])
		records[i].pending = 0
	}
	for i := range ops {
		op, out, r := &ops[i], &outs[i], records[i]
		r.pending += op.Count * op.Cost
		out.StartAt = start
		if start > decisions[i].Now && !out.raise(op, &decisions[i], start, own[i], r.pending) {
			out.Granted, out.RetryAt = 0, start
		}
	}
	for i := range outs {
		if outs[i].Granted == 0 {
			for k := range outs {
				outs[k].StartAt = 0
			}
			return false
		}
	}
	return true
}

// raise makes the level what it has to be for pending credits to count from a
// start that lies ahead. It reports whether that can be written down.
func (out *Outcome) raise(op *Op, d *Verdict, start, own, pending int64) bool {
	p := &op.Params
	u := usage{x: out.Used, t: out.State.At}
	// Rounded up: a cell that would be empty before the start, and begin its
	// next step then, must not seem emptier at any time after it.
	steps := ceilDiv(max(0, start-u.t), p.Step)
	if steps > (Max-pending)/p.Drain {
		return false
	}
	u.x = max(u.x, steps*p.Drain+pending)
	out.State = d.Base
	if start > own {
		// What was charged before may be part of the level no more, and the level
		// may not fall below that: nothing of it can be returned.
		out.State.Prev = min(out.State.Prev+out.Used, Max)
	}
	u.charge(op, &out.State, d.Now)
	out.Used = u.x
	return true
}
