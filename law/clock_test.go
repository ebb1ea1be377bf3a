package law_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// second is in microseconds.
const second = int64(1_000_000)

var hundred = law.Params{Kind: law.Bucket, Unit: 10_000, Capacity: 1_000_000, Step: 1, Drain: 1} // 100/s burst 100

// hammer takes one unit every millisecond of true time for so long; the store
// shows clock(true time). It returns how many passed.
func hammer(c *cell, p law.Params, from, length int64, clock func(int64) int64) (n int64) {
	for now := from; now < from+length; now += 1000 {
		n += c.apply(take(p, p.Unit), clock(now)).Granted
	}
	return n
}

func TestABackwardStepOfTheClockMintsNothing(t *testing.T) {
	t.Parallel()
	for _, back := range []int64{second, 30 * second, 3600 * second} {
		var c cell
		n := hammer(&c, hundred, start, 2*second, func(t int64) int64 { return t })
		n += hammer(&c, hundred, start+2*second, 2*second, func(t int64) int64 { return t - back })
		if n > 100+4*100 {
			t.Errorf("back by %d s: %d passed in 4 s", back/second, n)
		}
		// The step forward that corrects it is worth one burst at most.
		n += hammer(&c, hundred, start+4*second, 2*second, func(t int64) int64 { return t })
		if n > 100+6*100+100 {
			t.Errorf("back by %d s and forth: %d passed in 6 s", back/second, n)
		}
	}
}

func TestAForwardJumpMintsOneBurstAndIsHealed(t *testing.T) {
	t.Parallel()
	for _, p := range []law.Params{
		hundred,
		{Kind: law.Window, Unit: 1000, Capacity: 100_000, Step: second},
		{Kind: law.Log, Unit: 1000, Capacity: 100_000, Step: second},
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 100_000, Step: second, Drain: law.Max},
	} {
		var c cell
		const day = 86400 * second
		n := hammer(&c, p, start, 2*second, func(t int64) int64 { return t })
		n += hammer(&c, p, start+2*second, second, func(t int64) int64 { return t + day })
		before := n
		n += hammer(&c, p, start+3*second, 6*second, func(t int64) int64 { return t })
		if n > 100+9*100+100+100 { // a burst for the jump, one for windows that it cut short
			t.Errorf("law %d: %d passed in 9 s", p.Kind, n)
		}
		if n-before < 2*100 {
			t.Errorf("law %d: %d passed in the 6 s after the clock came back: frozen", p.Kind, n-before)
		}
	}
}

func TestNodesWhoseClocksDifferAddNoMoreThanTheirDifference(t *testing.T) {
	t.Parallel()
	for _, skew := range []int64{1000, 200_000, 1_900_000} {
		var c cell
		node := int64(0)
		n := hammer(&c, hundred, start, 20*second, func(t int64) int64 {
			node = 1 - node
			return t + node*skew
		})
		if most := 100 + 20*100 + 100*skew/second + 1; n > most {
			t.Errorf("%d us apart: %d passed, at most %d may", skew, n, most)
		}
	}
}

func TestForcedDebtDrainsAndIsNotCarriedIntoTheNextWindow(t *testing.T) {
	t.Parallel()
	force := func(p law.Params, n int64) law.Op {
		op := take(p, n*p.Unit)
		op.Ceiling = law.Max
		if p.Kind == law.Window {
			op.Ceiling = 1<<32 - 1
		}
		return op
	}
	var c cell
	if c.apply(force(hundred, 300), start).Granted != 1 {
		t.Fatal("force was refused")
	}
	if out := c.apply(take(hundred, hundred.Unit), start); out.Granted != 0 || out.RetryAt != start+2*second+10_000 {
		t.Errorf("in debt: %+v", out)
	}
	if c.apply(take(hundred, hundred.Unit), start+2*second+10_000).Granted != 1 {
		t.Error("the debt did not drain")
	}
	window := law.Params{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: second, Drain: law.Max}
	var w cell
	w.apply(force(window, 1_000_000), start)
	if w.apply(take(window, 5000), start-start%second+second).Granted != 1 {
		t.Error("an overshoot by force was carried into the next window")
	}
}

func TestAChangedLimitKeepsWhatWasUsed(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 5000 {
		var c cell
		now := start
		p := randomParams(rng)
		for range 1 + rng.IntN(5) {
			c.apply(take(p, 1+rng.Int64N(p.Capacity)), now)
		}
		used := float64(c.rec.State.Level) / float64(p.Unit)
		q := randomParams(rng)
		if q.Kind == law.Window && p.Kind == law.Window && q.Step != p.Step {
			continue // what lies in which window depends on their lengths
		}
		out := c.apply(take(q, law.Max), now) // refused for ever, converted all the same
		if out.Err != nil {
			out = c.apply(take(q, q.Capacity), now)
		}
		after := float64(c.rec.State.Level) / float64(max(c.rec.State.Unit, 1))
		if out.Granted == 0 && after < used*(1-1e-9) {
			t.Fatalf("seed %d: %+v to %+v: %f used, then %f", seed, p, q, used, after)
		}
		if out.Granted == 1 && used > 1e-3+float64(q.Capacity)/float64(q.Unit) {
			t.Fatalf("seed %d: admitted above the new capacity", seed)
		}
	}
}

func TestNothingIsDecidedAtATimeOutOfRange(t *testing.T) {
	t.Parallel()
	for _, clock := range []int64{law.Max + 1, start * 1000} { // the latter in nanoseconds
		var r law.Record
		op, outs := take(hundred, hundred.Unit), make([]law.Outcome, 1)
		law.Apply([]law.Op{op}, outs, clock, []*law.Record{&r})
		if !errors.Is(outs[0].Err, law.ErrInvalid) || outs[0].Granted != 0 || r.Dirty {
			t.Errorf("at %d: %+v, want an error", clock, outs[0])
		}
	}
}
