package law_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate/law"
)

// TestABatchOnALogIsItsGroupsOneByOne compares two cells with a log: one gets ops in batches, where the law combines
// the batch's changes with the stored log, and the other gets them one by one.
func TestABatchOnALogIsItsGroupsOneByOne(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 0))
		var together, alone cell
		now := start
		var entries []int64
		for range 30 {
			var ops []law.Op
			for group := range uint32(1 + random.IntN(6)) {
				now += random.Int64N(30)
				op := law.Op{
					Group: group + 1, Verb: law.Take, Cost: 1 + random.Int64N(8), Count: 1, Now: now,
					Params: law.Params{Kind: law.Log, Unit: 1, Capacity: 12, Step: 60 + random.Int64N(80)},
				}
				if random.IntN(4) == 0 {
					op.Now -= random.Int64N(60)
				}
				verb := random.IntN(9)
				if len(entries) == 0 {
					verb = 7
				} else if verb < 6 {
					op.EntryNumber = entries[max(0, len(entries)-1-random.IntN(6))]
				}
				switch verb {
				case 0:
					op.Verb = law.Check
				case 1, 2:
					op.Verb = law.Return
				case 3:
					op.Verb, op.Cost = law.Return, -op.Cost
				case 4, 5:
					op.Verb = law.Renew
				case 8:
					if op.Verb = law.Reset; random.IntN(3) == 0 {
						op.Verb, op.Params.Unit = law.Take, 2 // the limit is changed, for this op
					}
				}
				ops = append(ops, op)
			}
			got := together.batch(slices.Clone(ops)...)
			var want []law.Outcome
			for _, op := range ops {
				want = append(want, alone.batch(op)...)
			}
			for i := range ops {
				if got[i] != want[i] {
					t.Fatalf("seed %d, op %d of %+v:\n got %+v\nwant %+v", seed, i, ops, got[i], want[i])
				}
				if n := got[i].EntryNumber; n > 0 {
					entries = append(entries, n)
				}
			}
			if got, want := countingEntries(&together), countingEntries(&alone); !slices.Equal(got, want) {
				t.Fatalf("seed %d, after %+v: the logs are\n%+v\n%+v", seed, ops, got, want)
			}
		}
	}
}

// countingEntries returns the entries that may still count.
func countingEntries(c *cell) (list []law.Entry) {
	for _, e := range c.Entries {
		if e.ExpiresAt > 0 && e.Cost > 0 {
			list = append(list, e)
		}
	}
	return list
}

// TestComponents compares Components with groups found by joining neighbours until nothing changes.
func TestComponents(t *testing.T) {
	t.Parallel()
	if got := law.Components(nil); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		ops := make([]law.Op, 1+random.IntN(9))
		for i := range ops {
			ops[i].Cell.Key = string(rune('a' + random.IntN(12)))
			if ops[i].Group = uint32(i); i > 0 && random.IntN(3) == 0 {
				ops[i].Group = ops[i-1].Group
			}
		}
		want := make([]int, len(ops))
		for i := range want {
			want[i] = i
		}
		for changed := true; changed; {
			changed = false
			for i := range ops {
				for j := range ops {
					joined := ops[i].Cell == ops[j].Cell || ops[i].Group == ops[j].Group
					if joined && want[i] > want[j] {
						want[i], changed = want[j], true
					}
				}
			}
		}
		if got := law.Components(ops); !slices.Equal(got, want) {
			t.Fatalf("of %+v: %v, want %v", ops, got, want)
		}
	}
}
