package headgate

import (
	"time"

	"github.com/headgate/headgate/law"
)

// TokenBucket admits while there are tokens: Amount of them drip in per
// Period, evenly, up to Burst. A new key starts with a full bucket.
//
//	token-bucket 100/s burst 200
type TokenBucket struct {
	Amount Cost          // tokens per Period
	Period time.Duration // at least a microsecond
	Burst  Cost          // the most that can pass at once; zero: Amount, at least 1
	Tail
}

var tokenBucketEntry = entry{
	name:   "token-bucket",
	syntax: "AMOUNT/PERIOD [burst N] " + refillOptions,
	about:  "tokens drip in evenly, up to the burst; a request takes as many as it costs",
	parse: func(n *notation) (Algorithm, error) {
		r, err := n.rate("burst")
		return TokenBucket(r), err
	},
}

// String returns the canonical notation.
func (a TokenBucket) String() string { return rated(a).notation("token-bucket", "burst") }

func (a TokenBucket) compile() (law.Params, *calendar, error) { return rated(a).compile("burst") }
func (a TokenBucket) bound() Bound                            { return rated(a).bound() }
