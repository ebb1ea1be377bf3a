package law

import "math/bits"

// maxDigits is the most decimal places that an amount can have: billionths.
const maxDigits = 9

// Figure converts credits to the amount that people see, rounded down to p.Digits decimal places: whole units, and
// billionths of a unit. 31,250 credits of a unit of 1,000,000 with four digits are 0 and 31,200,000.
func (p *Params) Figure(credits int64) (units int64, nanos int32) {
	units = credits / p.Unit
	if p.Digits == 0 {
		return units, 0
	}
	hi, lo := bits.Mul64(uint64(credits-units*p.Unit), powersOfTen[p.Digits])
	n, _ := bits.Div64(hi, lo, uint64(p.Unit))
	return units, int32(n * powersOfTen[maxDigits-p.Digits])
}

var powersOfTen = [maxDigits + 1]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}

// NextAt returns when a cost of 1 fits into a cell if nobody else comes, or the whole capacity if that is less than 1,
// after an op was granted and left no room for it. used and retryAt are fields of the op's outcome, s is the state that
// the op left, of a plain cell only EmptyAt, and now the time for which it was decided. For a log, the outcome of an
// extension or a replay has no retryAt: NextAt then returns when all entries have expired.
func (p *Params) NextAt(s *State, used, now, retryAt int64) int64 {
	need := min(p.Unit, p.Capacity)
	switch {
	case p.Kind == Log && retryAt != 0:
		return retryAt
	case p.Kind == Window:
		c := countersAt(s, p, now)
		return c.fitsAt(p, need, p.Capacity)
	case p.Kind == Bucket && p.Anchor != Calendar && s.EmptyAt < Max:
		over := max(0, used-(p.Capacity-need)) // the part of used that has to drain first
		if s.Prev > 0 && !p.isFixedWindow() {  // EmptyAt may be later than the level needs
			return min(s.EmptyAt, p.after(s.At, over))
		}
		// Back from EmptyAt, since At is not known for a plain cell.
		return s.EmptyAt - (ceilDiv(used, p.Drain)-ceilDiv(over, p.Drain))*p.Step
	}
	return s.EmptyAt
}

// InUse returns how many credits of the op's limit a cell has in use at clock, the store's time. It reads only Params
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
// result is up to one drain too high, or higher if credits were given back or the limit was changed.
func (s State) Params() Params {
	p := Params{Kind: s.Kind, Unit: s.Unit, Step: s.Step}
	p.Capacity = p.Highest()
	if s.Kind == Bucket {
		// A fixed window forgets all at once, at EmptyAt, at most one Step away: its Drain is Max. Capacity only bounds
		// the time to heal, see HealAfter: the level is the least that it can be.
		p.Capacity, p.Drain = max(s.Level, 1), Max
		if wait := s.EmptyAt - s.At; s.Level > 0 && s.Step > 0 && wait > s.Step && wait%s.Step == 0 {
			p.Drain = ceilDiv(s.Level, wait/s.Step)
		}
	}
	return p
}
