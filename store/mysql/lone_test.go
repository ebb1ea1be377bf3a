package mysql_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/memory"
)

// TestSingleChargesDecideAsMemory applies batches of one op, and compares the outcomes with the memory store. The ops
// include new keys, refusals, returns, and cells that are blocked, reset, charged by another law, or ahead of the
// clock.
func TestSingleChargesDecideAsMemory(t *testing.T) {
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
		{
			{Kind: law.Bucket, Unit: 1, Capacity: 50, Step: 1_000_000, Drain: law.Max},
			{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1, Capacity: 400, Step: 10_000_000_000_000, Drain: 1},
		},
		{
			{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1, Capacity: 50, Step: 7_000_000, Drain: law.Max},
			{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1, Capacity: 50, Step: 7_000_000, Drain: 1},
		},
		{
			{Kind: law.Bucket, Unit: 1 << 20, Capacity: 1 << 52, Step: 1, Drain: 1 << 52},
			{Kind: law.Bucket, Unit: 1 << 20, Capacity: 1 << 52, Step: 1, Drain: 1},
		},
		{
			{Kind: law.Bucket, Unit: 1, Capacity: 60, Step: 1 << 46, Drain: 1},
			{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1, Capacity: 60, Step: 1 << 46, Drain: 1},
		},
	}
	now := int64(1_800_000_000_000_000)
	for round := range tier.Pick(300, 3000, 20_000) {
		now += rng.Int64N(1 << (1 + rng.IntN(24)))
		limit := rng.IntN(len(limits))
		op := law.Op{
			Verb: law.Take, Group: 1, Cell: law.Cell{Limit: fmt.Sprint("limit ", limit), Key: fmt.Sprint(rng.IntN(8))},
			Params: limits[limit][0], Cost: limits[limit][0].Unit, Count: 1, Now: now,
		}
		switch rng.IntN(40) {
		case 0:
			op.Params = limits[limit][1]
		case 1:
			op.Verb, op.TTL, op.Reason = law.Block, 1+rng.Int64N(10_000_000), "why"
		case 2, 3:
			op.Verb = law.Reset
		case 4:
			op.Verb, op.At, op.Level, op.Cost = law.Return, now+rng.Int64N(10_000_000)-5_000_000,
				rng.Int64N(10_000_000), 1
		case 5, 6, 7:
			op.Now += rng.Int64N(20_000_000) - 10_000_000
		case 8, 9, 10, 11:
			op.Count, op.Partial = 1+rng.Int64N(5), rng.IntN(2) == 0
		case 12, 13, 14, 15:
			op.Cost, op.Ceiling = 1+rng.Int64N(60), rng.Int64N(3)*20
		}
		got, want := make([]law.Outcome, 1), make([]law.Outcome, 1)
		if err := s.Apply(t.Context(), []law.Op{op}, got); err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		if err := memoryStore.Apply(t.Context(), []law.Op{op}, want); err != nil {
			t.Fatal(err)
		}
		if got[0] != want[0] {
			t.Fatalf("seed %d, round %d: %+v\n got %+v\nwant %+v", seed, round, op, got[0], want[0])
		}
	}
}

// TestSingleChargesAreExact checks that eight callers of a new key, 25 calls each, are admitted 25 times in all.
func TestSingleChargesAreExact(t *testing.T) {
	t.Parallel()
	s := openMigrated(t)
	const capacity, callers, keys = 25, 8, 4
	limit := law.Params{Kind: law.Bucket, Unit: 1, Capacity: capacity, Step: 10_000_000_000_000, Drain: 1}
	for key := range keys {
		var granted atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range capacity {
					op := law.Op{
						Verb: law.Take, Cell: law.Cell{Limit: "l", Key: fmt.Sprint(key)}, Params: limit, Cost: 1, Count: 1,
					}
					outs := make([]law.Outcome, 1)
					if err := s.Apply(t.Context(), []law.Op{op}, outs); err != nil {
						t.Error(err)
						return
					}
					granted.Add(outs[0].Granted)
				}
			})
		}
		wg.Wait()
		if n := granted.Load(); n != capacity {
			t.Errorf("key %d: got %d admissions, want %d", key, n, capacity)
		}
	}
}
