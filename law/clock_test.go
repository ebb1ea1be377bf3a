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

// hammer takes one unit every millisecond of true time for the given length; the store's clock shows clock(true time).
// It returns how many passed.
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
		used := float64(c.State.Level) / float64(p.Unit)
		q := randomParams(rng)
		if q.Kind == law.Window && p.Kind == law.Window && q.Step != p.Step {
			continue // what lies in which window depends on their lengths
		}
		out := c.apply(take(q, law.Max), now) // refused for ever, converted all the same
		if out.Err != nil {
			out = c.apply(take(q, q.Capacity), now)
		}
		after := float64(c.State.Level) / float64(max(c.State.Unit, 1))
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

// TestTimesKeepTheBoundWhenTheClockStepsBack sets the clock back by less than 2 s, again and again: counted by the
// times that were reported, no interval has more than the bound.
func TestTimesKeepTheBoundWhenTheClockStepsBack(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for name, p := range map[string]law.Params{
		"token-bucket": bucket(10, 5), "sliding-log": exactLog(5, 2*second), "fixed-window": perEpoch(2 * second),
	} {
		type charge struct{ at, units int64 }
		var passed []charge
		var c cell
		now, latest := start, start
		for range 60 {
			if now += rng.Int64N(600_000); rng.IntN(4) == 0 {
				now = max(now-rng.Int64N(1_900_000), latest-1_900_000) // by 2 s in all it would be healed
			}
			latest = max(latest, now)
			op := take(p, (1+rng.Int64N(3))*p.Unit)
			out := c.apply(op, now)
			look := op
			look.Verb = law.Check
			if again := c.apply(look, now); look.DecidedAt(&again) < op.DecidedAt(&out) {
				t.Errorf("%s: a check is decided for %d, before %d", name, look.DecidedAt(&again), op.DecidedAt(&out))
			}
			if out.Granted == 1 {
				passed = append(passed, charge{op.DecidedAt(&out), op.Cost / p.Unit})
			}
		}
		for _, first := range passed {
			for _, last := range passed {
				sum := int64(0)
				for _, of := range passed {
					if of.at >= first.at && of.at <= last.at {
						sum += of.units
					}
				}
				length := last.at - first.at
				most := p.Capacity * (length/p.Step + 1) // credits
				switch {
				case p.Anchor == law.Epoch:
					most = p.Capacity * (last.at/p.Step - first.at/p.Step + 1)
				case p.Kind == law.Bucket:
					most = p.Capacity + p.Drain*length/p.Step
				}
				if length >= 0 && sum*p.Unit > most {
					t.Fatalf("%s: %d units of %d credits pass within %d us, at most %d credits may", name, sum, p.Unit,
						length, most)
				}
			}
		}
	}
}

// TestAReturnAfterTheClockWasSetBackMintsNothing gives back a charge that had drained, and has been used by others,
// after the clock was set back so far that the cell has followed it.
func TestAReturnAfterTheClockWasSetBackMintsNothing(t *testing.T) {
	t.Parallel()
	var c cell
	p := bucket(1, 5)
	first := take(p, 5*p.Unit)
	out := c.apply(first, start+100*second)
	c.apply(first, start+105*second)
	c.apply(take(p, p.Unit), start)
	if got := c.apply(law.Back(&first, &out, p.Unit), start); got.Granted != 0 {
		t.Errorf("%d credits are given back of a charge that lies ahead of the clock", got.Granted)
	}
	if c.apply(take(p, p.Unit), start).Granted != 0 {
		t.Error("a return after the clock was set back minted a token")
	}
}
