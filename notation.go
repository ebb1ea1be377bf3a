package headgate

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/law"
)

// algorithmSyntax is the syntax of an Algorithm.
type algorithmSyntax struct {
	name   string
	syntax string // what follows the name
	about  string // description in one sentence, for Explain and docs
	parse  func(*parser) (Algorithm, error)
}

// algorithms lists the algorithms in the order in which people should learn about them. The parser, Explain and the
// docs read it.
var algorithms = []algorithmSyntax{
	rateSyntax("token-bucket", "burst",
		"tokens drip in evenly, up to the burst; a request takes as many as it costs",
		func(r rateAlgorithm) Algorithm { return TokenBucket(r) }),
	rateSyntax("leaky-bucket", "capacity",
		"a request pours its cost into a bucket that leaks evenly; what does not fit is refused",
		func(r rateAlgorithm) Algorithm { return LeakyBucket{r.Amount, r.Period, r.Burst, r.Tail} }),
	rateSyntax("gcra", "burst",
		"requests are spaced evenly, a burst of them may come early",
		func(r rateAlgorithm) Algorithm { return GCRA(r) }),
	{
		"fixed-window", "AMOUNT/PERIOD [from-first] | AMOUNT/(minute|hour|day|week|month) [ZONE] " + refillOptions,
		"a count that starts at zero with each window; up to twice the amount passes around a boundary",
		parseFixedWindow,
	},
	rateSyntax("interval", "burst",
		"tokens come all at once at the end of each period, up to the burst",
		func(r rateAlgorithm) Algorithm { return Interval(r) }),
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
		"concurrency", "AMOUNT ttl PERIOD [block PERIOD] [deadline PERIOD] [scale N] [notify N%,N%]",
		"so many leases at the same time; a lease that is not renewed ends after its time to live",
		parseConcurrency,
	},
}

// rateSyntax returns the syntax of an algorithm with a rate and a burst. burst is the word for the burst in its
// notation; convert makes the algorithm from the parsed values.
func rateSyntax(name, burst, about string, convert func(rateAlgorithm) Algorithm) algorithmSyntax {
	parse := func(p *parser) (Algorithm, error) {
		if err := p.needPeriod(); err != nil {
			return nil, err
		}
		amount, err := option(p, burst, func(s string) (Cost, error) { return parseAmount(burst, s) })
		return convert(rateAlgorithm{p.amount, p.period, amount, p.Tail}), err
	}
	return algorithmSyntax{name, "AMOUNT/PERIOD [" + burst + " N] " + refillOptions, about, parse}
}

// Help describes an algorithm, for help texts.
type Help struct {
	Notation string // syntax, with placeholders such as AMOUNT/PERIOD
	About    string // description in one sentence
}

// Algorithms describes every algorithm and short form, in the order in which people should learn about them.
func Algorithms() []Help {
	list := make([]Help, len(algorithms))
	for i, e := range algorithms {
		list[i] = Help{e.name + " " + e.syntax, e.about}
	}
	return append(list,
		Help{"AMOUNT/PERIOD, AMOUNT per PERIOD", "token-bucket AMOUNT/PERIOD; options may follow"},
		Help{closedNotation, "everything is refused"}, Help{unlimitedNotation, "everything is admitted"})
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
	for _, h := range Algorithms() {
		if name, _, _ := strings.Cut(h.Notation, " "); name == word {
			line("means", "%s", h.About)
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
	line("smallest", "a cost of %s", smallestCost(p.Unit))
	if p.Kind == law.Bucket && p.Anchor == law.Own && p.Step > 1 && p.Drain < law.Max {
		line("steps", "tokens come in steps of %d us", p.Step)
	}
	if p.Block > 0 {
		line("block", "a key that is refused stays refused for %s",
			formatPeriod(time.Duration(p.Block)*time.Microsecond))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Parse parses a one-line notation, for example "token-bucket 100/s burst 200". The limit has no name. Errors are
// ErrInvalid; most are a [*ParseError].
func Parse(notation string) (Limit, error) { return ParseNamed("", notation) }

// ParseNamed parses a one-line notation and gives the limit a name.
func ParseNamed(name, notation string) (Limit, error) {
	a, err := parseNotation(notation)
	if err != nil {
		return Limit{}, err
	}
	l, err := NewLimit(name, a)
	if err != nil {
		return Limit{}, fmt.Errorf("limit %q: %w", notation, err)
	}
	return l, nil
}

// MustParse parses a constant. It panics where Parse would fail.
func MustParse(notation string) Limit { return MustParseNamed("", notation) }

// MustParseNamed parses a constant. It panics where ParseNamed would fail.
func MustParseNamed(name, notation string) Limit { return must(ParseNamed(name, notation)) }

// parseNotation parses the notation of an algorithm.
func parseNotation(text string) (Algorithm, error) {
	p := &parser{text: text, options: map[string]token{}, valuesAt: map[string]int{}}
	if len(text) > law.MaxName {
		p.text = text[:0]
		return nil, p.fail("limit", 0, fmt.Sprintf("is %d bytes long, at most %d are allowed", len(text), law.MaxName))
	}
	p.split()
	if len(p.fields) == 0 {
		return nil, p.fail("limit", 0, "is empty; write for example token-bucket 100/s burst 200")
	}
	if len(p.fields) == 1 {
		switch p.fields[0].text {
		case closedNotation:
			return Closed{}, nil
		case unlimitedNotation:
			return Unlimited{}, nil
		}
	}
	if err := p.expandShortForm(); err != nil {
		return nil, err
	}
	p.name = p.fields[0].text
	var names []string
	for _, a := range algorithms {
		names = append(names, a.name)
	}
	i := slices.Index(names, p.name)
	if i < 0 {
		return nil, p.fail("algorithm", p.fields[0].at,
			fmt.Sprintf("%q is not known; known are %s", p.name, strings.Join(names, ", ")))
	}
	if len(p.fields) == 1 {
		return nil, p.fail("amount", len(text), "is missing: write "+p.name+" "+algorithms[i].syntax)
	}
	if err := p.parseRate(p.fields[1]); err != nil {
		return nil, err
	}
	if err := p.parseOptions(p.fields[2:]); err != nil {
		return nil, err
	}
	if err := p.readTail(strings.HasSuffix(algorithms[i].syntax, refillOptions)); err != nil {
		return nil, err
	}
	a, err := algorithms[i].parse(p)
	if err != nil {
		return nil, err
	}
	unusedOption, at := "", len(text)+1 // the first option that the algorithm did not use
	for word, f := range p.options {
		if f.at < at {
			unusedOption, at = word, f.at
		}
	}
	if unusedOption != "" {
		return nil, p.fail(unusedOption, at, "does not apply to "+p.name)
	}
	return a, nil
}

// MarshalText implements encoding.TextMarshaler, for JSON, configurations and flags: it returns the notation, after
// "NAME = " if the limit has a name. For the zero Limit there is no text; for a [Named] one it is the name.
func (l Limit) MarshalText() ([]byte, error) {
	if l.IsZero() {
		return nil, nil
	}
	text := l.String()
	if l.Named() && l.r.algorithm != nil {
		text = l.Name() + nameMark + text
	}
	return []byte(text), nil
}

// nameMark stands between the name and the notation in the text of a limit.
const nameMark = " = "

// UnmarshalText implements encoding.TextUnmarshaler: it reads what MarshalText writes, except for a [Named] limit, and
// any notation that [Parse] reads. Errors are ErrInvalid, and leave l as it was.
func (l *Limit) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*l = Limit{}
		return nil
	}
	name, notation, named := strings.Cut(string(text), nameMark)
	if !named {
		name, notation = "", name
	} else if err := ValidName(name); err != nil {
		return err
	}
	parsed, err := ParseNamed(name, notation)
	if err == nil {
		*l = parsed
	}
	return err
}

// Set implements flag.Value: it reads the same texts as [Limit.UnmarshalText].
func (l *Limit) Set(text string) error { return l.UnmarshalText([]byte(text)) }

// Queues reports whether [Limiter.Reserve] gives each waiting caller its own start, first come, first served, among all
// who share the store. It is true for token-bucket, leaky-bucket and gcra.
func (l Limit) Queues() bool {
	switch l.Algorithm().(type) {
	case TokenBucket, LeakyBucket, GCRA:
		return true
	}
	return false
}

// Refundable reports whether Cancel is sure to give back all of a charge that still counts, however many others are
// cancelled and in whatever order. It is true for sliding-window and sliding-log, and false for a limit of which only
// the name is known.
func (l Limit) Refundable() bool {
	switch l.Algorithm().(type) {
	case SlidingWindow, SlidingLog:
		return true
	}
	return false
}
