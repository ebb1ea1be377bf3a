package headgate

import (
	"math/big"
	"time"

	"github.com/headgate/headgate/law"
)

// Algorithm is one of the ways to limit that this package knows: TokenBucket,
// LeakyBucket, GCRA, FixedWindow, Interval, SlidingWindow, SlidingLog and
// Concurrency, and Closed and Unlimited. The set is closed; docs/project/adding-an-algorithm.md says how one is added.
type Algorithm interface {
	// String returns the canonical one-line notation.
	String() string
	// compile returns the parameters of the law, or what is wrong. The
	// calendar is nil unless windows follow one.
	compile() (law.Params, *calendar, error)
	// bound returns the most that can pass. Only called once compiled.
	bound() Bound
}

// Closed refuses everything: of a feature that is switched off, or a plan without it. Each
// refusal has retry-after never.
//
//	0
type Closed struct{}

// Unlimited admits everything: of a plan without a limit. It takes a row a key in the store, as
// other limits do, and a cost above 9,007,199,254,740 is refused.
//
//	unlimited
type Unlimited struct{}

// The notations of the two.
const (
	closedNotation    = "0"
	unlimitedNotation = "unlimited"
)

// String returns the canonical notation.
func (Closed) String() string { return closedNotation }

// String returns the canonical notation.
func (Unlimited) String() string { return unlimitedNotation }

// compile makes a bucket of one credit, so that no cell of it ever changes: every cost is two.
func (Closed) compile() (law.Params, *calendar, error) {
	return law.Params{Kind: law.Bucket, Unit: closedUnit, Capacity: 1, Step: 1, Drain: 1}, nil, nil
}

// compile makes a bucket that is as large as the laws can count, and empty after a microsecond.
func (Unlimited) compile() (law.Params, *calendar, error) {
	const most = law.Max / 1000 * 1000
	return law.Params{Kind: law.Bucket, Unit: 1000, Capacity: most, Step: 1, Drain: most}, nil, nil
}

func (Closed) bound() Bound    { return Bound{period: time.Second, intent: "nothing pass"} }
func (Unlimited) bound() Bound { return Bound{period: time.Second, intent: "everything pass"} }

// compileCount completes the parameters of a limit whose arithmetic needs no rate: it counts up to an amount. The unit
// is a multiple of the grain where that stays below what the law can count. field is the name of the step.
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
			return p, options.setOptions(&p)
		}
	}
	return p, tooFine("amount", options.Scale, "%s is too large", amount)
}

// grains returns of which steps of a unit a limit may be counted in the first that fits: those of a scale, or else
// thousandths or coarser ones.
func grains(scale uint8) []int64 {
	if scale != 0 {
		return []int64{pow10[scale]}
	}
	return []int64{1000, 100, 10, 1}
}

// tooFine returns the error of amounts that fit in none of the grains.
func tooFine(field string, scale uint8, format string, args ...any) error {
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
