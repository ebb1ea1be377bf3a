package headgate

import (
	"math"
	"math/big"
	"time"

	"github.com/headgate/headgate/law"
)

// Within returns how many charges of a cost can pass at most for a key that
// is fresh at first, with decision times from first to last. It is what an
// audit compares with, and mostly less than Bound states for any interval of
// that length: it knows which windows the times lie in.
//
// Who asks all the time gets that many. Of a sliding-window that is so within
// one window; where the times touch several, each counts in full. Errors are
// ErrInvalid, about the cost.
func (l Limit) Within(first, last time.Time, cost Cost) (int64, error) {
	if l.r == nil {
		return 0, Invalid("limit", "is missing")
	}
	p := &l.r.params
	c, err := cost.charged(p)
	if err != nil {
		return 0, err
	}
	if last.Before(first) {
		return 0, nil
	}
	steps := l.r.steps(first, last)
	most := new(big.Int)
	if p.Kind == law.Bucket && p.Drain < p.Capacity {
		// A full bucket, and what has drained since.
		most.Mul(big.NewInt(p.Drain), big.NewInt(steps))
		most.Add(most, big.NewInt(p.Capacity))
		most.Quo(most, big.NewInt(c))
	} else {
		// Each window afresh: what is left over in one helps no later one.
		most.Mul(big.NewInt(p.Capacity/c), big.NewInt(steps+1))
	}
	if !most.IsInt64() {
		return math.MaxInt64, nil
	}
	return most.Int64(), nil
}

// steps counts the steps of the law, or the ends of windows, after first and
// not after last, of a key that was fresh at first.
func (r *rule) steps(first, last time.Time) int64 {
	from, to := first.UnixMicro(), last.UnixMicro()
	switch p := &r.params; {
	case p.Kind == law.Bucket && p.Anchor == law.Calendar:
		var n int64
		for end := r.calendar.bounds(from)[2]; end <= to; end = r.calendar.bounds(end)[2] {
			n++
		}
		return n
	case p.Kind == law.Window, p.Kind == law.Bucket && p.Anchor == law.Epoch:
		return to/p.Step - from/p.Step
	default:
		return (to - from) / p.Step
	}
}
