package mysql_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/memory"
)

// TestPlainBatchesDecideAsMemory applies batches of charges on different cells, as coalesced callers do, and compares
// the outcomes with the memory store. The cells include new cells, blocked and reset cells, cells of another unit, and
// cells ahead of the clock.
func TestPlainBatchesDecideAsMemory(t *testing.T) {
	t.Parallel()
	s, memoryStore := openMigrated(t), memory.New(nil)
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	limits := [][2]law.Params{ // each as it is, and as it was before a change
		{
			{Kind: law.Bucket, Unit: 10, Capacity: 50, Step: 1000, Drain: 3},
			{Kind: law.Bucket, Unit: 7, Capacity: 50, Step: 1000, Drain: 3},
		},
		{
			{Kind: law.Bucket, Unit: 10, Capacity: 50, Step: 5_000_000, Drain: 9},
			{Kind: law.Bucket, Unit: 10, Capacity: 50, Step: 50_000_000, Drain: 1},
		},
		{
			{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1, Capacity: 5, Step: 70_000, Drain: 5},
			{Kind: law.Window, Unit: 1, Capacity: 5, Step: 70_000},
		},
	}
	now := int64(1_800_000_000_000_000)
	for round := range tier.Pick(60, 400, 2000) {
		now += rng.Int64N(1 << (1 + rng.IntN(24)))
		n, firstKey, twoLimits := 1+rng.IntN(40), rng.IntN(60), rng.IntN(2) == 0
		limit, variant := rng.IntN(len(limits)), rng.IntN(5)
		var ops []law.Op
		for i := range n {
			if twoLimits {
				limit = (limit + 1) % 2
			}
			op := law.Op{
				Verb: law.Take, Group: uint32(i + 1),
				Cell:   law.Cell{Limit: fmt.Sprint("limit ", limit), Key: fmt.Sprint((firstKey + i*7) % 100)},
				Params: limits[limit][0], Cost: limits[limit][0].Unit, Count: 1, Now: now,
			}
			switch rng.IntN(30) {
			case 0:
				op.Params = limits[limit][1] // a batch that is not plain
			case 1:
				op.Verb, op.TTL, op.Reason = law.Block, 1+rng.Int64N(10_000_000), "why"
			case 2:
				op.Verb = law.Reset
			case 3:
				op.Verb, op.At, op.Level, op.Cost = law.Return, now+rng.Int64N(10_000_000)-5_000_000,
					rng.Int64N(10_000_000), 1
			}
			if n > 3 && rng.IntN(8) > 0 { // plain, so that most batches are
				op.Verb, op.Params = law.Take, limits[limit][0]
			}
			switch {
			case op.Verb != law.Take:
			case variant == 1:
				op.Count = 1 + rng.Int64N(5)
				op.Partial = rng.IntN(2) == 0
			case variant == 2:
				op.Cost, op.Ceiling = 1+rng.Int64N(60), rng.Int64N(3)*20
			case variant == 3 && rng.IntN(5) == 0:
				op.Now += rng.Int64N(20_000_000) - 10_000_000
			}
			ops = append(ops, op)
		}
		got, want := make([]law.Outcome, n), make([]law.Outcome, n)
		if err := s.Apply(t.Context(), ops, got); err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		if err := memoryStore.Apply(t.Context(), ops, want); err != nil {
			t.Fatal(err)
		}
		for i := range ops {
			if got[i] != want[i] {
				t.Fatalf("seed %d, round %d, op %d of %d: %+v\n got %+v\nwant %+v", seed, round, i, n, ops[i],
					got[i], want[i])
			}
		}
	}
}
