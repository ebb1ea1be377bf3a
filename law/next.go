package law

// NextAt returns when a cost of 1 fits into a cell if nobody else comes, or the whole capacity if that is less than 1,
// after an op was granted and left no room for it. used and retryAt are fields of the op's outcome, s is the state that
// the op left, and now the time for which it was decided. For a log, the outcome of an extension or a replay has no
// retryAt: NextAt then returns when all entries have expired.
func (p *Params) NextAt(s *State, used, now, retryAt int64) int64 {
	need := min(p.Unit, p.Capacity)
	switch {
	case p.Kind == Log && retryAt != 0:
		return retryAt
	case p.Kind == Window:
		c := countersAt(s, p, now)
		return c.fitsAt(p, need, p.Capacity)
	case p.Kind == Bucket && p.Anchor != Calendar && s.EmptyAt < Max:
		over := max(0, used-(p.Capacity-need)) // has to drain of used, all of which has drained at EmptyAt
		return s.EmptyAt - (ceilDiv(used, p.Drain)-ceilDiv(over, p.Drain))*p.Step
	}
	return s.EmptyAt
}
