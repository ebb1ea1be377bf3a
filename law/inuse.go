package law

// InUse returns how many credits of the op's limit a cell has in use at the time
// clock of the store: what a Check at that time would find, without one. Of the op
// only Params and Bounds matter. Of a cell with a log it is at most that: what has
// expired since the cell was last written stands in the entries alone.
func (s State) InUse(op *Op, clock int64) int64 {
	d := rebase(s, op, clock)
	if d.Over > 0 {
		return d.Over
	}
	return d.use(op, noLog{}).x
}

// Params returns parameters by which a cell can be asked what is in use, for those
// who do not know its limit. The answers are those of the limit, but for a bucket
// that takes several steps to drain: of its drain the cell reports the least that it can
// be, so the answer is at most one drain too high; higher only where something was
// given back.
func (s State) Params() Params {
	p := Params{Kind: s.Kind, Unit: s.Unit, Step: s.Step}
	p.Capacity = p.Highest()
	if s.Kind == Bucket {
		// A window forgets all at once, at EmptyAt. It is one step away, or as far
		// as the calendar says.
		p.Capacity, p.Drain = max(s.Level, 1), Max
		if wait := s.EmptyAt - s.At; s.Level > 0 && s.Step > 0 && wait > s.Step && wait%s.Step == 0 {
			p.Drain = ceilDiv(s.Level, wait/s.Step)
		}
	}
	return p
}
