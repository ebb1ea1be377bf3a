package law_test

import (
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/law"
)

// TestPlainCharges compares TakePlain with Apply bit by bit.
func TestPlainCharges(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
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
			granted, used, then, retryAt, emptyAt := law.TakePlain(&p, level, at, cost, now)
			if granted != (want.Granted == 1) || used != want.Used || retryAt != want.RetryAt ||
				emptyAt != want.State.EmptyAt {
				t.Fatalf("seed %d, %+v: %d at %d with level %d at %d:\n got %v, used %d, retry at %d, empty at "+
					"%d\nwant %+v", seed, p, cost, now, level, at, granted, used, retryAt, emptyAt, want)
			}
			if granted {
				level, at = used, then
			}
			if want.State.Kind != 0 && p.PlainState(level, at) != want.State {
				t.Fatalf("seed %d, %+v: %+v, want %+v", seed, p, p.PlainState(level, at), want.State)
			}
		}
	}
}
