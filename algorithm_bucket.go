package headgate

import (
	"math/big"
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

// String returns the canonical notation.
func (a TokenBucket) String() string { return rated(a).canonical("token-bucket", "burst") }

func (a TokenBucket) compile() (law.Params, *calendar, error) { return rated(a).compile("burst") }
func (a TokenBucket) bound() Bound                            { return rated(a).bound() }

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

func (a LeakyBucket) rated() rated { return rated{a.Amount, a.Period, a.Capacity, a.Tail} }

// String returns the canonical notation.
func (a LeakyBucket) String() string { return a.rated().canonical("leaky-bucket", "capacity") }

func (a LeakyBucket) compile() (law.Params, *calendar, error) { return a.rated().compile("capacity") }
func (a LeakyBucket) bound() Bound                            { return a.rated().bound() }

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

// String returns the canonical notation.
func (a GCRA) String() string { return rated(a).canonical("gcra", "burst") }

func (a GCRA) compile() (law.Params, *calendar, error) { return rated(a).compile("burst") }
func (a GCRA) bound() Bound                            { return rated(a).bound() }

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

// String returns the canonical notation.
func (a Interval) String() string { return rated(a).canonical("interval", "burst") }

func (a Interval) compile() (law.Params, *calendar, error) {
	if err := rated(a).valid("burst"); err != nil {
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
			err := a.setOptions(&p)
			return p, nil, err
		}
	}
	return law.Params{}, nil, tooFine("amount", a.Scale, "%s with a burst of %s is too large", a.Amount, burst)
}

func (a Interval) bound() Bound { return rated(a).bound() }

// rated is what TokenBucket, LeakyBucket and GCRA are: they make the same decisions in three vocabularies. An Interval
// has the same parameters.
type rated struct {
	Amount Cost
	Period time.Duration
	Burst  Cost
	Tail
}

func (r rated) canonical(name, burst string) string {
	return name + " " + r.Amount.String() + "/" + formatPer(r.Period) +
		" " + burst + " " + orAmount(r.Burst, r.Amount).String() + r.suffix()
}

// valid returns what is wrong with the values; burst is the field's name.
func (r rated) valid(burst string) error {
	if err := checkAmount("amount", r.Amount); err != nil {
		return err
	}
	if _, err := microsOf("period", r.Period); err != nil {
		return err
	}
	if r.Burst.IsZero() {
		return nil
	}
	return checkAmount(burst, r.Burst)
}

func (r rated) compile(burst string) (law.Params, *calendar, error) {
	if err := r.valid(burst); err != nil {
		return law.Params{}, nil, err
	}
	p, err := compileRate(r.Amount, r.Period, orAmount(r.Burst, r.Amount), r.Scale)
	if err != nil {
		return law.Params{}, nil, err
	}
	err = r.setOptions(&p)
	return p, nil, err
}

func (r rated) bound() Bound {
	burst, each := orAmount(r.Burst, r.Amount), wordPeriod(r.Period)
	b := Bound{period: r.Period, long: onePeriod(r.Period), amount: r.Amount}
	if b.intent = r.Amount.String() + " pass each " + each; burst != r.Amount {
		b.intent += ", " + burst.String() + " at once"
	}
	if r.Prefetch != (Prefetch{}) {
		b.lease = r.Prefetch.life()
	}
	return b
}

// compileRate turns amount per period, with a burst, into the bucket law: a
// unit, a capacity, and a drain of exactly amount units per period.
//
// With amount/period = num/den in lowest terms per step g, a unit of den*m
// credits drains num*m credits a step; m makes the unit a multiple of a grain
// that fits, so that costs of a thousandth, or of the scale, are exact. Where the numbers
// would pass 2^53, g is the smallest power of ten microseconds for which they
// do not: the rate stays exact, and tokens come at most g late.
func compileRate(amount Cost, period time.Duration, burst Cost, digits uint8) (law.Params, error) {
	micros := big.NewRat(period.Microseconds(), 1)
	perMicro := new(big.Rat).Quo(amount.rat(), micros)
	for g := int64(1); g <= period.Microseconds(); g *= 10 {
		perStep := new(big.Rat).Mul(perMicro, big.NewRat(g, 1))
		for _, grain := range grains(digits) {
			unit, drain, ok := wholeCredits(perStep, lcm(big.NewInt(grain), big.NewInt(pow10[burst.exp])))
			if !ok {
				continue
			}
			capacity, err := burst.credits(unit)
			if err != nil {
				continue
			}
			p := law.Params{Kind: law.Bucket, Unit: unit, Capacity: capacity, Step: g, Drain: drain}
			if p.Valid() == nil {
				return p, nil
			}
		}
	}
	return law.Params{}, tooFine("amount", digits, "%s per %s with a burst of %s does not fit exactly into 53 bits, "+
		"or a full bucket takes more than 142 years to empty", amount, formatPeriod(period), burst)
}

// wholeCredits returns the smallest unit that is a multiple of grain and for which
// perStep units are a whole number of credits, and that number.
func wholeCredits(perStep *big.Rat, grain *big.Int) (unit, drain int64, ok bool) {
	u := lcm(perStep.Denom(), grain)
	m := new(big.Int).Quo(u, perStep.Denom())
	d := m.Mul(m, perStep.Num())
	most := big.NewInt(law.Max)
	if u.Cmp(most) > 0 || d.Cmp(most) > 0 {
		return 0, 0, false
	}
	return u.Int64(), d.Int64(), true
}

// orAmount returns the burst, or its default: the amount, at least 1.
func orAmount(burst, amount Cost) Cost {
	if !burst.IsZero() {
		return burst
	}
	if amount.rat().Cmp(big.NewRat(1, 1)) < 0 {
		return Units(1)
	}
	return amount
}
