package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// extendParts extends what was charged by another rule, or in another window: two cases that the random histories of
// make test do not come to.
func extendParts(t *testing.T, s store.Store) {
	b, w := bucket(1, 10), slidingWindow(20, 10*sec)
	faster := b
	faster.Drain = 2
	for _, tt := range []struct {
		name        string
		first, then law.Params
		after, back int64 // seconds, units
	}{
		{"extended by another rule", b, faster, 2, 0},
		{"extended when the first window is over", w, w, 10, 4},
	} {
		op := named("parts", take(tt.name, "k", tt.first, 4, T0))[0]
		apply(t, s, op)
		op.Params = tt.then
		expect(t, s, tt.name, wanted{granted: 8}, extended(op, 8, T0+tt.after*sec))
		expect(t, s, tt.name+", settled", wanted{granted: tt.back}, settled(op, 0, T0+(tt.after+1)*sec))
	}
}

// extendSeveral extends requests of which one charge does not fit, or needs nothing more.
func extendSeveral(t *testing.T, s store.Store) {
	b, l := bucket(1, 10), slidingLog(100, 100*sec)
	var ops []law.Op
	for i := range 6 {
		p := []law.Params{b, l}[i%2]
		ops = append(ops, take("several", fmt.Sprint("key ", i), p, 1+int64(i%2), T0))
		ops[i].Cell.Limit = fmt.Sprint("several ", i%2)
	}
	named("several", ops...)
	apply(t, s, ops...)
	to := func(units ...int64) []law.Op {
		more := make([]law.Op, len(ops))
		for i := range ops {
			more[i] = extended(ops[i], units[i], T0)
		}
		return more
	}
	one(t, s, take("several 0", "key 4", b, 5, T0)) // 6 of 10 are in use
	for i, out := range apply(t, s, to(2, 3, 2, 3, 6, 3)...) {
		if out.Err != nil || (out.RetryAt != 0) != (i == 4) || out.Granted != (1+int64(i%2))*ops[i].Params.Unit {
			t.Errorf("one of six does not fit, charge %d: %+v", i+1, out)
		}
	}
	used := func(want ...int64) {
		t.Helper()
		for i, op := range ops {
			inUse(t, s, op, want[i])
		}
	}
	used(1, 2, 1, 2, 6, 2)
	for i, out := range apply(t, s, to(2, 2, 4, 1, 5, 50)...) {
		if out.Err != nil || out.RetryAt != 0 || out.Granted != []int64{2, 2, 4, 2, 5, 50}[i]*ops[i].Params.Unit {
			t.Errorf("charge %d: %+v", i+1, out)
		}
	}
	used(2, 2, 4, 2, 10, 50)
	other := extended(named("other", take("several 0", "k", b, 1, T0))[0], 1, T0)
	other.Group++
	if out := apply(t, s, append(to(2, 2, 4, 1, 5, 50), other)...); out[5].Err != nil || !out[5].Replayed ||
		!errors.Is(out[6].Err, law.ErrUnknownID) {
		t.Errorf("a request that is known and one that is not: %+v", out[5:])
	}
	back := each(ops, settled, 1, T0)
	for i := range back {
		back[i].Group = uint32(i + 1)
	}
	apply(t, s, back...)
	used(1, 1, 1, 1, 6, 1)
}

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
			concurrently(times, 1, func(_, _ int) {
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
			whole := named("work", op)[0]
			whole.Cost, whole.Count, whole.Partial = 30*p.Unit, 1, false
			for _, replayed := range []bool{false, true} {
				out := apply(t, s, whole)[0]
				if out.Granted != 1 || out.Replayed != replayed || out.Used <= p.Capacity {
					t.Errorf("under an id, replayed %t: %+v", replayed, out)
				}
			}
			if out := apply(t, s, settled(whole, 10, T0))[0]; out.Granted != 20*p.Unit && p.Kind != law.Bucket {
				t.Errorf("settled at a third: %+v", out)
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
