package headgate

import (
	"strings"
	"time"

	"github.com/headgate/headgate/law"
)

// FixedWindow admits Amount per window; the next window starts empty. Windows
// are of one of three kinds: they start at multiples of Period since the Unix
// epoch, in UTC; or, FromFirst, at the first request after the last one ended;
// or they are a Calendar's, in a time zone, and Period is left zero.
//
//	fixed-window 1000/1h
//	fixed-window 1000/1h from-first
//	fixed-window 100000/month Europe/Berlin
type FixedWindow struct {
	Amount    Cost
	Period    time.Duration // length of a window; zero with Calendar
	FromFirst bool          // windows start at the first request
	Calendar  CalendarUnit  // windows are minutes to months of the calendar
	Zone      string        // of Calendar: an IANA time zone; empty: UTC
	Tail
}

var fixedWindowEntry = entry{
	name:   "fixed-window",
	syntax: "AMOUNT/PERIOD [from-first] | AMOUNT/(minute|hour|day|week|month) [ZONE] " + refillOptions,
	about:  "a count that starts at zero with each window; up to twice the amount passes around a boundary",
	parse: func(n *notation) (Algorithm, error) {
		a := FixedWindow{Amount: n.amount, Period: n.period, Calendar: n.calendar, Tail: n.tail()}
		_, a.FromFirst = n.take("from-first")
		a.Zone, _ = n.take("zone")
		switch {
		case !n.hasPeriod:
			return nil, n.fail("period", n.amountAt, "is missing: write fixed-window AMOUNT/PERIOD")
		case a.Zone != "" && a.Calendar == "":
			return nil, n.fail("zone", n.places["zone"],
				"only a calendar's windows (minute, hour, day, week, month) have a time zone")
		case a.FromFirst && a.Calendar != "":
			return nil, n.fail("from-first", n.places["from-first"], "a calendar's windows start by the calendar")
		}
		return a, nil
	},
}

// String returns the canonical notation.
func (a FixedWindow) String() string {
	var b strings.Builder
	b.WriteString("fixed-window " + a.Amount.String() + "/")
	switch {
	case a.Calendar != "":
		b.WriteString(string(a.Calendar))
		if a.Zone != "" && a.Zone != "UTC" {
			b.WriteString(" " + a.Zone)
		}
	case a.FromFirst:
		b.WriteString(formatPeriod(a.Period) + " from-first")
	default:
		b.WriteString(formatPeriod(a.Period))
	}
	b.WriteString(a.suffix())
	return b.String()
}

func (a FixedWindow) compile() (law.Params, *calendar, error) {
	none := law.Params{}
	if err := checkAmount("amount", a.Amount); err != nil {
		return none, nil, err
	}
	unit, capacity, err := compileCount("amount", a.Amount, a.Scale, law.Max)
	if err != nil {
		return none, nil, err
	}
	// One step empties the window, however far force has filled it.
	p := law.Params{Kind: law.Bucket, Unit: unit, Capacity: capacity, Drain: law.Max}
	var cal *calendar
	switch {
	case a.Calendar != "":
		if a.Period != 0 || a.FromFirst {
			return none, nil, Invalid("period",
				"a calendar's windows have no other period and do not start at the first request")
		}
		cal, err = newCalendar(a.Calendar, a.Zone)
		if err != nil {
			return none, nil, err
		}
		p.Anchor, p.Step = law.Calendar, a.Calendar.longest().Microseconds()
		if a.Calendar == Minute { // no zone cuts a minute
			cal, p.Anchor = nil, law.Epoch
		}
	default:
		if err := checkPeriod("period", a.Period); err != nil {
			return none, nil, err
		}
		if a.Zone != "" {
			return none, nil, Invalid("zone", "only a calendar's windows have a time zone")
		}
		p.Anchor, p.Step = law.Epoch, a.Period.Microseconds()
		if a.FromFirst {
			p.Anchor = law.Own
		}
	}
	err = a.tail(&p)
	return p, cal, err
}

func (a FixedWindow) bound() Bound {
	b := Bound{period: a.Period, intent: a.Amount.String() + " pass in each "}
	switch {
	case a.Calendar != "":
		b.period = a.Calendar.length()
		b.intent += string(a.Calendar) + " of the calendar"
		b.long = map[CalendarUnit]string{Day: "in 24 hours", Week: "in 7 days", Month: "in 28 days"}[a.Calendar]
	case a.FromFirst:
		b.intent += wordPeriod(a.Period) + " from a first request on"
		b.amount = a.Amount
	default:
		b.amount = a.Amount
		b.intent += "window of " + formatPeriod(a.Period)
	}
	if b.long == "" {
		b.long = onePeriod(b.period)
	}
	return b
}
