package storetest

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// step is one take of a golden table, at microseconds after the start of an
// hour.
type step struct {
	at      int64
	units   int64
	granted bool
	retry   int64 // microseconds until this cost can pass; law.Never
}

// start is a full hour, so that windows by the epoch begin there.
const start = T0 - T0%(3600*sec)

// golden holds one table for each algorithm, worked out by hand, and one for
// each fault of the articles that a store could have.
func golden(t *testing.T, s store.Store) {
	hourly := fixedWindow(2, hour)
	fromFirst := hourly
	fromFirst.Anchor = law.Own
	for _, tt := range []struct {
		name  string
		p     law.Params
		steps []step
	}{
		{"token bucket", bucket(1, 3), []step{
			{0, 2, true, 0},
			{0, 2, false, 1 * sec},
			{0, 1, true, 0},
			{0, 1, false, sec},
			{sec - 1, 1, false, 1},
			{sec, 1, true, 0},
			{100 * sec, 3, true, 0},
			{100 * sec, 4, false, law.Never},
		}},
		{"fixed window by the epoch", hourly, []step{
			{3599 * sec, 2, true, 0},
			{3599 * sec, 1, false, sec},
			{3600 * sec, 2, true, 0},
			{3600 * sec, 1, false, 3600 * sec},
		}},
		{"fixed window from the first request", fromFirst, []step{
			{5, 1, true, 0},
			{3600 * sec, 1, true, 0},
			{3600 * sec, 1, false, 5},
			{3600*sec + 5, 2, true, 0},
			{3600*sec + 6, 1, false, 3600*sec - 1},
		}},
		{
			"interval refill, phase from first use",
			law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: 10 * sec, Drain: 1000},
			[]step{
				{7, 3, true, 0},
				{9 * sec, 1, false, sec + 7},
				{10*sec + 7, 1, true, 0},
				{10*sec + 7, 2, false, 20 * sec},
				{30*sec + 7, 2, true, 0},
			},
		},
		{"sliding window", slidingWindow(4, 4*sec), []step{
			{0, 4, true, 0},
			{sec, 1, false, 4 * sec},
			{4 * sec, 1, false, sec},
			{5*sec - 10, 1, false, 10},
			{5 * sec, 1, true, 0},
			{5 * sec, 1, false, sec},
			{6 * sec, 1, true, 0},
			{6 * sec, 2, false, 2 * sec},
			{8 * sec, 2, true, 0},
		}},
		{"sliding log", slidingLog(2, 10*sec), []step{
			{0, 1, true, 0},
			{4 * sec, 1, true, 0},
			{5 * sec, 1, false, 5 * sec},
			{5 * sec, 2, false, 9 * sec},
			{10*sec - 1, 1, false, 1},
			{10 * sec, 1, true, 0},
			{10 * sec, 1, false, 4 * sec},
			{30 * sec, 2, true, 0},
			{30 * sec, 3, false, law.Never},
		}},
		{"fractions are kept however often a client asks (000, fault 1)", bucket(1, 1), []step{
			{0, 1, true, 0},
			{100_000, 1, false, 900_000},
			{200_000, 1, false, 800_000},
			{300_000, 1, false, 700_000},
			{999_999, 1, false, 1},
			{sec, 1, true, 0},
		}},
		{"half a token is not a whole one (000, fault 2)", bucket(10, 10), []step{
			{0, 10, true, 0}, {50_000, 1, false, 50_000}, {99_999, 1, false, 1}, {100_000, 1, true, 0},
		}},
		{"an idle bucket holds its burst and no more (000, fault 4)", bucket(1, 10), []step{
			{0, 1, true, 0}, {3600 * sec, 10, true, 0}, {3600 * sec, 1, false, sec},
		}},
		{"a refusal is no debt (000, fault 5; 004, fault 37)", bucket(1, 1), []step{
			{0, 1, true, 0}, {100, 1, false, sec - 100}, {200, 1, false, sec - 200}, {sec, 1, true, 0},
		}},
		{"a window is exact to the microsecond (001, fault 17; 003, fault 22)", slidingLog(1, sec), []step{
			{999_999, 1, true, 0}, {1_000_000, 1, false, 999_999}, {1_999_998, 1, false, 1}, {1_999_999, 1, true, 0},
		}},
		{"a grant does not put off the refill (003, fault 23)", fromFirst, []step{
			{0, 1, true, 0}, {3599 * sec, 1, true, 0}, {3600 * sec, 2, true, 0},
		}},
		{"idle time does not swallow a fill (004, fault 32)", bucket(1, 10), []step{
			{0, 1, true, 0}, {4 * sec, 5, true, 0}, {4 * sec, 6, false, sec},
		}},
		{"what exactly fits is admitted (004, fault 36)", bucket(1, 10), []step{{0, 10, true, 0}}},
	} {
		for i, st := range tt.steps {
			out := one(t, s, take(tt.name, "k", tt.p, st.units, start+st.at))
			retry := int64(0)
			if out.RetryAt == law.Never {
				retry = law.Never
			} else if out.Granted == 0 {
				retry = out.RetryAt - out.Clock
			}
			if (out.Granted == 1) != st.granted || retry != st.retry {
				t.Errorf("%s, step %d: granted %d, retry after %d us; want %+v", tt.name, i+1, out.Granted, retry, st)
			}
		}
	}

	// A clock read before the lock would let time run backwards (000, fault
	// 3; 004, fault 40): a step back mints nothing.
	p := bucket(1, 10)
	one(t, s, take("backwards", "k", p, 10, start+10*sec))
	for range 5 {
		if one(t, s, take("backwards", "k", p, 1, start)).Granted+
			one(t, s, take("backwards", "k", p, 1, start+10*sec)).Granted != 0 {
			t.Error("a clock that steps back minted a token")
		}
	}
	returnAfterSetBack(t, s)
	returnsInAWindow(t, s)
}

// returnsInAWindow gives back charges of a window in the order in which they were made: each in full,
// by what its outcome said and by its ID, also above the capacity.
func returnsInAWindow(t *testing.T, s store.Store) {
	p := fixedWindow(10, hour)
	at := T0 - T0%p.Step
	for _, named := range []bool{false, true} {
		key := fmt.Sprint("named ", named)
		var ops []law.Op
		var outs []law.Outcome
		for i := range 3 {
			op := take("returns", key, p, 3, at)
			if named {
				op.ID, op.TTL = fmt.Sprint(key, i), 60*sec
			}
			ops, outs = append(ops, op), append(outs, one(t, s, op))
		}
		more := law.Back(&ops[2], &outs[2], -5000)
		if more.Now = at + sec; named {
			more = settled(ops[2], 8, at+sec)
		}
		if out := one(t, s, more); out.Granted != -5000 {
			t.Errorf("%s: %d more were charged", key, -out.Granted)
		}
		for i, credits := range []int64{2000, 3000} {
			back := law.Back(&ops[i], &outs[i], credits)
			if back.Now = at + 2*sec; named {
				back = settled(ops[i], 3-credits/1000, at+2*sec)
			}
			if out := one(t, s, back); out.Granted != credits {
				t.Errorf("%s: charge %d: %d of %d were given back", key, i, out.Granted, credits)
			}
		}
		if out := one(t, s, take("returns", key, p, 1, at+3*sec)); out.Granted != 1 || out.Used != 10_000 {
			t.Errorf("%s: in use are %d of 10000, with %d granted", key, out.Used, out.Granted)
		}
	}
}

// returnAfterSetBack gives back a charge that had drained, and has been used by others,
// after the clock was set back so far that the cell has followed it.
func returnAfterSetBack(t *testing.T, s store.Store) {
	p := bucket(1, 5)
	first := take("returned", "set back", p, 5, T0+100*sec)
	out := one(t, s, first)
	one(t, s, take("returned", "set back", p, 5, T0+105*sec))
	one(t, s, take("returned", "set back", p, 1, T0))
	back := law.Back(&first, &out, p.Unit)
	back.Now = T0
	if got := one(t, s, back); got.Granted != 0 {
		t.Errorf("%d credits are given back of a charge that lies ahead of the clock", got.Granted)
	}
	if one(t, s, take("returned", "set back", p, 1, T0)).Granted != 0 {
		t.Error("a return after the clock was set back minted a token")
	}
}
