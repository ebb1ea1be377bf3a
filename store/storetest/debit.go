package storetest

import (
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// debit charges keys above the capacity, as package headgate's Debit does, and gives back what no
// outcome is known of, as its Refund does.
func debit(t *testing.T, s store.Store) {
	for name, p := range map[string]law.Params{
		"bucket": bucket(1, 10), "fixed window": fixedWindow(10, hour), "sliding log": slidingLog(10, hour),
		"sliding window": slidingWindow(10, hour),
	} {
		t.Run(name, func(t *testing.T) {
			op := take("debit "+name, "k", p, 1, T0)
			op.Cost, op.Count, op.Partial, op.Ceiling = 1, 7*p.Unit, true, p.Highest()
			const times = 16
			crowd(times, 1, func(_, _ int) {
				if out := try(t, s, op)[0]; out.Granted != op.Count {
					t.Errorf("%d were charged of %d: %+v", out.Granted, op.Count, out)
				}
			})
			check := check(take(op.Cell.Limit, "k", p, 1, T0))
			looked := apply(t, s, check)[0]
			if looked.Used != times*op.Count || looked.Granted != 0 {
				t.Fatalf("%d are in use, want %d: %+v", looked.Used, times*op.Count, looked)
			}
			if p.Kind != law.Log { // which gives back single entries
				back := law.Back(&check, &looked, 100*p.Unit)
				if out := apply(t, s, back)[0]; out.Granted != 100*p.Unit && p.Kind == law.Window ||
					out.Granted < 9*p.Unit || out.Granted > 100*p.Unit {
					t.Errorf("%d of %d credits were given back: %+v", out.Granted, 100*p.Unit, out)
				}
			}
			op.Count = law.Max // saturates
			for range 2 {
				if out := apply(t, s, op)[0]; out.Used > p.Highest() || out.Used <= p.Capacity {
					t.Errorf("the level is %d, want up to %d: %+v", out.Used, p.Highest(), out)
				}
			}
			if out := apply(t, s, check)[0]; out.Granted != 0 {
				t.Errorf("a cell above its capacity admits: %+v", out)
			}
		})
	}
}
