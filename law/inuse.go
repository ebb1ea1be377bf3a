package law

// InUse returns how many credits of the op's limit a cell has in use at the store's time clock. It reads only Params
// and Window of the op. For a cell with a log it is an upper bound: it still counts entries that have expired since the
// cell was last written, because only the log itself would tell.
func (s State) InUse(op *Op, clock int64) int64 {
	d := rebase(s, op, clock)
	if d.Over > 0 {
		return d.Over
	}
	return d.use(op, noLog{}).x
}

// Params returns parameters with which InUse works for a cell whose limit is not known. The result is that of the
// limit, except for a bucket that takes several steps to drain: the parameters have the smallest possible drain, so the
// result is up to one drain too high, or higher if credits were given back.
func (s State) Params() Params {
	p := Params{Kind: s.Kind, Unit: s.Unit, Step: s.Step}
	p.Capacity = p.Highest()
	if s.Kind == Bucket {
		// A window forgets all at once, at EmptyAt, which is one step away, or as far as the calendar says.
		p.Capacity, p.Drain = max(s.Level, 1), Max
		if wait := s.EmptyAt - s.At; s.Level > 0 && s.Step > 0 && wait > s.Step && wait%s.Step == 0 {
			p.Drain = ceilDiv(s.Level, wait/s.Step)
		}
	}
	return p
}
