package law_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/testing/cells"
	"github.com/headgate/headgate/law"
)

// TestNextAtIsWhenOneFits checks that a cost of 1, or of the capacity if that is less, is refused just before NextAt
// and passes at it, also of cells to which charges were given back, and whose limit was changed.
func TestNextAtIsWhenOneFits(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]law.Params{
		"bucket":        {Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 3, Drain: 7},
		"fractions":     {Kind: law.Bucket, Unit: 1000, Capacity: 1500, Step: second, Drain: 300},
		"by the epoch":  {Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 9000, Step: 10 * second, Drain: 3000},
		"fixed window":  {Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 3000, Step: second, Drain: law.Max},
		"from first":    {Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: second, Drain: law.Max},
		"less than one": {Kind: law.Bucket, Unit: 1000, Capacity: 50, Step: 1000, Drain: 1},
		"sliding":       {Kind: law.Window, Unit: 1000, Capacity: 4000, Step: 7 * second},
		"sliding, 100":  {Kind: law.Window, Unit: 1000, Capacity: 100_000, Step: 60 * second},
		"log":           {Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 7 * second},
		"log of parts":  {Kind: law.Log, Unit: 1000, Capacity: 2500, Step: second},
		"log of half":   {Kind: law.Log, Unit: 1000, Capacity: 500, Step: second},
	} {
		rng, checks, original := rand.New(rand.NewPCG(1, 2)), 0, p
		cell, lastEntry := (*cells.Cell)(nil).Clone(), int64(0)
		decide := func(op law.Op, clock int64) law.Outcome {
			op.Cell = law.Cell{Limit: name, Key: "k"}
			ops, outs, r := []law.Op{op}, make([]law.Outcome, 1), cell.Record()
			law.Apply(ops, outs, clock, []*law.Record{r})
			cell.Write(r, &lastEntry)
			return outs[0]
		}
		clock := int64(1_800_000_000_123_457)
		cost := min(p.Unit, p.Capacity)
		for range 30_000 {
			if original.Kind == law.Bucket && original.Drain < law.Max && rng.IntN(500) == 0 {
				p.Step = original.Step * (1 + rng.Int64N(4))
			}
			op := law.Op{Verb: law.Take, Params: p, Cost: 1 + rng.Int64N(cost), Count: 1}
			out := decide(op, clock)
			if p.Kind != law.Log && out.Granted == 1 && rng.IntN(8) == 0 {
				decide(law.Back(&op, &out, 1+rng.Int64N(op.Cost)), clock)
				continue
			}
			if out.Granted == 0 || p.Capacity-out.Used >= cost {
				if out.Granted == 1 && out.RetryAt != 0 {
					t.Fatalf("%s: %d in use, and a grant has RetryAt %d, want 0", name, out.Used, out.RetryAt)
				}
				clock += rng.Int64N(max(2, p.Step/256))
				continue
			}
			checks++
			next := p.NextAt(&out.State, out.Used, op.DecidedAt(&out), out.RetryAt)
			check := law.Op{Verb: law.Check, Params: p, Cost: cost, Count: 1}
			outBefore, outAt := decide(check, next-1), decide(check, next)
			if outBefore.Granted != 0 || outAt.Granted != 1 {
				t.Fatalf("%s: at %d, %d in use: just before NextAt %d: granted %d, at it: %d; want 0 and 1", name, clock,
					out.Used, next, outBefore.Granted, outAt.Granted)
			}
			if rng.IntN(2) == 0 {
				clock = next
			} else {
				clock += rng.Int64N(max(2, p.Step/256))
			}
			cell.Entries = slices.DeleteFunc(cell.Entries, func(e law.Entry) bool {
				return e.ExpiresAt <= out.State.At
			})
		}
		if checks < 100 {
			t.Errorf("%s: only %d checks, want 100 or more", name, checks)
		}
	}
}
