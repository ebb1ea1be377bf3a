package headgate

import (
	"math/big"
	"time"

	"github.com/headgate/headgate/law"
)

// compileRate turns amount per period, with a burst, into the bucket law: a
// unit, a capacity, and a drain of exactly amount units per period.
//
// With amount/period = num/den in lowest terms per step g, a unit of den*m
// credits drains num*m credits a step; m makes the unit a multiple of 1000
// where that fits, so that costs of a thousandth are exact. Where the numbers
// would pass 2^53, g is the smallest power of ten microseconds for which they
// do not: the rate stays exact, and tokens come at most g late.
func compileRate(amount Cost, period time.Duration, burst Cost) (law.Params, error) {
	micros := big.NewRat(period.Microseconds(), 1)
	perMicro := new(big.Rat).Quo(amount.rat(), micros)
	for g := int64(1); g <= period.Microseconds(); g *= 10 {
		perStep := new(big.Rat).Mul(perMicro, big.NewRat(g, 1))
		for _, grain := range []int64{1000, 100, 10, 1} {
			unit, drain, ok := scale(perStep, lcm(big.NewInt(grain), big.NewInt(pow10[burst.exp])))
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
	return law.Params{}, Invalid("amount", "%s per %s with a burst of %s does not fit exactly into 53 bits, "+
		"or a full bucket takes more than 142 years to empty", amount, formatPeriod(period), burst)
}

// scale returns the smallest unit that is a multiple of grain and for which
// perStep units are a whole number of credits, and that number.
func scale(perStep *big.Rat, grain *big.Int) (unit, drain int64, ok bool) {
	u := lcm(perStep.Denom(), grain)
	m := new(big.Int).Quo(u, perStep.Denom())
	d := m.Mul(m, perStep.Num())
	most := big.NewInt(law.Max)
	if u.Cmp(most) > 0 || d.Cmp(most) > 0 {
		return 0, 0, false
	}
	return u.Int64(), d.Int64(), true
}

// lcm returns the least common multiple.
func lcm(a, b *big.Int) *big.Int {
	g := new(big.Int).GCD(nil, nil, a, b)
	return g.Mul(new(big.Int).Quo(a, g), b)
}

// compileCount returns a unit, and the credits of amount, for limits whose
// arithmetic needs no rate: a multiple of 1000 where that stays below most.
func compileCount(field string, amount Cost, most int64) (unit, capacity int64, err error) {
	for _, grain := range []int64{1000, 100, 10, 1} {
		unit = lcm(big.NewInt(grain), big.NewInt(pow10[amount.exp])).Int64()
		capacity, err = amount.credits(unit)
		if err == nil && capacity <= most {
			return unit, capacity, nil
		}
	}
	return 0, 0, Invalid(field, "%s is too large", amount)
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
