package storetest

import (
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// elsewhere gives back what was charged under one limit to a cell that another one has made since, with
// as high a level as there may be: the arithmetic of the first must not be done on it.
func elsewhere(t *testing.T, s store.Store) {
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
