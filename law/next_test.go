package law_test

import (
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/law"
)

// TestNextAtIsWhenOneFits: an op of 1 is refused just before, and passes then.
func TestNextAtIsWhenOneFits(t *testing.T) {
	t.Parallel()
	const second = 1_000_000
	for name, p := range map[string]law.Params{
		"bucket":        {Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 3, Drain: 7},
		"fractions":     {Kind: law.Bucket, Unit: 1000, Capacity: 1500, Step: second, Drain: 300},
		"interval":      {Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 9000, Step: 10 * second, Drain: 3000},
		"fixed window":  {Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 3000, Step: second, Drain: law.Max},
		"from first":    {Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: second, Drain: law.Max},
		"less than one": {Kind: law.Bucket, Unit: 1000, Capacity: 50, Step: 1000, Drain: 1},
		"sliding":       {Kind: law.Window, Unit: 1000, Capacity: 4000, Step: 7 * second},
		"sliding, 100":  {Kind: law.Window, Unit: 1000, Capacity: 100_000, Step: 60 * second},
	} {
		random, looked := rand.New(rand.NewPCG(1, 2)), 0
		var s law.State
		clock := int64(1_800_000_000_123_457)
		need := min(p.Unit, p.Capacity)
		for range 20_000 {
			op := law.Op{Verb: law.Take, Params: p, Cost: 1 + random.Int64N(need), Count: 1}
			out := law.Decide(s, &op, clock, 0, nil).Outcome
			if s = out.State; out.Granted == 0 || p.Capacity-out.Used >= need {
				clock += random.Int64N(max(2, p.Step/256))
				continue
			}
			looked++
			next := p.NextAt(&s, out.Used, op.DecidedAt(&out))
			one := law.Op{Verb: law.Check, Params: p, Cost: need, Count: 1}
			early, then := law.Decide(s, &one, next-1, 0, nil).Outcome, law.Decide(s, &one, next, 0, nil).Outcome
			if early.Granted != 0 || then.Granted != 1 {
				t.Fatalf("%s: at %d, %d in use: one passes just before %d: %d, then: %d", name, clock, out.Used, next,
					early.Granted, then.Granted)
			}
			if random.IntN(2) == 0 {
				clock = next
			} else {
				clock += random.Int64N(max(2, p.Step/256))
			}
		}
		if looked < 100 {
			t.Errorf("%s: %d times only", name, looked)
		}
	}
}
