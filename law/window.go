package law

// The window law: a sliding window counter. The previous window counts in proportion to the part of it that still lies
// within the last Step microseconds. That part is a fraction left/f with f at most 2^20, rounded up so that the law is
// never looser than the exact rule prev*(w-elapsed)/w + level + n <= capacity.

// grain returns the precision of that fraction for a window of w microseconds: the length q of a grain, for which w/q
// is at most 2^20, and the number f of grains in a window. If the smallest such q does not divide a window of whole
// seconds, q is a millionth of it: with a grain that divides the window, the law is exact at round times, such as half
// way through.
func grain(w int64) (q, f int64) {
	q = ceilDiv(w, 1<<20)
	if w%q != 0 && w%1_000_000 == 0 {
		q = w / 1_000_000
	}
	return q, w / q
}

// counters are the two counters of a sliding window at the time of a decision.
type counters struct {
	prev, level int64 // credits of the previous window, and of the present one
	start       int64 // start of the present window
	carry       int64 // credits that prev still counts for
}

// window rolls the two counters of a cell forward to now.
func window(s *State, p *Params, now int64) counters {
	w := p.Step
	v := counters{prev: s.Prev, level: s.Level, start: now - now%w}
	switch s.At - s.At%w {
	case v.start:
	case v.start - w:
		v.prev, v.level = s.Level, 0
	default:
		v.prev, v.level = 0, 0
	}
	q, f := grain(w)
	left := min(f, ceilDiv(w-(now-v.start), q))
	v.carry = ceilDiv(v.prev*left, f) // prev < 2^32, left <= 2^20
	return v
}

// emptyAt returns when both windows have stopped counting; 0 if neither counts now.
func (v *counters) emptyAt(p *Params) int64 {
	switch {
	case v.level > 0:
		return v.start + 2*p.Step
	case v.prev > 0:
		return v.start + p.Step
	}
	return 0
}

// retry returns the time at which need credits fit below ceiling if nobody else comes. need must be at most ceiling.
func (v *counters) retry(p *Params, need, ceiling int64) int64 {
	at, prev, level := v.start, v.prev, v.level
	if need > ceiling-level { // not within this window
		at, prev, level = v.start+p.Step, v.level, 0
	}
	if prev == 0 {
		return at
	}
	q, f := grain(p.Step)
	room := ceiling - level - need
	if room >= prev { // fits from the first instant of the window
		return at
	}
	// left <= room*f/prev  <=>  elapsed >= w - q*(room*f div prev).
	// room < prev < 2^32 keeps the product within Max.
	return at + p.Step - q*(room*f/prev)
}

// Charged returns the state of a cell after a charge at the time at, and the credits in use then. The cell is plain or
// of the window law; level includes the charge, and prev is the previous window's credits, 0 for a bucket.
func (p *Params) Charged(level, prev, at int64) (s State, used int64) {
	if p.Kind != Window {
		return p.PlainState(level, at), level
	}
	s = State{Kind: Window, Level: level, Prev: prev, At: at, Unit: p.Unit, Step: p.Step}
	v := window(&s, p, at)
	s.EmptyAt = v.emptyAt(p)
	return s, level + v.carry
}
