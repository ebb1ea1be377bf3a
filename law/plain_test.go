package law_test

import (
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// TestTakePlainEqualsApply compares all results of TakePlain with those of Apply, for random costs at random times.
func TestTakePlainEqualsApply(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		p := randomParams(rng)
		p.Kind, p.Anchor = law.Bucket, law.Anchor(rng.IntN(2))
		if p.Drain == 0 {
			p.Drain = 1 + rng.Int64N(p.Capacity)
		}
		if p.Valid() != nil {
			continue
		}
		var c cell
		var level, at int64
		now := start
		for range 40 {
			if now += rng.Int64N(4 * p.Step); rng.IntN(5) == 0 {
				now -= min(rng.Int64N(4*p.Step), law.PlainSlack/4)
			}
			if now < at-law.PlainSlack {
				break
			}
			cost := 1 + rng.Int64N(p.Capacity+p.Capacity/8+1)
			want := c.apply(take(p, cost), now)
			granted, used, cellTime, retryAt, emptyAt := law.TakePlain(&p, level, at, cost, now)
			if granted != (want.Granted == 1) || used != want.Used || retryAt != want.RetryAt ||
				emptyAt != want.State.EmptyAt {
				t.Fatalf("seed %d, %+v: %d at %d with level %d at %d:\n got %v, used %d, retry at %d, empty at "+
					"%d\nwant %+v", seed, p, cost, now, level, at, granted, used, retryAt, emptyAt, want)
			}
			if granted {
				level, at = used, cellTime
			}
			if want.State.Kind != 0 && p.PlainState(level, at) != want.State {
				t.Fatalf("seed %d, %+v: %+v, want %+v", seed, p, p.PlainState(level, at), want.State)
			}
		}
	}
}

// TestChargesWhoseSumFitsAreGranted checks that charges of a plain cell at one time are all granted if TakePlain grants
// their sum, since stores decide by the sum.
func TestChargesWhoseSumFitsAreGranted(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	rng := rand.New(rand.NewPCG(seed, 0))
	grantedSums, sums := 0, 0
	for range 5000 {
		p := randomParams(rng)
		p.Kind, p.Anchor, p.Block = law.Bucket, law.Anchor(rng.IntN(2)), 0
		if p.Drain == 0 {
			p.Drain = 1 + rng.Int64N(p.Capacity)
		}
		if p.Valid() != nil {
			continue
		}
		var c cell
		oldState := c.apply(take(p, 1+rng.Int64N(p.Capacity)), start).State
		now := start + rng.Int64N(4*p.Step)
		var ops []law.Op
		sum := int64(0)
		for range 1 + rng.IntN(5) {
			op := take(p, 1+rng.Int64N(max(1, p.Capacity/4)))
			op.Group, op.Count, op.Partial = uint32(len(ops)), 1+rng.Int64N(3), true
			if sum += op.Cost * op.Count; sum > p.Capacity {
				break
			}
			ops = append(ops, op)
		}
		sums++
		granted, level, at, _, _ := law.TakePlain(&p, oldState.Level, oldState.At, sum, now)
		if !granted || sum > p.Capacity {
			continue
		}
		grantedSums++
		level -= sum
		for i, op := range ops {
			level += op.Cost * op.Count
			out := c.apply(op, now)
			if out.Granted != op.Count || out.Used != level || out.RetryAt != 0 ||
				out.State != p.PlainState(level, at) {
				t.Fatalf("seed %d, %+v: charge %d of %+v is decided as %+v, want a level of %d at %d", seed, p, i, ops, out,
					level, at)
			}
		}
	}
	if grantedSums < sums/10 {
		t.Errorf("%d of %d sums were granted, want a tenth or more", grantedSums, sums)
	}
}
