package headgate

import (
	"math/big"
	"time"

	"github.com/headgate/headgate/law"
)

// Algorithm is a way to limit: TokenBucket, LeakyBucket, GCRA, FixedWindow, Interval, SlidingWindow, SlidingLog,
// Concurrency, Closed or Unlimited. Other packages cannot implement it; docs/project/adding-an-algorithm.md says how to
// add an algorithm to this one.
type Algorithm interface {
	// String returns the canonical one-line notation.
	String() string
	// compile returns the parameters, or an error about the values. The calendar is nil unless the anchor is
	// law.Calendar.
	compile() (law.Params, *calendar, error)
	// bound returns the Bound without what [Limit.Bound] adds. It is called only on values that compile.
	bound() Bound
}

// Closed refuses everything. It is for features that are switched off or not in a plan. Each refusal has the RetryAfter
// [Never].
//
//	0
type Closed struct{}

// Unlimited admits everything. It is for a plan without a limit. Like other limits it takes a row per key in the store,
// and it refuses a cost above 9,007,199,254,740.
//
//	unlimited
type Unlimited struct{}

// The notations of Closed and Unlimited.
const (
	closedNotation    = "0"
	unlimitedNotation = "unlimited"
)

// String returns the canonical notation.
func (Closed) String() string { return closedNotation }

// String returns the canonical notation.
func (Unlimited) String() string { return unlimitedNotation }

// compile makes a bucket of one credit. Every cost is charged as two credits, so it never fits.
func (Closed) compile() (law.Params, *calendar, error) {
	return law.Params{Kind: law.Bucket, Unit: closedUnit, Capacity: 1, Step: 1, Drain: 1}, nil, nil
}

// compile makes a bucket that is as large as the laws can count, and empty after a microsecond.
func (Unlimited) compile() (law.Params, *calendar, error) {
	const maxCredits = law.Max / 1000 * 1000
	return law.Params{Kind: law.Bucket, Unit: 1000, Capacity: maxCredits, Step: 1, Drain: maxCredits}, nil, nil
}

func (Closed) bound() Bound    { return Bound{period: time.Second, intent: "nothing pass"} }
func (Unlimited) bound() Bound { return Bound{period: time.Second, intent: "everything pass"} }

// compileCount completes the parameters of a limit without a rate, which counts up to an amount. The unit is a multiple
// of the largest grain for which the law can count the amount. field is the name of the step in errors.
func compileCount(p law.Params, amount Cost, field string, step time.Duration, options Tail) (law.Params, error) {
	if err := checkAmount("amount", amount); err != nil {
		return p, err
	}
	var err error
	if p.Step, err = microsOf(field, step); err != nil {
		return p, err
	}
	for _, grain := range grains(options.Scale) {
		p.Unit = lcm(big.NewInt(grain), big.NewInt(pow10[amount.exp])).Int64()
		p.Capacity, err = amount.credits(p.Unit)
		if err == nil && p.Capacity <= p.Highest() {
			return p, options.applyOptions(&p)
		}
	}
	return p, noGrainError("amount", options.Scale, "%s is too large", amount)
}

// grains returns the candidates for the grain of a limit, best first. The unit is a multiple of the grain, in credits.
// With a scale there is one candidate; without a scale they are 1000 and smaller powers of ten.
func grains(scale uint8) []int64 {
	if scale != 0 {
		return []int64{pow10[scale]}
	}
	return []int64{1000, 100, 10, 1}
}

// noGrainError returns the error for amounts that fit with none of the grains.
func noGrainError(field string, scale uint8, format string, args ...any) error {
	if scale != 0 {
		format += "; a smaller scale than %d may fit"
		args = append(args, scale)
	}
	return Invalid(field, format, args...)
}

// lcm returns the least common multiple.
func lcm(a, b *big.Int) *big.Int {
	g := new(big.Int).GCD(nil, nil, a, b)
	return g.Mul(new(big.Int).Quo(a, g), b)
}
