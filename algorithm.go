package headgate

import (
	"time"

	"github.com/headgate/headgate/law"
)

// Algorithm is one of the ways to limit that this package knows: TokenBucket,
// LeakyBucket, GCRA, FixedWindow, Interval, SlidingWindow, SlidingLog and
// Concurrency. The set is closed. Each has its file and one entry in the
// catalogue; to add one is described in docs/adding-an-algorithm.md.
type Algorithm interface {
	// String returns the canonical one-line notation.
	String() string
	// compile returns the parameters of the law, or what is wrong. The
	// calendar is nil unless windows follow one.
	compile() (law.Params, *calendar, error)
	// bound returns the most that can pass. Only called once compiled.
	bound() Bound
}

// Tail are the options that every algorithm shares.
type Tail struct {
	// Block refuses a key for this long once it has been refused. Zero: not.
	Block time.Duration
	// Prefetch lets nodes take tokens up front. Zero: not.
	Prefetch Prefetch
}

// entry is an algorithm in the catalogue.
type entry struct {
	name   string
	syntax string // what follows the name
	about  string // one sentence, for explain and docs
	parse  func(*notation) (Algorithm, error)
}

// catalogue lists the algorithms in the order in which people should meet
// them. The parser, explain and the docs read it.
var catalogue = []entry{
	tokenBucketEntry, leakyBucketEntry, gcraEntry, fixedWindowEntry,
	intervalEntry, slidingWindowEntry, slidingLogEntry, concurrencyEntry,
}

// Usage returns the notation of every algorithm, one line each with what it
// does, for help texts.
func Usage() [][2]string {
	lines := make([][2]string, len(catalogue))
	for i, e := range catalogue {
		lines[i] = [2]string{e.name + " " + e.syntax, e.about}
	}
	return lines
}

// tail writes the options into p, or says what is wrong with it.
func (t Tail) tail(p *law.Params) error {
	if t.Block != 0 {
		if err := checkPeriod("block", t.Block); err != nil {
			return err
		}
		p.Block = t.Block.Microseconds()
	}
	return t.Prefetch.compile(p)
}

// suffix writes the options at the end of a notation.
func (t Tail) suffix() string {
	s := ""
	if t.Block != 0 {
		s = " block " + formatPeriod(t.Block)
	}
	return s + t.Prefetch.suffix()
}

// checkAmount says what is wrong with an amount given as a Go value.
func checkAmount(field string, c Cost) error {
	if c.coef <= 0 {
		return Invalid(field, "must be above 0")
	}
	return nil
}
