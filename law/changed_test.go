package law_test

import (
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/law"
)

// TestReturnsUnderTwoDefinitionsAdmitNothingBeyondBoth uses two definitions of a token bucket in turn, as servers do
// while a change is rolled out, and lets charges be given back by the definition that they were made under. What was
// kept of them passes in no interval what the larger capacity and both rates allow together.
func TestReturnsUnderTwoDefinitionsAdmitNothingBeyondBoth(t *testing.T) {
	t.Parallel()
	for name, pair := range map[string][2]law.Params{
		"7 a minute, and 7 a second": {
			{Kind: law.Bucket, Unit: 6_000_000, Capacity: 18_000_000, Step: 10, Drain: 7},
			{Kind: law.Bucket, Unit: 1_000_000, Capacity: 3_000_000, Step: 1, Drain: 7},
		},
		"1 a second, and 20 a second": { // with the same step
			{Kind: law.Bucket, Unit: 1_000_000, Capacity: 3_000_000, Step: 1, Drain: 1},
			{Kind: law.Bucket, Unit: 50_000, Capacity: 150_000, Step: 1, Drain: 1},
		},
		"2 each four seconds, and 10 a second": {
			{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 4 * second, Drain: 2000},
			{Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: 1000, Drain: 10},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var given int64
			for seed := range rounds(20000) {
				given += returnsOfTwo(t, pair, rand.New(rand.NewPCG(seed, 2)))
			}
			if given == 0 {
				t.Error("nothing was given back in any history")
			}
		})
	}
}

func returnsOfTwo(t *testing.T, pair [2]law.Params, rng *rand.Rand) (given int64) {
	t.Helper()
	cost := func(op *law.Op, credits int64) float64 { return float64(credits) / float64(op.Params.Unit) }
	charges, given := history(rng, 700_000, pair[0], pair[1])
	most, rate := 0.0, 0.0
	for _, p := range pair {
		most = max(most, float64(p.Capacity)/float64(p.Unit))
		rate += float64(p.Drain) / float64(p.Step) / float64(p.Unit)
	}
	for _, p := range pair {
		if p.Step > 10 { // a level that drains in steps has at most one more behind it
			most += float64(p.Drain) / float64(p.Unit)
		}
	}
	for i := range charges {
		var sum float64
		for j := i; j < len(charges); j++ {
			sum += cost(&charges[j].op, charges[j].kept)
			if took := float64(charges[j].at - charges[i].at); sum > most+rate*took+1e-3 {
				t.Fatalf("%v of %v passed in %v s", sum, most+rate*took, took/1e6)
			}
		}
	}
	return given
}
