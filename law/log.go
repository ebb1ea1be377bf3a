package law

// The log law: an exact sliding window. The cell is what a store locks; its level is the sum of the entries that count.
// An entry counts while now < ExpiresAt.

// logInUse returns the credits in use at now. From EmptyAt on nothing counts, whatever the level is: so a level whose
// entries were swept corrects itself.
func logInUse(s *State, now int64, log Ledger) int64 {
	if now >= s.EmptyAt || s.Level == 0 {
		return 0
	}
	return max(0, s.Level-log.Sum(s.At, now))
}

// entry returns the entry that a decision at now appends to the log.
func (op *Op) entry(now, credits int64, granted bool) Entry {
	e := Entry{ID: op.ID, At: now, KeepUntil: now + op.Params.History, Cost: credits, Granted: granted}
	if granted {
		e.ExpiresAt = now + op.Params.Step
		e.KeepUntil = max(e.KeepUntil, e.ExpiresAt)
	}
	return e
}
