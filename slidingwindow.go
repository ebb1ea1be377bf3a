package headgate

import (
	"time"

	"github.com/headgate/headgate/law"
)

// SlidingWindow counts two adjacent windows and lets the older one count by
// the share of it that is still within Period. It needs two numbers per key
// and is never looser than that share, rounded up.
//
//	sliding-window 100/1m
type SlidingWindow struct {
	Amount Cost
	Period time.Duration // at least a microsecond
	Tail
}

var slidingWindowEntry = entry{
	name:   "sliding-window",
	syntax: "AMOUNT/PERIOD " + plainOptions,
	about:  "two adjacent counters, the older one fading out; small state, close to an exact sliding window",
	parse: func(n *notation) (Algorithm, error) {
		if err := n.needPeriod(); err != nil {
			return nil, err
		}
		return SlidingWindow{Amount: n.amount, Period: n.period, Tail: n.tail()}, nil
	},
}

// String returns the canonical notation.
func (a SlidingWindow) String() string {
	return "sliding-window " + a.Amount.String() + "/" + formatPeriod(a.Period) + a.suffix()
}

func (a SlidingWindow) compile() (law.Params, *calendar, error) {
	none := law.Params{}
	if err := (rated{Amount: a.Amount, Period: a.Period}).check(""); err != nil {
		return none, nil, err
	}
	unit, capacity, err := compileCount("amount", a.Amount, a.Scale, 1<<32-1)
	if err != nil {
		return none, nil, err
	}
	p := law.Params{Kind: law.Window, Unit: unit, Capacity: capacity, Step: a.Period.Microseconds()}
	err = a.tail(&p)
	return p, nil, err
}

func (a SlidingWindow) bound() Bound {
	return Bound{
		period: a.Period, long: onePeriod(a.Period), amount: a.Amount,
		intent: a.Amount.String() + " pass in about any " + wordPeriod(a.Period),
	}
}
