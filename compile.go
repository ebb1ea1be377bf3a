package headgate

import (
	"math/big"
	"math/bits"
	"time"

	"github.com/headgate/headgate/law"
)

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
	return law.Params{}, tooFine("amount", digits, "%s per %s with a burst of %s does not fit exactly into 53 bits, "+
		"or a full bucket takes more than 142 years to empty", amount, formatPeriod(period), burst)
}

// minScale is the least scale that can be said: without one costs are counted in thousandths.
const minScale = 4

// errScale is the error of a scale that is none.
func errScale(s string) error {
	return Invalid("scale", "%.100q is not a number of digits from %d to %d; without it costs are counted in "+
		"thousandths", s, minScale, maxExp)
}

// grains returns of which steps of a unit a limit may be counted in the first that fits: those of a scale, or else
// thousandths or coarser ones.
func grains(scale uint8) []int64 {
	if scale != 0 {
		return []int64{pow10[scale]}
	}
	return []int64{1000, 100, 10, 1}
}

// tooFine is the error of amounts that fit in none of the grains.
func tooFine(field string, scale uint8, format string, args ...any) error {
	if scale != 0 {
		format += "; a smaller scale than %d may fit"
		args = append(args, scale)
	}
	return Invalid(field, format, args...)
}

// digitsOf returns how many digits a number of credits has after the point, in units.
func digitsOf(credits, unit int64) (n uint8) {
	for rest := credits % unit; rest != 0 && n < maxExp; n++ {
		hi, lo := bits.Mul64(uint64(rest), 10)
		_, r := bits.Div64(hi, lo, uint64(unit))
		rest = int64(r)
	}
	return n
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
// arithmetic needs no rate: a multiple of the grain where that stays below most.
func compileCount(field string, amount Cost, digits uint8, most int64) (unit, capacity int64, err error) {
	for _, grain := range grains(digits) {
		unit = lcm(big.NewInt(grain), big.NewInt(pow10[amount.exp])).Int64()
		capacity, err = amount.credits(unit)
		if err == nil && capacity <= most {
			return unit, capacity, nil
		}
	}
	return 0, 0, tooFine(field, digits, "%s is too large", amount)
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
