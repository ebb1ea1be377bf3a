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
	syntax: "AMOUNT/PERIOD [burst N] [block PERIOD] [lease N|N%[/PERIOD]]",
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

// rated is what TokenBucket, LeakyBucket and GCRA have in common: they make
// the same decisions in three vocabularies.
type rated struct {
	Amount Cost
	Period time.Duration
	Burst  Cost
	Tail
}

func (r rated) notation(name, burst string) string {
	return name + " " + r.Amount.String() + "/" + formatPer(r.Period) +
		" " + burst + " " + orAmount(r.Burst, r.Amount).String() + r.suffix()
}

// check says what is wrong with the values; burst is the field's name.
func (r rated) check(burst string) error {
	if err := checkAmount("amount", r.Amount); err != nil {
		return err
	}
	if err := checkPeriod("period", r.Period); err != nil {
		return err
	}
	if r.Burst.IsZero() {
		return nil
	}
	return checkAmount(burst, r.Burst)
}

func (r rated) compile(burst string) (law.Params, *calendar, error) {
	if err := r.check(burst); err != nil {
		return law.Params{}, nil, err
	}
	p, err := compileRate(r.Amount, r.Period, orAmount(r.Burst, r.Amount))
	if err != nil {
		return law.Params{}, nil, err
	}
	err = r.tail(&p)
	return p, nil, err
}

func (r rated) bound() Bound {
	b := Bound{period: r.Period}
	if r.Prefetch != (Prefetch{}) {
		b.lease = r.Prefetch.life()
	}
	return b
}
