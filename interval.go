package headgate

import (
	"time"

	"github.com/headgate/headgate/law"
)

// Interval is a token bucket that is refilled in one go: Amount tokens at the
// end of each Period, up to Burst. The periods are counted from the first use
// of a key, and again whenever its bucket was full.
//
//	interval 100/10s burst 300
type Interval struct {
	Amount Cost          // tokens per Period, all at once
	Period time.Duration // at least a microsecond
	Burst  Cost          // the most that can pass at once; zero: Amount, at least 1
	Tail
}

var intervalEntry = entry{
	name:   "interval",
	syntax: "AMOUNT/PERIOD [burst N] " + refillOptions,
	about:  "tokens come all at once at the end of each period, up to the burst",
	parse: func(n *notation) (Algorithm, error) {
		r, err := n.rate("burst")
		return Interval(r), err
	},
}

// String returns the canonical notation.
func (a Interval) String() string { return rated(a).notation("interval", "burst") }

func (a Interval) compile() (law.Params, *calendar, error) {
	if err := rated(a).check("burst"); err != nil {
		return law.Params{}, nil, err
	}
	burst := orAmount(a.Burst, a.Amount)
	finest := a.Amount
	if burst.exp > finest.exp {
		finest = burst
	}
	for _, grain := range grains(a.Scale) {
		unit := max(grain, pow10[finest.exp])
		drain, err1 := a.Amount.credits(unit)
		capacity, err2 := burst.credits(unit)
		if err1 != nil || err2 != nil {
			continue
		}
		p := law.Params{Kind: law.Bucket, Unit: unit, Capacity: capacity, Step: a.Period.Microseconds(), Drain: drain}
		if p.Valid() == nil {
			err := a.tail(&p)
			return p, nil, err
		}
	}
	return law.Params{}, nil, tooFine("amount", a.Scale, "%s with a burst of %s is too large", a.Amount, burst)
}

func (a Interval) bound() Bound { return rated(a).bound() }
