package headgate

import (
	"math/big"
	"time"

	"github.com/headgate/headgate/law"
)

// TokenBucket admits while there are tokens: Amount tokens drip in per Period, evenly, up to Burst. A new key starts
// with a full bucket.
//
//	token-bucket 100/s burst 200
type TokenBucket struct {
	Amount Cost          // tokens per Period
	Period time.Duration // at least a microsecond
	Burst  Cost          // the most that can pass at once; zero: Amount, at least 1
	Tail
}

// String returns the canonical notation.
func (a TokenBucket) String() string { return rateAlgorithm(a).canonical("token-bucket", "burst") }

func (a TokenBucket) compile() (law.Params, *calendar, error) {
	return rateAlgorithm(a).compile("burst")
}
func (a TokenBucket) bound() Bound { return rateAlgorithm(a).bound() }

// LeakyBucket admits what still fits: a request pours its cost into the bucket, which holds Capacity and leaks Amount
// per Period. It decides like a token bucket whose tokens are the room left.
//
//	leaky-bucket 1.5/s capacity 3
type LeakyBucket struct {
	Amount   Cost          // leaks per Period
	Period   time.Duration // at least a microsecond
	Capacity Cost          // the most that can pass at once; zero: Amount, at least 1
	Tail
}

func (a LeakyBucket) rateAlgorithm() rateAlgorithm {
	return rateAlgorithm{a.Amount, a.Period, a.Capacity, a.Tail}
}

// String returns the canonical notation.
func (a LeakyBucket) String() string { return a.rateAlgorithm().canonical("leaky-bucket", "capacity") }

func (a LeakyBucket) compile() (law.Params, *calendar, error) {
	return a.rateAlgorithm().compile("capacity")
}
func (a LeakyBucket) bound() Bound { return a.rateAlgorithm().bound() }

// GCRA is the generic cell rate algorithm (ITU-T I.371): requests come Period/Amount apart on average, and up to Burst
// of them early. It decides like a token bucket; the level is the theoretical arrival time.
//
//	gcra 10/s burst 5
type GCRA struct {
	Amount Cost          // requests per Period
	Period time.Duration // at least a microsecond
	Burst  Cost          // the most that can pass at once; zero: Amount, at least 1
	Tail
}

// String returns the canonical notation.
func (a GCRA) String() string { return rateAlgorithm(a).canonical("gcra", "burst") }

func (a GCRA) compile() (law.Params, *calendar, error) { return rateAlgorithm(a).compile("burst") }
func (a GCRA) bound() Bound                            { return rateAlgorithm(a).bound() }

// Interval is a token bucket that is refilled in one go: Amount tokens at the end of each Period, up to Burst. The
// periods are counted from the first use of a key, and again whenever its bucket was full.
//
//	interval 100/10s burst 300
type Interval struct {
	Amount Cost          // tokens per Period, all at once
	Period time.Duration // at least a microsecond
	Burst  Cost          // the most that can pass at once; zero: Amount, at least 1
	Tail
}

// String returns the canonical notation.
func (a Interval) String() string { return rateAlgorithm(a).canonical("interval", "burst") }

// compile returns a bucket whose step is the whole period, with the first grain for which amount and burst fit exactly.
func (a Interval) compile() (law.Params, *calendar, error) {
	if err := rateAlgorithm(a).valid("burst"); err != nil {
		return law.Params{}, nil, err
	}
	burst := burstOrDefault(a.Burst, a.Amount)
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
			err := a.applyOptions(&p)
			return p, nil, err
		}
	}
	return law.Params{}, nil, noGrainError("amount", a.Scale, "%s with a burst of %s is too large", a.Amount, burst)
}

func (a Interval) bound() Bound { return rateAlgorithm(a).bound() }

// rateAlgorithm has the parameters that TokenBucket, LeakyBucket, GCRA and Interval share. The first three make the
// same decisions, in three vocabularies.
type rateAlgorithm struct {
	Amount Cost
	Period time.Duration
	Burst  Cost
	Tail
}

// canonical returns the canonical notation; burst is the word for the burst in it.
func (r rateAlgorithm) canonical(name, burst string) string {
	return name + " " + r.Amount.String() + "/" + formatRatePeriod(r.Period) +
		" " + burst + " " + burstOrDefault(r.Burst, r.Amount).String() + r.suffix()
}

// valid returns what is wrong with the values, or nil; burst is the name of the field Burst in errors.
func (r rateAlgorithm) valid(burst string) error {
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

// compile returns the parameters of the bucket law; burst is the name of the field Burst in errors.
func (r rateAlgorithm) compile(burst string) (law.Params, *calendar, error) {
	if err := r.valid(burst); err != nil {
		return law.Params{}, nil, err
	}
	p, err := compileRate(r.Amount, r.Period, burstOrDefault(r.Burst, r.Amount), r.Scale)
	if err != nil {
		return law.Params{}, nil, err
	}
	err = r.applyOptions(&p)
	return p, nil, err
}

func (r rateAlgorithm) bound() Bound {
	burst, period := burstOrDefault(r.Burst, r.Amount), describePeriod(r.Period)
	b := Bound{period: r.Period, periodText: describeInPeriod(r.Period), amount: r.Amount}
	if b.intent = r.Amount.String() + " pass each " + period; burst != r.Amount {
		b.intent += ", " + burst.String() + " at once"
	}
	if r.Prefetch != (Prefetch{}) {
		b.prefetchLife = r.Prefetch.life()
	}
	return b
}

// compileRate turns amount per period, with a burst, into the bucket law: a unit, a capacity, and a drain of exactly
// amount units per period.
//
// With amount/period = num/den per step, in lowest terms, a unit of den*m credits drains num*m credits a step. m makes
// the unit a multiple of a grain, so that costs in thousandths, or in the digits of the scale, are exact if the best
// grain fits. The step is the smallest power of ten microseconds for which the law can count with any grain: the rate
// stays exact, and tokens come at most a step late.
func compileRate(amount Cost, period time.Duration, burst Cost, scale uint8) (law.Params, error) {
	micros := big.NewRat(period.Microseconds(), 1)
	perMicro := new(big.Rat).Quo(amount.rat(), micros)
	for step := int64(1); step <= period.Microseconds(); step *= 10 {
		perStep := new(big.Rat).Mul(perMicro, big.NewRat(step, 1))
		for _, grain := range grains(scale) {
			unit, drain, ok := wholeCredits(perStep, lcm(big.NewInt(grain), big.NewInt(pow10[burst.exp])))
			if !ok {
				continue
			}
			capacity, err := burst.credits(unit)
			if err != nil {
				continue
			}
			p := law.Params{Kind: law.Bucket, Unit: unit, Capacity: capacity, Step: step, Drain: drain}
			if p.Valid() == nil {
				return p, nil
			}
		}
	}
	return law.Params{}, noGrainError("amount", scale,
		"%s per %s with a burst of %s does not fit exactly into 53 bits, "+
			"or a full bucket takes more than 142 years to empty", amount, formatPeriod(period), burst)
}

// wholeCredits returns the smallest unit that is a multiple of grain and for which perStep units are a whole number of
// credits, and that number as drain. ok is false if one of them exceeds law.Max.
func wholeCredits(perStep *big.Rat, grain *big.Int) (unit, drain int64, ok bool) {
	u := lcm(perStep.Denom(), grain)
	m := new(big.Int).Quo(u, perStep.Denom())
	d := m.Mul(m, perStep.Num())
	maxCredits := big.NewInt(law.Max)
	if u.Cmp(maxCredits) > 0 || d.Cmp(maxCredits) > 0 {
		return 0, 0, false
	}
	return u.Int64(), d.Int64(), true
}

// burstOrDefault returns burst, or its default if it is zero: the amount, at least 1.
func burstOrDefault(burst, amount Cost) Cost {
	if !burst.IsZero() {
		return burst
	}
	if amount.rat().Cmp(big.NewRat(1, 1)) < 0 {
		return Units(1)
	}
	return amount
}
