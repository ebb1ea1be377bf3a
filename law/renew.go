package law

// renew lets an entry count until a Step from now. It never shortens the life of an entry, which may have been acquired
// with a longer Step. Outcome.Granted is 0 if the entry counts no more.
func (r *Record) renew(op *Op, clock int64) Outcome {
	s := &r.State
	now := max(clock, s.At)
	out := Outcome{Clock: clock}
	if s.isOf(&op.Params) { // else the cell was reset, or the limit was changed
		if credits, expires := r.ledger().Entry(op.EntryNumber); expires > now {
			out.Granted = 1
			if to := now + op.Params.Step; to > expires {
				r.Renew = append(r.Renew, Renewed{Number: op.EntryNumber, Credits: credits, From: expires, To: to})
				s.EmptyAt = max(s.EmptyAt, to)
				r.Dirty = true
			}
		}
	}
	out.State = *s
	return out
}
