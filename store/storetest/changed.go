package storetest

import (
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// afterReset charges a cell that was reset in a batch behind another op: one charge is made of it.
func afterReset(t *testing.T, s store.Store) {
	p := bucket(1, 10)
	one(t, s, take("reset", "a", p, 3, T0))
	one(t, s, take("reset", "b", p, 4, T0))
	b := take("reset", "b", p, 1, 0) // as callers charge
	emptied := reset(b, T0)
	emptied.Group = 2
	apply(t, s, check(take("reset", "a", p, 1, T0)), emptied)
	for i, want := range []int64{1, 2} {
		if out := one(t, s, b); out.Granted != 1 || i == 0 && out.Used > want*p.Unit {
			t.Errorf("charge %d after the reset: %+v; want at most %d units in use", i+1, out, want)
		}
	}
}

// settleOtherRule gives back what was charged under one limit to a cell that another one has made since, with
// as high a level as there may be: the arithmetic of the first must not be done on it.
func settleOtherRule(t *testing.T, s store.Store) {
	made := map[string]law.Params{
		"bucket": {Kind: law.Bucket, Unit: 1, Capacity: law.Max / 2, Step: hour, Drain: law.Max / 4},
		"fixed":  {Kind: law.Bucket, Anchor: law.Epoch, Unit: 1, Capacity: law.Max / 2, Step: hour, Drain: law.Max},
		"window": {Kind: law.Window, Unit: 1, Capacity: 1<<32 - 2, Step: hour},
		"log":    slidingLog(law.Max/2000, hour),
	}
	// A bit over one step of all, so that the window counts what it takes for the window before.
	o, at := newOracle(), int64(1_700_000_000_000_000)/hour*hour+hour-1
	for name, p := range made {
		for other, q := range made {
			key := name + " by " + other
			charge := take("elsewhere", key, p, p.Capacity/p.Unit, at)
			for _, after := range []int64{at, at + 2} {
				back := take("elsewhere", key, q, 1, after)
				back.Verb, back.At, back.Level = law.Return, at-1, q.Unit
				ops := []law.Op{charge, back}
				ops[1].Group = 2
				want := make([]law.Outcome, len(ops))
				o.apply(ops, want)
				compare(t, ops, apply(t, s, ops...), want)
			}
		}
	}
}
