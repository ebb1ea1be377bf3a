package postgres_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// TestExtremeNumbersMatchPackageLaw compares the server with package law at the largest valid numbers: a sum that
// saturates in package law must not overflow in the server.
func TestExtremeNumbersMatchPackageLaw(t *testing.T) {
	t.Parallel()
	serverStore, memoryStore := store.Store(openMigrated(t)), store.Store(memory.New(nil))
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	large := []int64{1, 2, 1000, 1 << 20, 1<<32 - 1, 1 << 40, 1 << 50, law.Max - 1, law.Max}
	pick := func(list []int64) int64 { return list[rng.IntN(len(list))] }
	randomParams := func() (p law.Params) {
		for p.Valid() != nil {
			p = law.Params{
				Kind: law.Kind(1 + rng.IntN(3)), Anchor: law.Anchor(rng.IntN(2)), Unit: pick(large[:5]),
				Capacity: pick(large), Step: pick(large), Drain: pick(large),
			}
		}
		return p
	}
	apply := func(s store.Store, ops []law.Op) []law.Outcome {
		outs := make([]law.Outcome, len(ops))
		if err := s.Apply(context.Background(), ops, outs); err != nil {
			t.Fatalf("seed %d: %+v: %v", seed, ops, err)
		}
		return outs
	}
	// compare applies ops to both stores. Ops and outcomes may differ in entry numbers, and errors in their texts.
	compare := func(serverOps, memoryOps []law.Op) (got, want []law.Outcome) {
		got, want = apply(serverStore, serverOps), apply(memoryStore, memoryOps)
		for i := range got {
			g, w := got[i], want[i]
			g.EntryNumber, w.EntryNumber, g.Err, w.Err = 0, 0, nil, nil
			if g != w || (got[i].Err == nil) != (want[i].Err == nil) {
				t.Fatalf("seed %d: op %d of %+v:\n got %+v\nwant %+v", seed, i, serverOps, got[i], want[i])
			}
		}
		return got, want
	}
	for round := range 2000 {
		key := string(rune('a' + round%26))
		ops := make([]law.Op, 1+rng.IntN(3))
		deferred := rng.IntN(2) == 0
		now := storetest.T0 + pick([]int64{0, 1000, 1 << 20, 1 << 50})
		for i := range ops {
			op := &ops[i]
			*op = law.Op{
				Verb: law.Take, Group: 1, Cell: law.Cell{Limit: string(rune('0' + rng.IntN(3))), Key: key},
				Now: now, Params: randomParams(),
			}
			for k := range i {
				if ops[k].Cell == op.Cell {
					op.Params = ops[k].Params
				}
			}
			op.Count, op.Cost = 1, min(pick(large), op.Params.Capacity)
			if deferred && op.Params.Kind == law.Bucket && op.Params.Anchor == law.Own {
				op.Ceiling = op.Params.Ceiling(pick(large))
			}
		}
		if deferred = deferred && !slices.ContainsFunc(ops, func(op law.Op) bool { return op.Ceiling == 0 }); deferred {
			for i := range ops {
				ops[i].Deferred = true
			}
		}
		got, want := compare(ops, ops)
		for i := range ops {
			if want[i].Granted == 0 || want[i].Err != nil {
				break
			}
			credits := pick(large)
			if credits = min(credits, ops[i].Cost); rng.IntN(2) == 0 {
				credits = -pick(large)
			}
			compare([]law.Op{law.Back(&ops[i], &got[i], credits)}, []law.Op{law.Back(&ops[i], &want[i], credits)})
		}
	}
}
