package law_test

import (
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/law"
)

// TestInUse compares State.InUse with the level that a check of the cell finds. By the params that the state itself
// has, it must be no lower, and at most one drain higher.
func TestInUse(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for range 30_000 {
		var p law.Params
		switch rng.IntN(4) {
		case 0:
			p = law.Params{Kind: law.Window, Unit: 1000, Capacity: 1 + rng.Int64N(1e6), Step: 1 + rng.Int64N(1e8)}
		case 1: // a fixed window
			p = law.Params{
				Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 1 + rng.Int64N(1e6),
				Step: 1 + rng.Int64N(1e8), Drain: law.Max,
			}
		default:
			p = law.Params{
				Kind: law.Bucket, Unit: 1000, Capacity: 1 + rng.Int64N(1e6), Step: 1 + rng.Int64N(1e6),
				Drain: 1 + rng.Int64N(1e4),
			}
		}
		c, now := &cell{}, start
		for range 1 + rng.IntN(5) {
			c.apply(take(p, 1+rng.Int64N(p.Capacity)), now)
			now += rng.Int64N(1 << rng.IntN(28))
		}
		op := law.Op{Verb: law.Check, Cell: law.Cell{Limit: "l"}, Params: p, Cost: 1, Count: 1}
		out := c.apply(op, now)
		want := out.Used - out.Granted
		if got := c.State.InUse(&op, now); got != want {
			t.Fatalf("%+v, %+v at %d: got %d in use, want %d", p, c.State, now, got, want)
		}
		if c.State.Kind == 0 {
			continue
		}
		op.Params = c.State.Params()
		got, drain := c.State.InUse(&op, now), int64(0)
		if p.Kind == law.Bucket && p.Drain < law.Max {
			drain = p.Drain
		}
		if got < want || got > want+drain {
			t.Fatalf("%+v, %+v at %d: got %d in use by the state's params, want %d to %d", p, c.State, now, got, want,
				want+drain)
		}
	}
}
