package catalog_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// mustTake takes a cost from a limit by name, and fails if it is refused.
func mustTake(tb testing.TB, l *headgate.Limiter, name, key string, cost int64) {
	tb.Helper()
	charge := headgate.Charge{Limit: headgate.MustNamed(name), Key: key, Cost: headgate.Units(cost)}
	if d, err := l.Take(tb.Context(), charge); err != nil || !d.Allowed {
		tb.Fatalf("take %d of %s %s: %+v, %v", cost, name, key, d, err)
	}
}

// TestAChangedLimitCountsEarlierUse checks the numbers of docs/limits.md, with a change an hour after a take of 50.
func TestAChangedLimitCountsEarlierUse(t *testing.T) {
	for _, test := range []struct {
		from, to   string
		used       string
		remaining  int64
		retryAfter time.Duration // until a cost of 1 passes
	}{
		{"fixed-window 100/1d", "fixed-window 1000/1d", "50", 950, 0},
		{"fixed-window 100/1d", "fixed-window 60/1d", "50", 10, 0},
		{"fixed-window 100/1d", "fixed-window 10/1d", "50", 0, 11 * time.Hour},
		{"sliding-log 100/1d", "sliding-log 10/1d", "50", 0, 23 * time.Hour},
		{"token-bucket 1/1h burst 100", "token-bucket 1/1h burst 60", "49", 11, 0},
		{"token-bucket 1/1h burst 100", "token-bucket 1/1h burst 10", "49", 0, 40 * time.Hour},
		{"token-bucket 1/1h burst 100", "token-bucket 10/1h burst 10", "40", 0, 3*time.Hour + 6*time.Minute},
		{"sliding-log 100/1d", "token-bucket 1/1h burst 100", "50", 50, 0},
	} {
		clock := new(manualClock)
		clock.micros.Store(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).UnixMicro())
		s := memory.New(&memory.Config{Clock: clock.now, Names: true})
		c := open(t, s)
		l := headgate.New(s, &headgate.Config{Names: c})
		mustSet(t, c, define(t, "api", test.from))
		mustTake(t, l, "api", "bob", 50)
		clock.micros.Add(time.Hour.Microseconds())
		mustSet(t, c, define(t, "api", test.to))
		st, err := l.Inspect(t.Context(), headgate.MustNamed("api"), "bob")
		if err != nil || st.Used.String() != test.used || st.Remaining != test.remaining {
			t.Errorf("%s to %s: got %s used, %d remain, %v; want %s, %d", test.from, test.to, st.Used, st.Remaining, err,
				test.used, test.remaining)
		}
		d, err := l.Allow(t.Context(), headgate.MustNamed("api"), "bob")
		if err != nil || d.Allowed != (test.remaining > 0) || d.RetryAfter != test.retryAfter {
			t.Errorf("%s to %s: got allowed %v, retry after %s, %v; want %v, %s", test.from, test.to, d.Allowed, d.RetryAfter,
				err, test.remaining > 0, test.retryAfter)
		}
	}
}

// TestSettleAfterALimitHasChanged settles 40 units at 1 after the limit was raised or lowered: 1 must remain in use.
func TestSettleAfterALimitHasChanged(t *testing.T) {
	for _, notations := range [][2]string{
		{"sliding-window 100/1d", "sliding-window 1000/1d"},
		{"sliding-log 100/1d", "sliding-log 1000/1d"},
		{"fixed-window 100/1d", "fixed-window 1000/1d"},
		{"token-bucket 1/1d burst 100", "token-bucket 1/1d burst 1000"},
	} {
		for _, order := range [][2]int{{0, 1}, {1, 0}} {
			s := memory.New(nil)
			c := open(t, s)
			l := headgate.New(s, &headgate.Config{Names: c})
			mustSet(t, c, define(t, "api", notations[order[0]]))
			charge := headgate.Charge{Limit: headgate.MustNamed("api"), Key: "bob", Cost: headgate.Units(40)}
			r, err := l.Reserve(t.Context(), 0, charge)
			if err != nil || !r.Decision.Allowed {
				t.Fatal(r, err)
			}
			mustSet(t, c, define(t, "api", notations[order[1]]))
			if _, err := r.Settle(t.Context(), headgate.Units(1)); err != nil {
				t.Error(err)
			}
			if st, err := l.Inspect(t.Context(), charge.Limit, "bob"); err != nil || st.Used != headgate.Units(1) {
				t.Errorf("%v, %v: got %s used, %v; want 1", notations, order, st.Used, err)
			}
		}
	}
}

// TestResetForgetsAllKeysOfALimit resets 253 keys, more than two batches: one has a block, one a plan, one an override.
func TestResetForgetsAllKeysOfALimit(t *testing.T) {
	s := memory.New(&memory.Config{Names: true})
	c := open(t, s)
	l := headgate.New(s, &headgate.Config{Names: c})
	mustSet(t, c, define(t, "api", "sliding-log 100/30d"), define(t, "api2", "fixed-window 100/30d"))
	mustSucceed(t)(c.SetPlans(t.Context(), admin,
		catalog.Plan{Name: "pro", Limits: []headgate.Limit{limit(t, "api", "fixed-window 1000/month")}}))
	mustSucceed(t)(c.Assign(t.Context(), admin, catalog.Assignment{Plan: "pro", Key: "paid"}))
	vip := limit(t, "api", "token-bucket 1/30d burst 500")
	mustSucceed(t)(c.Override(t.Context(), admin, catalog.Override{Limit: vip, Key: "vip"}))
	keys := []string{"", "paid", "vip"}
	for i := range 250 {
		keys = append(keys, fmt.Sprintf("k%d", i))
	}
	for _, key := range keys {
		mustTake(t, l, "api", key, 50)
		mustTake(t, l, "api2", key, 50)
	}
	if _, err := l.Block(t.Context(), headgate.MustNamed("api"), "k7", time.Hour, "is rude"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{len(keys), 0} { // a second Reset finds no keys
		if n, err := c.Reset(t.Context(), "api"); n != want || err != nil {
			t.Errorf("got %d keys reset, %v; want %d", n, err, want)
		}
	}
	for _, key := range keys {
		for name, want := range map[string]string{"api": "0", "api2": "50"} {
			st, err := l.Inspect(t.Context(), headgate.MustNamed(name), key)
			if err != nil || st.Used.String() != want || !st.BlockedUntil.IsZero() {
				t.Errorf("%s %q: got %+v, %v; want %s used, no block", name, key, st, err, want)
			}
		}
	}
}

func TestResetErrors(t *testing.T) {
	s := memory.New(&memory.Config{Names: true})
	c := open(t, s)
	mustSet(t, c, define(t, "jobs", "concurrency 5 ttl 1h"), define(t, "api", "fixed-window 100/30d"))
	unlisted := open(t, memory.New(nil)) // a memory store without Names cannot list its keys
	mustSet(t, unlisted, define(t, "api", "fixed-window 100/30d"))
	for name, test := range map[string]struct {
		c    *catalog.Catalog
		want error
	}{
		"jobs": {c, headgate.ErrInvalid},
		"nix":  {c, headgate.ErrUnknownLimit},
		"api":  {unlisted, store.ErrSetup},
	} {
		if n, err := test.c.Reset(t.Context(), name); n != 0 || !errors.Is(err, test.want) {
			t.Errorf("%s: got %d keys, %v; want 0, %v", name, n, err, test.want)
		}
	}
}
