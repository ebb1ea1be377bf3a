package law_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate/law"
)

// TestABatchOnALogEqualsSingleOps compares two cells with a log: one gets ops in batches, where the law combines the
// batch's changes with the stored log, and the other gets them one by one.
func TestABatchOnALogEqualsSingleOps(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var batchCell, singleCell cell
		now := start
		var entryNumbers []int64
		for range 30 {
			var ops []law.Op
			for group := range uint32(1 + rng.IntN(6)) {
				now += rng.Int64N(30)
				op := law.Op{
					Group: group + 1, Verb: law.Take, Cost: 1 + rng.Int64N(8), Count: 1, Now: now,
					Params: law.Params{Kind: law.Log, Unit: 1, Capacity: 12, Step: 60 + rng.Int64N(80)},
				}
				if rng.IntN(4) == 0 {
					op.Now -= rng.Int64N(60)
				}
				choice := rng.IntN(9) // 6 and 7: a take
				if len(entryNumbers) == 0 {
					choice = 7
				} else if choice < 6 {
					op.EntryNumber = entryNumbers[max(0, len(entryNumbers)-1-rng.IntN(6))]
				}
				switch choice {
				case 0:
					op.Verb = law.Check
				case 1, 2:
					op.Verb = law.Return
				case 3:
					op.Verb, op.Cost = law.Return, -op.Cost
				case 4, 5:
					op.Verb = law.Renew
				case 8:
					if op.Verb = law.Reset; rng.IntN(3) == 0 {
						op.Verb, op.Params.Unit = law.Take, 2 // this op has a changed limit
					}
				}
				ops = append(ops, op)
			}
			got := batchCell.batch(slices.Clone(ops)...)
			var want []law.Outcome
			for _, op := range ops {
				want = append(want, singleCell.batch(op)...)
			}
			for i := range ops {
				if got[i] != want[i] {
					t.Fatalf("seed %d, op %d of %+v:\n got %+v\nwant %+v", seed, i, ops, got[i], want[i])
				}
				if n := got[i].EntryNumber; n > 0 {
					entryNumbers = append(entryNumbers, n)
				}
			}
			if got, want := countingEntries(&batchCell), countingEntries(&singleCell); !slices.Equal(got, want) {
				t.Fatalf("seed %d, after %+v: the log is\n%+v, want\n%+v", seed, ops, got, want)
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

// TestComponents compares Components with a slow search that joins ops of one cell or group until nothing changes.
func TestComponents(t *testing.T) {
	t.Parallel()
	if got := law.Components(nil); len(got) != 0 {
		t.Errorf("no ops: got %v, want none", got)
	}
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		ops := make([]law.Op, 1+rng.IntN(9))
		for i := range ops {
			ops[i].Cell.Key = string(rune('a' + rng.IntN(12)))
			if ops[i].Group = uint32(i); i > 0 && rng.IntN(3) == 0 {
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
			t.Fatalf("%+v: got %v, want %v", ops, got, want)
		}
	}
}
