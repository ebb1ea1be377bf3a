package headgate

import (
	"github.com/headgate/headgate/law"
)

// Algorithm is one of the ways to limit that this package knows: TokenBucket,
// LeakyBucket, GCRA, FixedWindow, Interval, SlidingWindow, SlidingLog and
// Concurrency, and Closed and Unlimited. The set is closed. Each has its file and one entry in the
// catalogue; to add one is described in docs/project/adding-an-algorithm.md.
type Algorithm interface {
	// String returns the canonical one-line notation.
	String() string
	// compile returns the parameters of the law, or what is wrong. The
	// calendar is nil unless windows follow one.
	compile() (law.Params, *calendar, error)
	// bound returns the most that can pass. Only called once compiled.
	bound() Bound
}
