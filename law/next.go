package law

// NextAt returns when a cost of 1 fits into a cell if nobody else comes, after an op that was granted and left no room
// for it: used is what its outcome says, s the state that it left, and now the time that it was decided for. Of a limit
// that lets less than 1 pass at once, it is when all of that fits. Of a log it is the latest time at which that can
// be: a grant does not look which entries expire first.
func (p *Params) NextAt(s *State, used, now int64) int64 {
	need := min(p.Unit, p.Capacity)
	switch {
	case p.Kind == Window:
		w := window(s, p, now)
		return w.retry(p, need, p.Capacity)
	case p.Kind == Bucket && p.Anchor != Calendar && s.EmptyAt < Max:
		over := max(0, used-(p.Capacity-need))
		return s.EmptyAt - (ceilDiv(used, p.Drain)-ceilDiv(over, p.Drain))*p.Step
	}
	return s.EmptyAt
}
