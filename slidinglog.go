package headgate

import (
	"time"

	"github.com/headgate/headgate/law"
)

// SlidingLog remembers every admitted request until it is Period old, and
// admits while their costs sum up to no more than Amount: the exact sliding
// window, at the price of a row for each. With History, attempts are kept for
// that long, the refused ones too, each with its transaction number.
//
//	sliding-log 5/1m history 30d block 15m
type SlidingLog struct {
	Amount  Cost
	Period  time.Duration // at least a microsecond
	History time.Duration // how long attempts are kept to be looked at; zero: only while they count
	Tail
}

var slidingLogEntry = entry{
	name:   "sliding-log",
	syntax: "AMOUNT/PERIOD [history PERIOD] " + plainOptions,
	about:  "exact: every admitted request counts until it is one period old; attempts can be kept as history",
	parse: func(n *notation) (Algorithm, error) {
		if err := n.needPeriod(); err != nil {
			return nil, err
		}
		history, err := n.periodOption("history")
		return SlidingLog{Amount: n.amount, Period: n.period, History: history, Tail: n.tail()}, err
	},
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
	none := law.Params{}
	if err := (rated{Amount: a.Amount, Period: a.Period}).check(""); err != nil {
		return none, nil, err
	}
	unit, capacity, err := compileCount("amount", a.Amount, a.Scale, law.Max)
	if err != nil {
		return none, nil, err
	}
	p := law.Params{Kind: law.Log, Unit: unit, Capacity: capacity, Step: a.Period.Microseconds()}
	if a.History != 0 {
		if err := checkPeriod("history", a.History); err != nil {
			return none, nil, err
		}
		p.History = a.History.Microseconds()
	}
	err = a.tail(&p)
	return p, nil, err
}

func (a SlidingLog) bound() Bound {
	long := "in any " + wordPeriod(a.Period)
	return Bound{period: a.Period, long: long, intent: a.Amount.String() + " pass " + long +
		" (what passed counts until it is exactly that old)"}
}
