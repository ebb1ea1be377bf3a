package law

// A reservation is a charge that may exceed the capacity, up to a ceiling that follows from how long its holder is
// ready to wait. The credits above the capacity have to drain before it may start; so each holder has its own start, in
// order of arrival. A request of several charges starts when the last of them may, and all count from that time:
// otherwise a cell that has room now could be full by then.

// Ceiling returns the level up to which to admit a charge that may start within wait microseconds. It is for limits of
// the bucket law with the anchor Own.
func (p *Params) Ceiling(wait int64) int64 {
	steps := max(wait, 0) / p.Step
	if steps > (Max-p.Capacity)/p.Drain {
		return Max
	}
	return p.Capacity + steps*p.Drain
}

// late sets when a deferred request may start that all its cells admit. A cell that has room before that start gets a
// higher level, as if it had been kept busy until then, so that all charges count from the start. late reports whether
// the levels can be represented; if not, the outcomes become those of a refusal.
func late(ops []Op, outs []Outcome, verdicts []Verdict, records []*Record) bool {
	own := make([]int64, len(ops)) // when each charge could start if it were the only one
	var start int64
	for i := range ops {
		own[i] = verdicts[i].Now
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
		if start > verdicts[i].Now && !out.raise(op, &verdicts[i], start, own[i], r.pending) {
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

// raise raises the level so that pending credits, those of the request on this cell so far, count from a start that
// lies ahead. own is when the charge could start by itself. raise reports whether the level can be represented.
func (out *Outcome) raise(op *Op, d *Verdict, start, own, pending int64) bool {
	p := &op.Params
	u := usage{x: out.Used, t: out.State.At}
	// The steps are rounded up: a cell that would be empty before the start, and begin its next step then, must not
	// have a lower level at any time after it.
	steps := ceilDiv(max(0, start-u.t), p.Step)
	if steps > (Max-pending)/p.Drain {
		return false
	}
	u.x = max(u.x, steps*p.Drain+pending)
	out.State = d.Base
	if start > own {
		// Earlier charges may no longer be part of the level, so none of them can be returned: the level may not fall
		// below what the reservation needs.
		out.State.Prev = min(out.State.Prev+out.Used, Max)
	}
	u.charge(op, &out.State, d.Now)
	out.Used = u.x
	return true
}
