package law

// renew lets an entry count for another Step from now, and never for less than it did: its
// holder may have acquired it by a longer Step. Outcome.Granted is 0 if it counts no more.
func (r *Record) renew(op *Op, clock int64) Outcome {
	s := &r.State
	now := max(clock, s.At)
	out := Outcome{Clock: clock}
	if s.of(&op.Params) { // else reset, or the limit was changed
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
