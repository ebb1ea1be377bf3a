package headgate

import (
	"time"

	"github.com/headgate/headgate/law"
)

// Concurrency admits while the costs of the leases that are held sum up to no
// more than Amount. They are acquired and released, see [Limiter.Acquire] and
// [Limiter.WithLease]; Take and Wait refuse it. A lease whose holder does not renew it
// ends after TTL, so that a crash frees it.
//
//	concurrency 10 ttl 30s
type Concurrency struct {
	Amount Cost
	TTL    time.Duration // at least a microsecond
	Tail
}

var concurrencyEntry = entry{
	name:   "concurrency",
	syntax: "AMOUNT ttl PERIOD [block PERIOD] [deadline PERIOD] [scale N]",
	about:  "so many leases at the same time; a lease that is not renewed ends after its time to live",
	parse: func(n *notation) (Algorithm, error) {
		if n.hasPeriod {
			return nil, n.fail("period", n.periodAt, "concurrency has none: write concurrency AMOUNT ttl PERIOD")
		}
		ttl, err := n.periodOption("ttl")
		if err == nil && ttl == 0 {
			err = n.fail("ttl", len(n.text), "is missing: write concurrency AMOUNT ttl PERIOD")
		}
		return Concurrency{Amount: n.amount, TTL: ttl, Tail: n.tail()}, err
	},
}

// String returns the canonical notation.
func (a Concurrency) String() string {
	return "concurrency " + a.Amount.String() + " ttl " + formatPeriod(a.TTL) + a.suffix()
}

func (a Concurrency) compile() (law.Params, *calendar, error) {
	none := law.Params{}
	if err := checkAmount("amount", a.Amount); err != nil {
		return none, nil, err
	}
	if err := checkPeriod("ttl", a.TTL); err != nil {
		return none, nil, err
	}
	unit, capacity, err := compileCount("amount", a.Amount, a.Scale, law.Max)
	if err != nil {
		return none, nil, err
	}
	p := law.Params{Kind: law.Log, Unit: unit, Capacity: capacity, Step: a.TTL.Microseconds(), Leased: true}
	err = a.tail(&p)
	return p, nil, err
}

func (a Concurrency) bound() Bound {
	return Bound{period: a.TTL, long: "at the same time", intent: a.Amount.String() +
		" be held at the same time; one that is not renewed ends after " + formatPeriod(a.TTL)}
}
