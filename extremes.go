package headgate

import (
	"time"

	"github.com/headgate/headgate/law"
)

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
