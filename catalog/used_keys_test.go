package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// soon is scaling without a wait: of a program that is the only one.
func soon(mode catalog.UsedMode) catalog.By {
	return catalog.By{Author: "alice", Used: catalog.Used{Mode: mode, Felt: time.Millisecond}}
}

// TestOnlyKeysForWhichAnotherLimitHoldsAreScaled makes each kind of change.
func TestOnlyKeysForWhichAnotherLimitHoldsAreScaled(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s store.Store) {
		c := open(t, s)
		l := within(s, c)
		set(t, c, limit(t, "api", "fixed-window 100/30d"), limit(t, "other", "fixed-window 100/30d"))
		done(t)(c.SetPlans(t.Context(), admin,
			catalog.Plan{Name: "pro", Limits: []headgate.Limit{named(t, "api", "fixed-window 1000/30d")}}))
		done(t)(c.Assign(t.Context(), admin, catalog.Assignment{Plan: "pro", Key: "paid"}))
		vip := named(t, "api", "fixed-window 500/30d")
		done(t)(c.Override(t.Context(), admin, catalog.Override{Limit: vip, Key: "vip"}))
		keys := []string{"", "a", "a/", "a/1", "a/2", "b", "paid", "vip"}
		for _, key := range keys {
			takes(t, l, "api", key, 50)
			takes(t, l, "other", key, 50)
		}
		by := soon(catalog.ScaleUsed)
		override := func(key, notation string, prefix bool) func() (int64, error) {
			return func() (int64, error) {
				return c.Override(t.Context(), by, catalog.Override{
					Limit: named(t, "api", notation), Key: key, Prefix: prefix,
				})
			}
		}
		for _, step := range []struct {
			what   string
			change func() (int64, error)
			want   string // of the keys, in their order
		}{
			{"the limit", func() (int64, error) {
				return c.Set(t.Context(), by, limit(t, "api", "fixed-window 10/30d"))
			}, "5 5 5 5 5 5 50 50"},
			{"an override of a prefix", override("a/", "fixed-window 20/30d", true), "5 5 10 10 10 5 50 50"},
			{"an override of a key", override("a/1", "fixed-window 40/30d", false), "5 5 10 20 10 5 50 50"},
			{"no more an override of the key", func() (int64, error) {
				return c.RemoveOverride(t.Context(), by, "api", "a/1", false)
			}, "5 5 10 10 10 5 50 50"},
			{"no more an override of the prefix", func() (int64, error) {
				return c.RemoveOverride(t.Context(), by, "api", "a/", true)
			}, "5 5 5 5 5 5 50 50"},
			{"a plan for a prefix", func() (int64, error) {
				return c.Assign(t.Context(), by, catalog.Assignment{Plan: "pro", Key: "a", Prefix: true})
			}, "5 500 500 500 500 5 50 50"},
			{"the plan", func() (int64, error) {
				return c.SetPlans(t.Context(), by,
					catalog.Plan{Name: "pro", Limits: []headgate.Limit{named(t, "api", "fixed-window 100/30d")}})
			}, "5 50 50 50 50 5 5 50"},
			{"no more a plan", func() (int64, error) {
				return c.Unassign(t.Context(), by, "a", true)
			}, "5 5 5 5 5 5 5 50"},
			{"as in the beginning", func() (int64, error) {
				return c.Rollback(t.Context(), by, 1, "api")
			}, "50 50 50 50 50 50 5 10"}, // no override, and no such plan
			{"a reset", func() (int64, error) {
				return c.Set(t.Context(), soon(catalog.ResetUsed), limit(t, "api", "fixed-window 10/30d"))
			}, "0 0 0 0 0 0 0 0"},
		} {
			done(t)(step.change())
			var got, others []string
			for _, key := range keys {
				got = append(got, fmt.Sprint(units(t, usedOf(t, l, "api", key))))
				others = append(others, fmt.Sprint(units(t, usedOf(t, l, "other", key))))
			}
			if list := strings.Join(got, " "); list != step.want {
				t.Errorf("%s: used %s, want %s", step.what, list, step.want)
			}
			if list := strings.Join(others, " "); list != strings.TrimSpace(strings.Repeat("50 ", len(keys))) {
				t.Errorf("%s: used %s of another limit", step.what, list)
			}
		}
	})
}

func usedOf(tb testing.TB, l *headgate.Limiter, name, key string) headgate.Cost {
	tb.Helper()
	s, err := l.Inspect(tb.Context(), headgate.MustNamed(name), key)
	if err != nil {
		tb.Fatal(err)
	}
	return s.Used
}

// TestAKeyThatIsScaledKeepsItsBlockAndItsIds asks again what was asked before.
func TestAKeyThatIsScaledKeepsItsBlockAndItsIds(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s store.Store) {
		c := open(t, s)
		l := within(s, c)
		for _, test := range []struct {
			mode         catalog.UsedMode
			blocked, old bool // the block stays; the id is known
			used         string
		}{
			{catalog.ScaleUsed, true, true, "5"},
			{catalog.ResetUsed, false, false, "0"},
		} {
			for i, notation := range []string{"fixed-window", "sliding-window", "sliding-log"} {
				name := fmt.Sprintf("x%d.%s", i, test.mode)
				set(t, c, limit(t, name, notation+" 100/30d"))
				takes(t, l, name, "bad", 50)
				if _, err := l.Block(t.Context(), headgate.MustNamed(name), "bad", time.Hour, "is rude"); err != nil {
					t.Fatal(err)
				}
				ask := headgate.Charge{Limit: headgate.MustNamed(name), Key: "bob", Cost: headgate.Units(1)}
				if d, err := l.Once("order 7", time.Hour).Take(t.Context(), ask); err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
				done(t)(c.Set(t.Context(), soon(test.mode), limit(t, name, notation+" 10/30d")))
				st, err := l.Inspect(t.Context(), headgate.MustNamed(name), "bad")
				if err != nil || !st.BlockedUntil.IsZero() != test.blocked || test.blocked && st.Reason != "is rude" ||
					fmt.Sprint(units(t, st.Used)) != test.used {
					t.Errorf("%s %s: %+v, %v", name, notation, st, err)
				}
				before := units(t, usedOf(t, l, name, "bob"))
				if d, err := l.Once("order 7", time.Hour).Take(t.Context(), ask); err != nil || !d.Allowed {
					t.Errorf("%s: again: %+v, %v", name, d, err)
				}
				if after := units(t, usedOf(t, l, name, "bob")); (after == before) != test.old {
					t.Errorf("%s: again under the id: %g used, and %g before", name, after, before)
				}
			}
		}
	})
}

// TestWhatIsHeldIsNotScaled changes limits of concurrency.
func TestWhatIsHeldIsNotScaled(t *testing.T) {
	s := memory.New(nil)
	c := open(t, s)
	l := headgate.New(s, &headgate.Config{Names: c})
	set(t, c, limit(t, "jobs", "concurrency 5 ttl 1h"), limit(t, "api", "fixed-window 100/30d"))
	done(t)(c.SetPlans(t.Context(), admin, catalog.Plan{Name: "pro", Limits: []headgate.Limit{
		named(t, "jobs", "concurrency 50 ttl 1h"), named(t, "api", "fixed-window 1000/30d"),
	}}))
	lease, err := l.Acquire(t.Context(), headgate.Charge{Limit: headgate.MustNamed("jobs"), Key: "bob"})
	if err != nil || !lease.Decision.Allowed {
		t.Fatal(lease, err)
	}
	takes(t, l, "api", "bob", 50)
	before, _ := c.Version()
	other := catalog.Override{Limit: named(t, "jobs", "concurrency 9 ttl 1h"), Key: "bob"}
	for _, mode := range []catalog.UsedMode{catalog.ScaleUsed, catalog.ResetUsed, 7} {
		by := soon(mode)
		for what, change := range map[string]func() (int64, error){
			"set":      func() (int64, error) { return c.Set(t.Context(), by, limit(t, "jobs", "concurrency 9 ttl 1h")) },
			"set late": func() (int64, error) { return c.Set(t.Context(), by, limit(t, "new", "concurrency 9 ttl 1h")) },
			"override": func() (int64, error) { return c.Override(t.Context(), by, other) },
			"plan":     func() (int64, error) { return c.RemovePlan(t.Context(), by, "pro") },
			"continue": func() (int64, error) { _, err := c.ContinueUsed(t.Context(), "jobs", by.Used); return 0, err },
		} {
			if _, err := change(); !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), "used") {
				t.Errorf("%s, %s: %v", what, mode, err)
			}
		}
	}
	if now, _ := c.Version(); now != before {
		t.Errorf("version %d, and %d before", now, before)
	}
	done(t)(c.Assign(t.Context(), soon(catalog.ScaleUsed), catalog.Assignment{Plan: "pro", Key: "bob"}))
	if got := inUse(t, l, "api", "bob"); got != "500" {
		t.Errorf("a plan that has a limit of concurrency, too: %s used", got)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("the lease: %v", err)
	}
}

// TestAChangeThatIsInterruptedGoesOn ends the context in the middle, and changes each key once.
func TestAChangeThatIsInterruptedGoesOn(t *testing.T) {
	const keys = 1250 // more than a page
	s := memory.New(&memory.Config{Names: true})
	c := open(t, s)
	l := headgate.New(s, &headgate.Config{Names: c})
	for _, mode := range []catalog.UsedMode{catalog.ScaleUsed, catalog.ResetUsed} {
		name := mode.String()
		set(t, c, limit(t, name, "sliding-log 100/30d"))
		for i := range keys {
			takes(t, l, name, fmt.Sprintf("k%d", i), 50)
		}
		count := func() (same, changed int) {
			for i := range keys {
				switch units(t, usedOf(t, l, name, fmt.Sprintf("k%d", i))) {
				case 50:
					same++
				case 5, 0:
					changed++
				}
			}
			return same, changed
		}
		ctx, cancel := context.WithCancel(t.Context())
		by := soon(mode)
		var phases []catalog.UsedPhase
		by.Used.Progress = func(p catalog.UsedProgress) {
			if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
				phases = append(phases, p.Phase)
			}
			if p.Phase == catalog.UsedWorking && p.Done > 300 {
				cancel()
			}
		}
		version, err := c.Set(ctx, by, limit(t, name, "sliding-log 10/30d"))
		left, ok := errors.AsType[*catalog.UnfinishedError](err)
		if !ok || !errors.Is(err, context.Canceled) || left.Version != version || left.Keys != keys ||
			left.Mode != mode {
			t.Fatalf("version %d, %+v", version, err)
		}
		want := []catalog.UsedPhase{catalog.UsedReading, catalog.UsedWaiting, catalog.UsedWorking}
		if !slices.Equal(phases, want) {
			t.Errorf("phases %v", phases)
		}
		same, changed := count()
		if changed != left.Done || same != keys-left.Done || left.Done < 300 || left.Done > 500 {
			t.Errorf("%s: %d keys are changed and %d not: %v", mode, changed, same, err)
		}
		takes(t, l, name, "new", 2)
		for range 2 {
			n, err := c.ContinueUsed(t.Context(), name, catalog.Used{Mode: mode})
			if err != nil {
				t.Fatalf("%s: %d, %v", mode, n, err)
			}
			if same, changed := count(); same != 0 || changed != keys {
				t.Errorf("%s: %d keys are changed and %d not", mode, changed, same)
			}
			want := map[catalog.UsedMode]string{catalog.ScaleUsed: "2", catalog.ResetUsed: "0"}[mode]
			if got := inUse(t, l, name, "new"); got != want {
				t.Errorf("%s: a key that came later has %s used, want %s", mode, got, want)
			}
		}
		history, err := c.History(t.Context(), name, 1)
		if err != nil || history[0].Number != version || history[0].Reason != "used: "+name {
			t.Errorf("%+v, %v", history, err)
		}
	}
}
