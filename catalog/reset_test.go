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

// TestAChangedLimitCountsWhatWasUsed checks the numbers of docs/limits.md: 50 units were used an hour ago.
func TestAChangedLimitCountsWhatWasUsed(t *testing.T) {
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
		clock.at.Store(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).UnixMicro())
		s := memory.New(&memory.Config{Clock: clock.now, Names: true})
		c := open(t, s)
		l := headgate.New(s, &headgate.Config{Names: c})
		set(t, c, limit(t, "api", test.from))
		mustTake(t, l, "api", "bob", 50)
		clock.at.Add(time.Hour.Microseconds())
		set(t, c, limit(t, "api", test.to))
		st, err := l.Inspect(t.Context(), headgate.MustNamed("api"), "bob")
		if err != nil || st.Used.String() != test.used || st.Remaining != test.remaining {
			t.Errorf("%s to %s: %s used, %d remain, %v; want %s, %d", test.from, test.to, st.Used, st.Remaining, err,
				test.used, test.remaining)
		}
		d, err := l.Allow(t.Context(), headgate.MustNamed("api"), "bob")
		if err != nil || d.Allowed != (test.remaining > 0) || d.RetryAfter != test.retryAfter {
			t.Errorf("%s to %s: then allowed %v, retry after %s, %v", test.from, test.to, d.Allowed, d.RetryAfter, err)
		}
	}
}

// TestReservationsFromBeforeAChangeAreGivenBack raises and lowers limits without a change of their credits.
func TestReservationsFromBeforeAChangeAreGivenBack(t *testing.T) {
	for _, notations := range [][2]string{
		{"sliding-window 100/1d", "sliding-window 1000/1d"},
		{"sliding-log 100/1d", "sliding-log 1000/1d"},
		{"fixed-window 100/1d", "fixed-window 1000/1d"},
		{"token-bucket 1/1d burst 100", "token-bucket 1/1d burst 1000"},
	} {
		for _, n := range [][2]int{{0, 1}, {1, 0}} {
			s := memory.New(nil)
			c := open(t, s)
			l := headgate.New(s, &headgate.Config{Names: c})
			set(t, c, limit(t, "api", notations[n[0]]))
			charge := headgate.Charge{Limit: headgate.MustNamed("api"), Key: "bob", Cost: headgate.Units(40)}
			r, err := l.Reserve(t.Context(), 0, charge)
			if err != nil || !r.Decision.Allowed {
				t.Fatal(r, err)
			}
			set(t, c, limit(t, "api", notations[n[1]]))
			if _, err := r.Settle(t.Context(), headgate.Units(1)); err != nil {
				t.Error(err)
			}
			if st, err := l.Inspect(t.Context(), charge.Limit, "bob"); err != nil || st.Used != headgate.Units(1) {
				t.Errorf("%v, %v: %s used, want 1; %v", notations, n, st.Used, err)
			}
		}
	}
}

// TestResetForgetsAllKeysOfALimit has more keys than one batch, some with a plan or an override, and another limit.
func TestResetForgetsAllKeysOfALimit(t *testing.T) {
	s := memory.New(&memory.Config{Names: true})
	c := open(t, s)
	l := headgate.New(s, &headgate.Config{Names: c})
	set(t, c, limit(t, "api", "sliding-log 100/30d"), limit(t, "api2", "fixed-window 100/30d"))
	mustSucceed(t)(c.SetPlans(t.Context(), admin,
		catalog.Plan{Name: "pro", Limits: []headgate.Limit{named(t, "api", "fixed-window 1000/month")}}))
	mustSucceed(t)(c.Assign(t.Context(), admin, catalog.Assignment{Plan: "pro", Key: "paid"}))
	vip := named(t, "api", "token-bucket 1/30d burst 500")
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
	for _, want := range []int{len(keys), 0} { // nothing is left for the second time
		if n, err := c.Reset(t.Context(), "api"); n != want || err != nil {
			t.Errorf("%d keys are reset, %v; want %d", n, err, want)
		}
	}
	for _, key := range keys {
		for name, want := range map[string]string{"api": "0", "api2": "50"} {
			st, err := l.Inspect(t.Context(), headgate.MustNamed(name), key)
			if err != nil || st.Used.String() != want || !st.BlockedUntil.IsZero() {
				t.Errorf("%s %q: %+v, %v", name, key, st, err)
			}
		}
	}
}

func TestResetRefusesWhatItCannotDo(t *testing.T) {
	s := memory.New(&memory.Config{Names: true})
	c := open(t, s)
	set(t, c, limit(t, "jobs", "concurrency 5 ttl 1h"), limit(t, "api", "fixed-window 100/30d"))
	hidden := memory.New(nil)
	unlisted := open(t, hidden)
	set(t, unlisted, limit(t, "api", "fixed-window 100/30d"))
	for name, test := range map[string]struct {
		c    *catalog.Catalog
		want error
	}{
		"jobs": {c, headgate.ErrInvalid},
		"nix":  {c, headgate.ErrUnknownLimit},
		"api":  {unlisted, store.ErrSetup},
	} {
		if n, err := test.c.Reset(t.Context(), name); n != 0 || !errors.Is(err, test.want) {
			t.Errorf("%s: %d, %v; want %v", name, n, err, test.want)
		}
	}
}
