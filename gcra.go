package headgate

import (
	"time"

	"github.com/headgate/headgate/law"
)

// GCRA is the generic cell rate algorithm (ITU-T I.371): requests come
// Period/Amount apart on average, and up to Burst of them early. It decides
// like a token bucket; the level is the theoretical arrival time.
//
//	gcra 10/s burst 5
type GCRA struct {
	Amount Cost          // requests per Period
	Period time.Duration // at least a microsecond
	Burst  Cost          // the most that can pass at once; zero: Amount, at least 1
	Tail
}

var gcraEntry = entry{
	name:   "gcra",
	syntax: "AMOUNT/PERIOD [burst N] " + refillOptions,
	about:  "requests are spaced evenly, a burst of them may come early",
	parse: func(n *notation) (Algorithm, error) {
		r, err := n.rate("burst")
		return GCRA(r), err
	},
}

// String returns the canonical notation.
func (a GCRA) String() string { return rated(a).notation("gcra", "burst") }

func (a GCRA) compile() (law.Params, *calendar, error) { return rated(a).compile("burst") }
func (a GCRA) bound() Bound                            { return rated(a).bound() }
