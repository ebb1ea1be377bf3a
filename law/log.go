package law

// The log law: an exact sliding window. The cell is the lock and carries the
// running sum of what counts; the entries carry the detail. An entry counts
// while now < ExpiresAt.

// logged returns the credits in use at now. From EmptyAt on nothing counts,
// whatever the sum says: so a sum whose entries were swept heals itself.
func logged(s *State, now int64, log Ledger) int64 {
	if now >= s.EmptyAt || s.Level == 0 {
		return 0
	}
	return max(0, s.Level-log.Sum(s.At, now))
}

// entry returns what a decision at now writes into the log.
func (op *Op) entry(now, credits int64, granted bool) Entry {
	e := Entry{ID: op.ID, At: now, KeepUntil: now + op.Params.History, Cost: credits, Granted: granted}
	if granted {
		e.ExpiresAt = now + op.Params.Step
		e.KeepUntil = max(e.KeepUntil, e.ExpiresAt)
	}
	return e
}
