package law

// The window law: a sliding window counter. The credits of the previous window count in proportion to the part of it
// that still lies within the last Step microseconds. That part is counted in grains, of at most 2^20 in a window, and
// all is rounded up, so that the law never admits more than the exact proportion would.

// grains returns how a window of w microseconds is divided: into f grains of q microseconds, q being the smallest for
// which w/q is at most 2^20. If that does not divide a window of whole seconds, q is a millionth of the window: with a
// grain that divides the window, the law is exact at round times, such as half way through.
func grains(w int64) (q, f int64) {
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

// countersAt rolls the two counters of a cell forward to now.
func countersAt(s *State, p *Params, now int64) counters {
	w := p.Step
	c := counters{prev: s.Prev, level: s.Level, start: now - now%w}
	switch s.At - s.At%w {
	case c.start:
	case c.start - w:
		c.prev, c.level = s.Level, 0
	default:
		c.prev, c.level = 0, 0
	}
	q, f := grains(w)
	grainsLeft := min(f, ceilDiv(w-(now-c.start), q)) // of the previous window
	c.carry = ceilDiv(c.prev*grainsLeft, f)           // prev < 2^32, grainsLeft <= 2^20: the product fits
	return c
}

// emptyAt returns when both windows have stopped counting; 0 if neither counts now.
func (c *counters) emptyAt(p *Params) int64 {
	switch {
	case c.level > 0:
		return c.start + 2*p.Step
	case c.prev > 0:
		return c.start + p.Step
	}
	return 0
}

// fitsAt returns when need credits fit below ceiling if nobody else comes. They do not fit now; need <= ceiling.
func (c *counters) fitsAt(p *Params, need, ceiling int64) int64 {
	at, prev, level := c.start, c.prev, c.level
	if need > ceiling-level { // not within this window
		at, prev, level = c.start+p.Step, c.level, 0
	}
	if prev == 0 {
		return at
	}
	q, f := grains(p.Step)
	room := ceiling - level - need
	if room >= prev { // fits from the first instant of the window
		return at
	}
	// grainsLeft <= room*f/prev  <=>  time since at >= Step - q*(room*f div prev).
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
	c := countersAt(&s, p, at)
	s.EmptyAt = c.emptyAt(p)
	return s, level + c.carry
}
