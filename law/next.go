package law

// NextAt returns when a cost of 1 fits into a cell if nobody else comes, after an op that was granted and left no room
// for it: used and retryAt are what its outcome says, s the state that it left, and now the time that it was decided
// for. Of a limit that lets less than 1 pass at once, it is when all of that fits. An outcome of a log has no retryAt
// if it is of an extension or a replay: NextAt then returns when all entries have expired.
func (p *Params) NextAt(s *State, used, now, retryAt int64) int64 {
	need := min(p.Unit, p.Capacity)
	switch {
	case p.Kind == Log && retryAt != 0:
		return retryAt
	case p.Kind == Window:
		w := window(s, p, now)
		return w.retry(p, need, p.Capacity)
	case p.Kind == Bucket && p.Anchor != Calendar && s.EmptyAt < Max:
		over := max(0, used-(p.Capacity-need))
		return s.EmptyAt - (ceilDiv(used, p.Drain)-ceilDiv(over, p.Drain))*p.Step
	}
	return s.EmptyAt
}
