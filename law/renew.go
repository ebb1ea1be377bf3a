package law

// renew lets an entry count for another Step from now. Outcome.Granted is 0 if it
// counts no more.
func (r *Record) renew(op *Op, clock int64) Outcome {
	s := &r.State
	now := max(clock, s.At)
	out := Outcome{Clock: clock}
	if s.of(&op.Params) { // else reset, or the limit was changed
		if credits, expires := r.ledger().Entry(op.EntryNumber); expires > now {
			out.Granted = 1
			r.Renew = append(r.Renew, Renewed{
				Number: op.EntryNumber, Credits: credits, From: expires,
				To: now + op.Params.Step,
			})
			s.EmptyAt = max(s.EmptyAt, now+op.Params.Step)
			r.Dirty = true
		}
	}
	out.State = *s
	return out
}
