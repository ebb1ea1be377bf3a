package headgate

import (
	"fmt"
	"math/big"
	"math/bits"
	"strings"
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

// algorithm is how an Algorithm is written.
type algorithm struct {
	name   string
	syntax string // what follows the name
	about  string // one sentence, for explain and docs
	parse  func(*notation) (Algorithm, error)
}

// algorithms lists the algorithms in the order in which people should meet
// them. The parser, explain and the docs read it.
var algorithms = []algorithm{
	ratedAlgorithm("token-bucket", "burst",
		"tokens drip in evenly, up to the burst; a request takes as many as it costs",
		func(r rated) Algorithm { return TokenBucket(r) }),
	ratedAlgorithm("leaky-bucket", "capacity",
		"a request pours its cost into a bucket that leaks evenly; what does not fit is refused",
		func(r rated) Algorithm { return LeakyBucket{r.Amount, r.Period, r.Burst, r.Tail} }),
	ratedAlgorithm("gcra", "burst",
		"requests are spaced evenly, a burst of them may come early",
		func(r rated) Algorithm { return GCRA(r) }),
	{
		"fixed-window", "AMOUNT/PERIOD [from-first] | AMOUNT/(minute|hour|day|week|month) [ZONE] " + refillOptions,
		"a count that starts at zero with each window; up to twice the amount passes around a boundary",
		parseFixedWindow,
	},
	ratedAlgorithm("interval", "burst",
		"tokens come all at once at the end of each period, up to the burst",
		func(r rated) Algorithm { return Interval(r) }),
	{
		"sliding-window", "AMOUNT/PERIOD " + plainOptions,
		"two adjacent counters, the older one fading out; small state, close to an exact sliding window",
		parseSlidingWindow,
	},
	{
		"sliding-log", "AMOUNT/PERIOD [history PERIOD] " + plainOptions,
		"exact: every admitted request counts until it is one period old; attempts can be kept as history",
		parseSlidingLog,
	},
	{
		"concurrency", "AMOUNT ttl PERIOD [block PERIOD] [deadline PERIOD] [scale N]",
		"so many leases at the same time; a lease that is not renewed ends after its time to live",
		parseConcurrency,
	},
}

// Help describes an algorithm, for help texts.
type Help struct {
	Notation string // with words such as N/PERIOD in the place of values
	About    string // one sentence
}

// Algorithms describes every algorithm, in the order in which people should meet them.
func Algorithms() []Help {
	list := make([]Help, len(algorithms))
	for i, e := range algorithms {
		list[i] = Help{e.name + " " + e.syntax, e.about}
	}
	return append(list,
		Help{"AMOUNT/PERIOD, AMOUNT per PERIOD", "token-bucket AMOUNT/PERIOD; options may follow"},
		Help{closedNotation, closedAbout}, Help{unlimitedNotation, unlimitedAbout})
}

// Explain describes the limit for people, in a few lines.
func (l Limit) Explain() string {
	if l.r == nil {
		return "no limit"
	}
	if l.r.algorithm == nil {
		return "limit      " + l.r.name
	}
	p := l.r.params
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", what, fmt.Sprintf(format, args...))
	}
	if l.r.named {
		line("limit", "%s", l.r.name)
	}
	line("notation", "%s", l.r.notation)
	word, _, _ := strings.Cut(l.r.notation, " ")
	switch word {
	case closedNotation:
		line("means", closedAbout)
	case unlimitedNotation:
		line("means", unlimitedAbout)
	}
	for _, e := range algorithms {
		if e.name == word {
			line("means", "%s", e.about)
		}
	}
	bound := l.Bound()
	line("lets", "%s", bound.intent)
	if worst := bound.worst(); worst != "" {
		line("at worst", "%s", worst)
	}
	if exact, err := NewLimit("", SlidingLog{Amount: bound.amount, Period: bound.period}); err == nil {
		line("or", "%s", exact.Bound())
	}
	if bound.away == AwayAllow {
		line("away", "everything passes while the store is away")
	}
	if word == closedNotation || word == unlimitedNotation {
		return strings.TrimSuffix(b.String(), "\n")
	}
	line("at once", "%s; a larger cost is refused with retry-after never", amountOf(big.NewInt(p.Capacity), p.Unit))
	line("smallest", "a cost of %s", smallest(p.Unit))
	if p.Kind == law.Bucket && p.Anchor == law.Own && p.Step > 1 && p.Drain < law.Max {
		line("steps", "tokens come in steps of %d us", p.Step)
	}
	if p.Block > 0 {
		line("block", "a key that is refused stays refused for %s",
			formatPeriod(time.Duration(p.Block)*time.Microsecond))
	}
	return strings.TrimSuffix(b.String(), "\n")
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

// What the two mean.
const (
	closedAbout    = "everything is refused"
	unlimitedAbout = "everything is admitted"
)

// closedUnit tells the Params of Closed from all others: a burst of half a millionth has a finer unit.
const closedUnit = 2_000_000

// compile makes a bucket of one credit, so that no cell of it ever changes: every cost is two.
func (Closed) compile() (law.Params, *calendar, error) {
	return law.Params{Kind: law.Bucket, Unit: closedUnit, Capacity: 1, Step: 1, Drain: 1}, nil, nil
}

// closed reports whether p are the Params of Closed.
func closed(p *law.Params) bool { return p.Capacity == 1 && p.Unit == closedUnit }

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
