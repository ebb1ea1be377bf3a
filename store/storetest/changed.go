package storetest

import (
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// testResetInBatch charges a cell twice that the second op of a batch has reset. The first charge must count once.
func testResetInBatch(t *testing.T, s store.Store) {
	p := bucket(1, 10)
	applyOne(t, s, take("reset", "a", p, 3, T0))
	applyOne(t, s, take("reset", "b", p, 4, T0))
	takeB := take("reset", "b", p, 1, 0) // at the store's clock, as callers charge
	resetB := reset(takeB, T0)
	resetB.Group = 2
	apply(t, s, check(take("reset", "a", p, 1, T0)), resetB)
	for i, want := range []int64{1, 2} {
		if out := applyOne(t, s, takeB); out.Granted != 1 || out.Used < p.Unit || out.Used > want*p.Unit {
			t.Errorf("charge %d after the reset: got %+v, want %d units in use at most, and 1 at least", i+1, out, want)
		}
	}
}

// testSettleOtherRule returns the charge of one limit to a cell that another limit has made since, with the highest
// level possible. The store must not do the arithmetic of the first limit on that cell.
func testSettleOtherRule(t *testing.T, s store.Store) {
	limits := map[string]law.Params{
		"bucket": {Kind: law.Bucket, Unit: 1, Capacity: law.Max / 2, Step: hour, Drain: law.Max / 4},
		"fixed":  {Kind: law.Bucket, Anchor: law.Epoch, Unit: 1, Capacity: law.Max / 2, Step: hour, Drain: law.Max},
		"window": {Kind: law.Window, Unit: 1, Capacity: 1<<32 - 2, Step: hour},
		"log":    slidingLog(law.Max/2000, hour),
	}
	// The time is 1 us before a step ends: two us later, the sliding window counts these charges as the last window's.
	o, at := newOracle(), int64(1_700_000_000_000_000)/hour*hour+hour-1
	for name, p := range limits {
		for otherName, other := range limits {
			key := name + " by " + otherName
			charge := take("elsewhere", key, p, p.Capacity/p.Unit, at)
			for _, backAt := range []int64{at, at + 2} {
				back := take("elsewhere", key, other, 1, backAt)
				back.Verb, back.At, back.Level = law.Return, at-1, other.Unit
				ops := []law.Op{charge, back}
				ops[1].Group = 2
				want := make([]law.Outcome, len(ops))
				o.apply(ops, want)
				expectOutcomes(t, ops, apply(t, s, ops...), want)
			}
		}
	}
}
