package headgate

import (
	"time"

	"github.com/headgate/headgate/law"
)

// FixedWindow admits Amount per window; the next window starts empty. There are three kinds of windows. By default they
// start at multiples of Period since the Unix epoch, in UTC. With FromFirst, a window starts at the first request after
// the previous window ended. With Calendar, windows follow the calendar in a time zone, and Period is left zero.
//
//	fixed-window 1000/1h
//	fixed-window 1000/1h from-first
//	fixed-window 100000/month Europe/Berlin
type FixedWindow struct {
	Amount    Cost
	Period    time.Duration // length of a window; zero with Calendar
	FromFirst bool          // a window starts at the first request after the previous window ended
	Calendar  CalendarUnit  // windows are minutes to months of the calendar
	Zone      string        // IANA time zone of Calendar; empty: UTC
	Tail
}

// parseFixedWindow makes a FixedWindow of the parsed notation, or fails if the period is missing or its options
// contradict each other.
func parseFixedWindow(p *parser) (Algorithm, error) {
	a := FixedWindow{Amount: p.amount, Period: p.period, Calendar: p.calendar, Tail: p.Tail}
	_, a.FromFirst = p.takeOption("from-first")
	zone, zoned := p.takeOption("zone")
	a.Zone = zone.text
	switch {
	case !p.hasPeriod:
		return nil, p.fail("period", p.amountAt, "is missing: write fixed-window AMOUNT/PERIOD")
	case zoned && a.Calendar == "":
		return nil, p.fail("zone", zone.at,
			"only a calendar's windows (minute, hour, day, week, month) have a time zone")
	case a.FromFirst && a.Calendar != "":
		return nil, p.fail("from-first", p.valuesAt["from-first"], "a calendar's windows start by the calendar")
	}
	return a, nil
}

// String returns the canonical notation.
func (a FixedWindow) String() string {
	s := "fixed-window " + a.Amount.String() + "/"
	switch {
	case a.Calendar != "":
		s += string(a.Calendar)
		if a.Zone != "" && a.Zone != "UTC" {
			s += " " + a.Zone
		}
	case a.FromFirst:
		s += formatPeriod(a.Period) + " from-first"
	default:
		s += formatPeriod(a.Period)
	}
	return s + a.suffix()
}

// compile returns a bucket that each step empties, anchored as the kind of window demands.
func (a FixedWindow) compile() (p law.Params, cal *calendar, err error) {
	// One step empties the window, however far debits have filled it.
	p = law.Params{Kind: law.Bucket, Anchor: law.Epoch, Drain: law.Max}
	step := a.Period
	switch {
	case a.Calendar == "" && a.Zone != "":
		return p, nil, Invalid("zone", "only a calendar's windows have a time zone")
	case a.Calendar == "":
		if a.FromFirst {
			p.Anchor = law.Own
		}
	case a.Period != 0 || a.FromFirst:
		return p, nil, Invalid("period",
			"a calendar's windows have no other period and do not start at the first request")
	default:
		if cal, err = newCalendar(a.Calendar, a.Zone); err != nil {
			return p, nil, err
		}
		step = a.Calendar.maxLength()
		if p.Anchor = law.Calendar; a.Calendar == Minute { // minutes are the same in all zones
			cal, p.Anchor = nil, law.Epoch
		}
	}
	p, err = compileCount(p, a.Amount, "period", step, a.Tail)
	return p, cal, err
}

func (a FixedWindow) bound() Bound {
	b := Bound{period: a.Period, intent: a.Amount.String() + " pass in each "}
	switch {
	case a.Calendar != "":
		b.period = a.Calendar.length()
		b.intent += string(a.Calendar) + " of the calendar"
		b.periodText = map[CalendarUnit]string{Day: "in 24 hours", Week: "in 7 days", Month: "in 28 days"}[a.Calendar]
	case a.FromFirst:
		b.intent += describePeriod(a.Period) + " from a first request on"
		b.amount = a.Amount
	default:
		b.amount = a.Amount
		b.intent += "window of " + formatPeriod(a.Period)
	}
	if b.periodText == "" {
		b.periodText = describeInPeriod(b.period)
	}
	return b
}

// SlidingWindow counts two adjacent windows. The older one counts in proportion to the part of it that is still within
// Period, rounded up. It needs two numbers per key.
//
//	sliding-window 100/1m
type SlidingWindow struct {
	Amount Cost
	Period time.Duration // at least a microsecond
	Tail
}

func parseSlidingWindow(p *parser) (Algorithm, error) {
	return SlidingWindow{Amount: p.amount, Period: p.period, Tail: p.Tail}, p.needPeriod()
}

// String returns the canonical notation.
func (a SlidingWindow) String() string {
	return "sliding-window " + a.Amount.String() + "/" + formatPeriod(a.Period) + a.suffix()
}

func (a SlidingWindow) compile() (law.Params, *calendar, error) {
	p, err := compileCount(law.Params{Kind: law.Window}, a.Amount, "period", a.Period, a.Tail)
	return p, nil, err
}

func (a SlidingWindow) bound() Bound {
	return Bound{
		period: a.Period, periodText: describeInPeriod(a.Period), amount: a.Amount,
		intent: a.Amount.String() + " pass in about any " + describePeriod(a.Period),
	}
}

// SlidingLog keeps every admitted request until it is Period old, and admits while their costs sum up to no more than
// Amount: the exact sliding window, at the price of a row per request. With History, all attempts are kept for that
// long, also refused ones, each with its number in the log: see [Attempt].
//
//	sliding-log 5/1m history 30d block 15m
type SlidingLog struct {
	Amount  Cost
	Period  time.Duration // at least a microsecond
	History time.Duration // how long attempts are kept for inspection; zero: only while they count
	Tail
}

func parseSlidingLog(p *parser) (Algorithm, error) {
	if err := p.needPeriod(); err != nil {
		return nil, err
	}
	history, err := p.periodOption("history")
	return SlidingLog{Amount: p.amount, Period: p.period, History: history, Tail: p.Tail}, err
}

// String returns the canonical notation.
func (a SlidingLog) String() string {
	s := "sliding-log " + a.Amount.String() + "/" + formatPeriod(a.Period)
	if a.History != 0 {
		s += " history " + formatPeriod(a.History)
	}
	return s + a.suffix()
}

func (a SlidingLog) compile() (law.Params, *calendar, error) {
	p, err := compileCount(law.Params{Kind: law.Log}, a.Amount, "period", a.Period, a.Tail)
	if err == nil && a.History != 0 {
		p.History, err = microsOf("history", a.History)
	}
	return p, nil, err
}

func (a SlidingLog) bound() Bound {
	periodText := "in any " + describePeriod(a.Period)
	return Bound{period: a.Period, periodText: periodText, intent: a.Amount.String() + " pass " + periodText +
		" (what passed counts until it is exactly that old)"}
}

// Concurrency admits while the costs of the held leases sum up to no more than Amount. Leases are acquired and
// released, see [Limiter.Acquire] and [WithLease]; Take and Wait return an error for such a limit. A lease whose holder
// does not renew it ends after TTL, so a crash frees it.
//
//	concurrency 10 ttl 30s
type Concurrency struct {
	Amount Cost
	TTL    time.Duration // life of a lease that is not renewed; at least a microsecond
	Tail
}

func parseConcurrency(p *parser) (Algorithm, error) {
	if p.hasPeriod {
		return nil, p.fail("period", p.periodAt, "concurrency has none: write concurrency AMOUNT ttl PERIOD")
	}
	ttl, err := p.periodOption("ttl")
	if err == nil && ttl == 0 {
		err = p.fail("ttl", len(p.text), "is missing: write concurrency AMOUNT ttl PERIOD")
	}
	return Concurrency{Amount: p.amount, TTL: ttl, Tail: p.Tail}, err
}

// String returns the canonical notation.
func (a Concurrency) String() string {
	return "concurrency " + a.Amount.String() + " ttl " + formatPeriod(a.TTL) + a.suffix()
}

func (a Concurrency) compile() (law.Params, *calendar, error) {
	p, err := compileCount(law.Params{Kind: law.Log, Leased: true}, a.Amount, "ttl", a.TTL, a.Tail)
	return p, nil, err
}

func (a Concurrency) bound() Bound {
	return Bound{period: a.TTL, periodText: "at the same time", intent: a.Amount.String() +
		" be held at the same time; one that is not renewed ends after " + formatPeriod(a.TTL)}
}
