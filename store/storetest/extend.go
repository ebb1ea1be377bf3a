package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// testExtendOtherRule extends charges that were made by another rule, or in another window: two cases that the random
// histories of make test do not reach.
func testExtendOtherRule(t *testing.T, s store.Store) {
	slow, window := bucket(1, 10), slidingWindow(20, 10*sec)
	fast := slow
	fast.Drain = 2
	for _, tt := range []struct {
		name             string
		oldRule, newRule law.Params
		delay, returned  int64 // seconds until the extension; units that a settlement at 0 returns
	}{
		{"extended by another rule", slow, fast, 2, 0},
		{"extended when the first window is over", window, window, 10, 4},
	} {
		op := withID("parts", take(tt.name, "k", tt.oldRule, 4, T0))[0]
		apply(t, s, op)
		op.Params = tt.newRule
		expect(t, s, tt.name, outcome{granted: 8}, extend(op, 8, T0+tt.delay*sec))
		expect(t, s, tt.name+", settled", outcome{granted: tt.returned}, settle(op, 0, T0+(tt.delay+1)*sec))
	}
}

// testExtendSeveral extends requests of six charges, of which one does not fit or some need nothing more.
func testExtendSeveral(t *testing.T, s store.Store) {
	b, l := bucket(1, 10), slidingLog(100, 100*sec)
	var ops []law.Op
	for i := range 6 {
		p := []law.Params{b, l}[i%2]
		ops = append(ops, take("several", fmt.Sprint("key ", i), p, 1+int64(i%2), T0))
		ops[i].Cell.Limit = fmt.Sprint("several ", i%2)
	}
	withID("several", ops...)
	apply(t, s, ops...)
	extendTo := func(units ...int64) []law.Op {
		extensions := make([]law.Op, len(ops))
		for i := range ops {
			extensions[i] = extend(ops[i], units[i], T0)
		}
		return extensions
	}
	applyOne(t, s, take("several 0", "key 4", b, 5, T0)) // 6 of 10 are in use
	for i, out := range apply(t, s, extendTo(2, 3, 2, 3, 6, 3)...) {
		if out.Err != nil || (out.RetryAt != 0) != (i == 4) || out.Granted != (1+int64(i%2))*ops[i].Params.Unit {
			t.Errorf("one of six does not fit, charge %d: got %+v", i+1, out)
		}
	}
	expectUsed := func(want ...int64) {
		t.Helper()
		for i, op := range ops {
			expectInUse(t, s, op, want[i])
		}
	}
	expectUsed(1, 2, 1, 2, 6, 2)
	for i, out := range apply(t, s, extendTo(2, 2, 4, 1, 5, 50)...) {
		if out.Err != nil || out.RetryAt != 0 || out.Granted != []int64{2, 2, 4, 2, 5, 50}[i]*ops[i].Params.Unit {
			t.Errorf("all fit, charge %d: got %+v", i+1, out)
		}
	}
	expectUsed(2, 2, 4, 2, 10, 50)
	unknown := extend(withID("other", take("several 0", "k", b, 1, T0))[0], 1, T0)
	unknown.Group++
	if out := apply(t, s, append(extendTo(2, 2, 4, 1, 5, 50), unknown)...); out[5].Err != nil || !out[5].Replayed ||
		!errors.Is(out[6].Err, law.ErrUnknownID) {
		t.Errorf("an extension of a known id and one of an unknown id: got %+v", out[5:])
	}
	settlements := mapOps(ops, settle, 1, T0)
	for i := range settlements {
		settlements[i].Group = uint32(i + 1)
	}
	apply(t, s, settlements...)
	expectUsed(1, 1, 1, 1, 6, 1)
}

// testDebit charges keys above their capacity, as package headgate's Debit does, and returns credits without
// the outcome of their charge, as its Refund does.
func testDebit(t *testing.T, s store.Store) {
	for name, p := range map[string]law.Params{
		"bucket": bucket(1, 10), "fixed window": fixedWindow(10, hour), "sliding log": slidingLog(10, hour),
		"sliding window": slidingWindow(10, hour),
	} {
		t.Run(name, func(t *testing.T) {
			op := take("debit "+name, "k", p, 1, T0)
			op.Cost, op.Count, op.Partial, op.Ceiling = 1, 7*p.Unit, true, p.Highest()
			const times = 16
			runAtOnce(times, 1, func(_, _ int) {
				if out := try(t, s, op)[0]; out.Granted != op.Count {
					t.Errorf("got %d credits charged, want %d: %+v", out.Granted, op.Count, out)
				}
			})
			check := check(take(op.Cell.Limit, "k", p, 1, T0))
			checkOut := apply(t, s, check)[0]
			if checkOut.Used != times*op.Count || checkOut.Granted != 0 {
				t.Fatalf("got %d credits in use, want %d: %+v", checkOut.Used, times*op.Count, checkOut)
			}
			wantBack, wantSettled := 100*p.Unit, 20*p.Unit
			if name == "bucket" { // above its capacity it gives back no more than the capacity
				wantBack, wantSettled = p.Capacity, p.Capacity
			}
			if p.Kind != law.Log { // a log returns single entries
				if out := apply(t, s, law.Back(&check, &checkOut, 100*p.Unit))[0]; out.Granted != wantBack {
					t.Errorf("got %d credits given back, want %d: %+v", out.Granted, wantBack, out)
				}
			}
			takeWithID := withID("work", op)[0]
			takeWithID.Cost, takeWithID.Count, takeWithID.Partial = 30*p.Unit, 1, false
			for _, replayed := range []bool{false, true} {
				out := apply(t, s, takeWithID)[0]
				if out.Granted != 1 || out.Replayed != replayed || out.Used <= p.Capacity {
					t.Errorf("with an id: got %+v, want it admitted, replayed %t", out, replayed)
				}
			}
			if out := apply(t, s, settle(takeWithID, 10, T0))[0]; out.Granted != wantSettled {
				t.Errorf("settled at a third: got %+v, want %d credits back", out, wantSettled)
			}
			op.Count = law.Max // saturates
			for range 2 {
				if out := apply(t, s, op)[0]; out.Used != p.Highest() {
					t.Errorf("got %d in use, want %d: %+v", out.Used, p.Highest(), out)
				}
			}
			if out := apply(t, s, check)[0]; out.Granted != 0 {
				t.Errorf("a cell above its capacity: got %+v, want a refusal", out)
			}
		})
	}
}
