package law_test

import (
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/law"
)

// TestInUse compares State.InUse with what a check of the cell finds.
func TestInUse(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for range 30_000 {
		var p law.Params
		switch rng.IntN(4) {
		case 0:
			p = law.Params{Kind: law.Window, Unit: 1000, Capacity: 1 + rng.Int64N(1e6), Step: 1 + rng.Int64N(1e8)}
		case 1: // a window
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
		take := func(verb law.Verb) law.Outcome {
			return c.apply(law.Op{Verb: verb, Params: p, Cost: 1 + rng.Int64N(p.Capacity), Count: 1}, now)
		}
		for range 1 + rng.IntN(5) {
			take(law.Take)
			now += rng.Int64N(1 << rng.IntN(28))
		}
		op := law.Op{Verb: law.Check, Cell: law.Cell{Limit: "l"}, Params: p, Cost: 1, Count: 1}
		out := c.apply(op, now)
		want := out.Used - out.Granted
		if got := c.State.InUse(&op, now); got != want {
			t.Fatalf("%+v, %+v at %d: in use are %d, a check finds %d", p, c.State, now, got, want)
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
			t.Fatalf("%+v, %+v at %d: by itself %d, a check finds %d", p, c.State, now, got, want)
		}
	}
}
