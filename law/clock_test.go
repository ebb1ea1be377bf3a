package law_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// second is the number of microseconds in a second.
const second = int64(1_000_000)

var bucketOf100 = law.Params{Kind: law.Bucket, Unit: 10_000, Capacity: 1_000_000, Step: 1, Drain: 1} // 100/s burst 100

// takeEachMillisecond takes one unit every millisecond of true time, and returns how many passed. clock converts true
// time into the time that the store's clock shows.
func takeEachMillisecond(c *cell, p law.Params, from, length int64, clock func(int64) int64) (n int64) {
	for now := from; now < from+length; now += 1000 {
		n += c.apply(take(p, p.Unit), clock(now)).Granted
	}
	return n
}

func TestABackwardStepOfTheClockMintsNothing(t *testing.T) {
	t.Parallel()
	for _, setBack := range []int64{second, 30 * second, 3600 * second} {
		var c cell
		n := takeEachMillisecond(&c, bucketOf100, start, 2*second, func(now int64) int64 { return now })
		n += takeEachMillisecond(&c, bucketOf100, start+2*second, 2*second, func(now int64) int64 {
			return now - setBack
		})
		if n > 100+4*100 { // the burst, and 4 s at 100/s
			t.Errorf("set back by %d s: %d passed in 4 s, want at most 500", setBack/second, n)
		}
		// The later step forward lets at most one more burst pass.
		n += takeEachMillisecond(&c, bucketOf100, start+4*second, 2*second, func(now int64) int64 { return now })
		if n > 100+6*100+100 {
			t.Errorf("set back by %d s and forward again: %d passed in 6 s, want at most 800", setBack/second, n)
		}
	}
}

func TestAForwardJumpMintsOneBurstAndIsHealed(t *testing.T) {
	t.Parallel()
	for _, p := range []law.Params{
		bucketOf100,
		{Kind: law.Window, Unit: 1000, Capacity: 100_000, Step: second},
		{Kind: law.Log, Unit: 1000, Capacity: 100_000, Step: second},
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 100_000, Step: second, Drain: law.Max},
	} {
		var c cell
		n := takeEachMillisecond(&c, p, start, 2*second, func(now int64) int64 { return now })
		n += takeEachMillisecond(&c, p, start+2*second, second, func(now int64) int64 { return now + day })
		passedBefore := n
		n += takeEachMillisecond(&c, p, start+3*second, 6*second, func(now int64) int64 { return now })
		if n > 100+9*100+100+100 { // the burst, 9 s at 100/s, a burst for the jump, one for windows that it cut short
			t.Errorf("law %d: %d passed in 9 s, want at most 1200", p.Kind, n)
		}
		if n-passedBefore < 2*100 {
			t.Errorf("law %d: %d passed in the 6 s after the clock came back, want 200 or more", p.Kind, n-passedBefore)
		}
	}
}

// TestClockSkewAddsNoMoreThanItsLength charges a cell in turn by two clocks that differ. At most as much more passes as
// flows in during the difference.
func TestClockSkewAddsNoMoreThanItsLength(t *testing.T) {
	t.Parallel()
	for _, skew := range []int64{1000, 200_000, 1_900_000} {
		var c cell
		ahead := int64(0) // 1 if the clock ahead decides, else 0
		n := takeEachMillisecond(&c, bucketOf100, start, 20*second, func(now int64) int64 {
			ahead = 1 - ahead
			return now + ahead*skew
		})
		minPassed := int64(100 + 20*100 - 1) // by one clock
		if maxPassed := minPassed + 100*skew/second + 1; n < minPassed || n > maxPassed {
			t.Errorf("clocks %d us apart: %d passed, want %d to %d", skew, n, minPassed, maxPassed)
		}
	}
}

func TestDebitAboveTheCapacityDrainsAndEndsWithItsWindow(t *testing.T) {
	t.Parallel()
	debit := func(p law.Params, n int64) law.Op {
		op := take(p, n*p.Unit)
		op.Ceiling = p.Highest()
		return op
	}
	var c cell
	if c.apply(debit(bucketOf100, 300), start).Granted != 1 {
		t.Fatal("a debit above the capacity was refused")
	}
	if out := c.apply(take(bucketOf100, bucketOf100.Unit), start); out.Granted != 0 ||
		out.RetryAt != start+2*second+10_000 {
		t.Errorf("300 of 100 in use: %+v; want a refusal for 2.01 s", out)
	}
	if c.apply(take(bucketOf100, bucketOf100.Unit), start+2*second+10_000).Granted != 1 {
		t.Error("refused at RetryAt: the debit did not drain")
	}
	window := law.Params{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: second, Drain: law.Max}
	var windowCell cell
	windowCell.apply(debit(window, 1_000_000), start)
	if windowCell.apply(take(window, 5000), start-start%second+second).Granted != 1 {
		t.Error("a debit above the capacity was carried into the next window")
	}
}

func TestAChangedLimitKeepsWhatWasUsed(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 5000 {
		var c cell
		now := start
		oldParams := randomParams(rng)
		for range 1 + rng.IntN(5) {
			c.apply(take(oldParams, 1+rng.Int64N(oldParams.Capacity)), now)
		}
		newParams := randomParams(rng)
		if newParams.Kind == law.Window && oldParams.Kind == law.Window && newParams.Step != oldParams.Step {
			continue // the usage within a window depends on its length
		}
		used := (c.State.Level*newParams.Unit + oldParams.Unit - 1) / oldParams.Unit // in the new credits, rounded up
		all := take(newParams, 1)
		all.Count, all.Partial = newParams.Capacity, true
		out := c.apply(all, now)
		if want := max(0, newParams.Capacity-used); out.Granted != want || out.Used != used+want {
			t.Fatalf("seed %d: %+v to %+v: %d credits were used, then %d, %d of them new; want %d new", seed, oldParams,
				newParams, used, out.Used, out.Granted, want)
		}
	}
}

func TestNothingIsDecidedAtATimeOutOfRange(t *testing.T) {
	t.Parallel()
	for _, clock := range []int64{law.Max + 1, start * 1000} { // start*1000: a clock in nanoseconds by mistake
		var r law.Record
		op, outs := take(bucketOf100, bucketOf100.Unit), make([]law.Outcome, 1)
		law.Apply([]law.Op{op}, outs, clock, []*law.Record{&r})
		if !errors.Is(outs[0].Err, law.ErrInvalid) || outs[0].Granted != 0 || r.Dirty {
			t.Errorf("at %d: %+v, want an error", clock, outs[0])
		}
	}
}

// TestDecisionTimesKeepTheBoundWhenTheClockStepsBack sets the clock back by less than 2 s, again and again. By the
// reported decision times, no interval has more than the bound.
func TestDecisionTimesKeepTheBoundWhenTheClockStepsBack(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]law.Params{
		"token-bucket": bucket(10, 5), "sliding-log": exactLog(5, 2*second), "fixed-window": epochWindow(2 * second),
	} {
		type charge struct{ at, units int64 }
		rng := rand.New(rand.NewPCG(1, 2))
		var passed []charge
		var c cell
		now, latest := start, start
		for range 150 {
			if now += rng.Int64N(600_000); rng.IntN(4) == 0 {
				now = max(now-rng.Int64N(1_900_000), latest-1_900_000) // 2 s behind, the cell would be healed
			}
			latest = max(latest, now)
			op := take(p, (1+rng.Int64N(3))*p.Unit)
			out := c.apply(op, now)
			check := op
			check.Verb = law.Check
			if checkOut := c.apply(check, now); check.DecidedAt(&checkOut) < op.DecidedAt(&out) {
				t.Errorf("%s: a check is decided at %d, before the take at %d", name, check.DecidedAt(&checkOut),
					op.DecidedAt(&out))
			}
			if out.Granted == 1 {
				passed = append(passed, charge{op.DecidedAt(&out), op.Cost / p.Unit})
			}
		}
		if len(passed) < 10 {
			t.Errorf("%s: only %d charges passed, want 10 or more", name, len(passed))
		}
		for _, first := range passed {
			for _, last := range passed {
				sum := int64(0)
				for _, ch := range passed {
					if ch.at >= first.at && ch.at <= last.at {
						sum += ch.units
					}
				}
				length := last.at - first.at
				bound := p.Capacity * (length/p.Step + 1)
				switch {
				case p.Anchor == law.Epoch:
					bound = p.Capacity * (last.at/p.Step - first.at/p.Step + 1)
				case p.Kind == law.Bucket:
					bound = p.Capacity + p.Drain*length/p.Step
				}
				if length >= 0 && sum*p.Unit > bound {
					t.Fatalf("%s: %d units of %d credits passed within %d us, want at most %d credits", name, sum,
						p.Unit, length, bound)
				}
			}
		}
	}
}

// TestAReturnAfterTheClockWasSetBackMintsNothing sets the clock back so far that the cell follows it, and then gives
// back a charge that had drained before. Nothing must be given back.
func TestAReturnAfterTheClockWasSetBackMintsNothing(t *testing.T) {
	t.Parallel()
	var c cell
	p := bucket(1, 5)
	first := take(p, 5*p.Unit)
	out := c.apply(first, start+100*second)
	c.apply(first, start+105*second)
	c.apply(take(p, p.Unit), start)
	if got := c.apply(law.Back(&first, &out, p.Unit), start); got.Granted != 0 {
		t.Errorf("%d credits were given back of a charge that lies ahead of the clock, want 0", got.Granted)
	}
	if c.apply(take(p, p.Unit), start).Granted != 0 {
		t.Error("a return after the clock was set back minted a token")
	}
}
