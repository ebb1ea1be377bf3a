package law

// A reservation is a charge beyond the capacity: up to a ceiling that says how
// long its holder is ready to wait. What is above the capacity has to drain
// before it may start; so each holder has a start of its own, in the order in
// which they came.

// Ceiling returns the level up to which to admit what may start within wait
// microseconds. It is for cells of the bucket law with an anchor of their own.
func (p *Params) Ceiling(wait int64) int64 {
	steps := max(wait, 0) / p.Step
	if steps > (Max-p.Capacity)/p.Drain {
		return Max
	}
	return p.Capacity + steps*p.Drain
}

// MostReserved is the largest charge that may start later than at its decision.
// A start is put off to the end of a step; one that needs nearly the whole
// capacity would find the cell empty before it, and what would have drained
// since then, less than a step, would pass too much.
func (p *Params) MostReserved() int64 { return p.Capacity - (p.Drain - 1) }

// StartAt returns when a charge that op made with the outcome out may start: at
// its decision, or when what is above the capacity has drained.
func StartAt(op *Op, out *Outcome) int64 {
	now := max(out.Clock, out.State.At)
	if op.Params.Kind != Bucket || out.Used <= op.Params.Capacity {
		return now
	}
	return max(now, op.after(out.State.At, out.Used-op.Params.Capacity))
}
