package headgate

import (
	"time"

	"github.com/headgate/headgate/law"
)

// LeakyBucket admits what still fits: a request pours its cost into the
// bucket, which holds Capacity and leaks Amount per Period. It decides like a
// token bucket whose tokens are the room left.
//
//	leaky-bucket 1.5/s capacity 3
type LeakyBucket struct {
	Amount   Cost          // leaks per Period
	Period   time.Duration // at least a microsecond
	Capacity Cost          // the most that can pass at once; zero: Amount, at least 1
	Tail
}

var leakyBucketEntry = entry{
	name:   "leaky-bucket",
	syntax: "AMOUNT/PERIOD [capacity N] " + refillOptions,
	about:  "a request pours its cost into a bucket that leaks evenly; what does not fit is refused",
	parse: func(n *notation) (Algorithm, error) {
		r, err := n.rate("capacity")
		return LeakyBucket{r.Amount, r.Period, r.Burst, r.Tail}, err
	},
}

func (a LeakyBucket) rated() rated { return rated{a.Amount, a.Period, a.Capacity, a.Tail} }

// String returns the canonical notation.
func (a LeakyBucket) String() string { return a.rated().notation("leaky-bucket", "capacity") }

func (a LeakyBucket) compile() (law.Params, *calendar, error) { return a.rated().compile("capacity") }
func (a LeakyBucket) bound() Bound                            { return a.rated().bound() }
