package check

// level tracks how much of a cell is in use over time, under one algorithm. Times are the store's, in microseconds, and
// do not go back.
type level interface {
	advance(at int64)            // goes on to a time
	used() num                   // returns how much is in use
	add(n num)                   // charges n
	refund(n num, charged int64) // gives back n of what was charged at a time
	clear()
}

// newLevel returns the empty level of a rule. A high level is never below the store's, and a low one never above it,
// although the algorithm may round, or do what histories do not show. With uncertain, some charges or their times are
// unknown, and hence the times at which steps begin.
func newLevel(r *rule, high, uncertain bool) level {
	switch r.shape {
	case bucketShape:
		b := &bucket{rate: r.rate}
		if high && r.step > 1 {
			b.slack = r.rate.times(r.step - 1) // docs/algorithms.md, "Exactness": at most one step late
		}
		return b
	case intervalShape:
		switch b := (&bucket{rate: r.amount.dividedBy(r.period)}); {
		case !uncertain:
			return &steps{amount: r.amount, period: r.period}
		case high:
			b.slack = r.amount
			return b
		default:
			b.rate, b.debt = b.rate.plus(numOf(1)), r.amount
			return b
		}
	case fromFirstShape:
		if uncertain && high {
			return &log{period: r.period} // no window is open for longer
		}
		return &windows{rule: r, startUnknown: uncertain}
	case windowShape:
		return &windows{rule: r}
	case slidingShape:
		w := &counters{period: r.period, stepLength: 1}
		if high {
			// A unit has a thousand credits while the capacity stays below 2^32 credits, so below four million units.
			w.stepLength, w.credit = slidingStep(r.period), r.family.unitCost().dividedBy(1000)
		}
		return w
	default:
		return &log{period: r.period}
	}
}

// tally is the part of a level that changes by charges and refunds, not by time.
type tally struct{ n num }

func (t *tally) used() num             { return t.n }
func (t *tally) add(n num)             { t.n = t.n.plus(n) }
func (t *tally) refund(n num, _ int64) { t.n = maxNum(t.n.minus(n), num{}) }
func (t *tally) clear()                { t.n = num{} }

// bucket drains evenly.
type bucket struct {
	tally
	rate  num
	at    int64
	slack num // added to what is used
	debt  num // subtracted from what is used
}

func (b *bucket) advance(at int64) {
	if at > b.at && b.n.positive() {
		b.refund(b.rate.times(at-b.at), 0)
	}
	b.at = max(b.at, at)
}

func (b *bucket) used() num {
	if b.debt.positive() {
		return maxNum(b.n.minus(b.debt), num{})
	}
	return b.n.plus(b.slack)
}

// steps drains by an amount at the end of each period. Periods start at the first charge to an empty level.
type steps struct {
	tally
	amount num
	period int64
	at     int64
}

func (s *steps) advance(at int64) {
	if n := (at - s.at) / s.period; n > 0 && s.n.positive() {
		s.refund(s.amount.times(min(n, 1<<40)), 0) // more could wrap around
		s.at += n * s.period
	}
	if !s.n.positive() {
		s.at = max(at, s.at)
	}
}

// windows counts in fixed windows: of the epoch, of a calendar, or from the first charge after the previous window.
type windows struct {
	tally
	rule           *rule
	at, start, end int64
	startUnknown   bool // it is not known when the windows began: nothing is surely in use
}

func (w *windows) advance(at int64) {
	w.at = at
	if at < w.end {
		return
	}
	w.clear()
	if w.rule.shape == windowShape {
		w.start, w.end = w.rule.window(at)
	}
}

func (w *windows) used() num {
	if w.startUnknown {
		return num{}
	}
	return w.n
}

func (w *windows) add(n num) {
	if w.rule.shape == fromFirstShape && !w.n.positive() {
		w.start, w.end = w.at, w.at+w.rule.period
	}
	w.tally.add(n)
}

func (w *windows) refund(n num, charged int64) {
	if charged >= w.start {
		w.tally.refund(n, charged)
	}
}

// counters are the two counters of a sliding window.
type counters struct {
	period, stepLength int64
	credit             num // by how much the share of the older counter may be rounded up
	start, at          int64
	older, newer       num
}

// slidingStep returns the microseconds between two steps in which the share of the older counter falls: see
// docs/project/decisions/laws.md, "The sliding window stores the time of its last charge".
func slidingStep(period int64) int64 {
	step := (period + 1<<20 - 1) >> 20
	if period%step != 0 && period%1_000_000 == 0 {
		step = period / 1_000_000
	}
	return step
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
	remaining := c.start + c.period - c.at
	if c.period%c.stepLength == 0 {
		remaining = (remaining + c.stepLength - 1) / c.stepLength * c.stepLength
	} else {
		remaining = min(c.period, remaining+4*c.stepLength) // the rest and the number of steps are both rounded
	}
	used := c.older.times(remaining).dividedBy(c.period).plus(c.newer)
	if c.older.positive() {
		used = used.plus(c.credit)
	}
	return used
}

func (c *counters) add(n num) { c.newer = c.newer.plus(n) }

func (c *counters) refund(n num, charged int64) {
	switch {
	case charged >= c.start:
		c.newer = maxNum(c.newer.minus(n), num{})
	case charged >= c.start-c.period:
		c.older = maxNum(c.older.minus(n), num{})
	}
}

func (c *counters) clear() { c.older, c.newer = num{}, num{} }

// log is the exact sliding window: each charge counts until it is a period old.
type log struct {
	period int64
	at     int64
	sum    num
	lines  []line
	first  int // index of the oldest line that counts
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

func (l *log) refund(n num, charged int64) {
	for i := len(l.lines) - 1; i >= l.first && l.lines[i].at >= charged; i-- {
		if l.lines[i].at == charged {
			n = minNum(n, l.lines[i].n)
			l.lines[i].n, l.sum = l.lines[i].n.minus(n), l.sum.minus(n)
			return
		}
	}
}

func (l *log) clear() { l.first, l.sum = len(l.lines), num{} }
