package check

// level is what is in use of a cell as time goes on, by the rule of one algorithm. Times
// are the store's, in microseconds, and do not go back.
type level interface {
	// advance brings the level forward to a time.
	advance(at int64)
	// used returns what is in use.
	used() num
	// add charges n.
	add(n num)
	// take gives n back of what was charged at a time.
	take(n num, charged int64)
	// clear forgets everything.
	clear()
}

// newLevel returns the empty level of a rule. A high one is never lower than that of the
// store, wherever the algorithm rounds or has a freedom that histories do not show; a low
// one is never higher. Blurred says that not all charges, or their times, are known: so
// the times at which steps begin are not known either.
func newLevel(r *rule, f *family, high, blurred bool) level {
	switch r.shape {
	case rated:
		b := &bucket{rate: r.rate}
		if high && r.step > 1 {
			b.slack = r.rate.times(r.step - 1) // docs/algorithms.md, "Exactness": at most one step late
		}
		return b
	case refill:
		if blurred {
			b := &bucket{rate: r.amount.over(r.period), slack: r.amount}
			if !high {
				b.slack, b.rate = num{}, b.rate.plus(whole(1))
				b.debt = r.amount
			}
			return b
		}
		return &steps{amount: r.amount, period: r.period}
	case window:
		return &windows{rule: r}
	case first:
		if blurred && high {
			return &log{period: r.period} // no window is open for longer
		}
		return &openings{period: r.period, lost: blurred}
	case sliding:
		w := &counters{period: r.period, grain: 1}
		if high {
			w.grain, w.credit = grainOf(r.period), f.one().over(1000)
			if f.units(r.most.times(1000)) >= 1<<32 {
				w.credit = f.one()
			}
		}
		return w
	default:
		return &log{period: r.period}
	}
}

// bucket drains evenly.
type bucket struct {
	rate  num
	at    int64
	level num
	slack num // added while it is not empty
	debt  num // subtracted
}

func (b *bucket) advance(at int64) {
	if at <= b.at {
		return
	}
	if b.level.positive() {
		b.level = atLeast(b.level.minus(b.rate.times(at-b.at)), num{})
	}
	b.at = at
}

func (b *bucket) used() num {
	if b.debt.positive() {
		return atLeast(b.level.minus(b.debt), num{})
	}
	return b.level.plus(b.slack)
}

func (b *bucket) add(n num)           { b.level = b.level.plus(n) }
func (b *bucket) take(n num, _ int64) { b.level = atLeast(b.level.minus(n), num{}) }
func (b *bucket) clear()              { b.level = num{} }

// steps drains by an amount at the end of each period, which begin with the first charge
// to an empty level.
type steps struct {
	amount num
	period int64
	at     int64
	level  num
}

func (s *steps) advance(at int64) {
	if !s.level.positive() {
		s.at = max(at, s.at)
		return
	}
	if n := (at - s.at) / s.period; n > 0 {
		s.level = atLeast(s.level.minus(s.amount.times(min(n, 1<<40))), num{})
		s.at += n * s.period
	}
	if !s.level.positive() {
		s.at = max(at, s.at)
	}
}

func (s *steps) used() num           { return s.level }
func (s *steps) add(n num)           { s.level = s.level.plus(n) }
func (s *steps) take(n num, _ int64) { s.level = atLeast(s.level.minus(n), num{}) }
func (s *steps) clear()              { s.level = num{} }

// windows are those of the epoch or of a calendar.
type windows struct {
	rule       *rule
	start, end int64
	level      num
}

func (w *windows) advance(at int64) {
	if at < w.end {
		return
	}
	w.start = w.rule.windowStart(at)
	w.end = w.rule.windowEnd(w.start)
	w.level = num{}
}

func (w *windows) used() num { return w.level }
func (w *windows) add(n num) { w.level = w.level.plus(n) }

func (w *windows) take(n num, charged int64) {
	if charged >= w.start {
		w.level = atLeast(w.level.minus(n), num{})
	}
}

func (w *windows) clear() { w.level = num{} }

// openings are windows that begin with the first charge after the last one has ended.
type openings struct {
	period int64
	lost   bool // it is not known when they began: nothing counts for sure
	at     int64
	start  int64
	level  num
}

func (o *openings) advance(at int64) {
	o.at = at
	if at >= o.start+o.period {
		o.level = num{}
	}
}

func (o *openings) used() num {
	if o.lost {
		return num{}
	}
	return o.level
}

func (o *openings) add(n num) {
	if !o.level.positive() {
		o.start = o.at
	}
	o.level = o.level.plus(n)
}

func (o *openings) take(n num, charged int64) {
	if charged >= o.start {
		o.level = atLeast(o.level.minus(n), num{})
	}
}

func (o *openings) clear() { o.level = num{} }

// counters are the two of a sliding window.
type counters struct {
	period, grain int64
	credit        num // what the share of the older one may be rounded up by
	start, at     int64
	older, newer  num
}

// grainOf returns in what part of a microsecond's multiple the share fades out.
// docs/decisions/2026-11-21-laws.md, "A sliding window's grain divides windows of whole seconds".
func grainOf(period int64) int64 {
	grain := (period + 1<<20 - 1) >> 20
	if period%grain != 0 && period%1_000_000 == 0 {
		grain = period / 1_000_000
	}
	return grain
}

func (c *counters) advance(at int64) {
	c.at = at
	switch start := at - at%c.period; start {
	case c.start:
	case c.start + c.period:
		c.start, c.older, c.newer = start, c.newer, num{}
	default:
		c.start, c.older, c.newer = start, num{}, num{}
	}
}

func (c *counters) used() num {
	rest := c.start + c.period - c.at
	if c.period%c.grain == 0 {
		rest = (rest + c.grain - 1) / c.grain * c.grain
	} else {
		rest = min(c.period, rest+4*c.grain)
	}
	used := c.older.times(rest).over(c.period).plus(c.newer)
	if c.older.positive() {
		used = used.plus(c.credit)
	}
	return used
}

func (c *counters) add(n num) { c.newer = c.newer.plus(n) }

func (c *counters) take(n num, charged int64) {
	switch {
	case charged >= c.start:
		c.newer = atLeast(c.newer.minus(n), num{})
	case charged >= c.start-c.period:
		c.older = atLeast(c.older.minus(n), num{})
	}
}

func (c *counters) clear() { c.older, c.newer = num{}, num{} }

// log is the exact sliding window: each charge counts until it is a period old.
type log struct {
	period int64
	at     int64
	sum    num
	lines  []line // from first on
	first  int
}

type line struct {
	at int64
	n  num
}

func (l *log) advance(at int64) {
	l.at = at
	for l.first < len(l.lines) && l.lines[l.first].at+l.period <= at {
		l.sum = l.sum.minus(l.lines[l.first].n)
		l.first++
	}
}

func (l *log) used() num { return l.sum }

func (l *log) add(n num) {
	l.lines = append(l.lines, line{l.at, n})
	l.sum = l.sum.plus(n)
}

func (l *log) take(n num, charged int64) {
	for i := len(l.lines) - 1; i >= l.first && l.lines[i].at >= charged; i-- {
		if l.lines[i].at == charged {
			n = atMost(n, l.lines[i].n)
			l.lines[i].n, l.sum = l.lines[i].n.minus(n), l.sum.minus(n)
			return
		}
	}
}

func (l *log) clear() { l.first, l.sum = len(l.lines), num{} }
