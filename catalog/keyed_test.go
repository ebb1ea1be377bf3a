package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

var admin = catalog.By{Author: "alice", Reason: "because"}

// mustSucceed returns a function that fails the test if an edit has failed.
func mustSucceed(tb testing.TB) func(int64, error) {
	return func(_ int64, err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
}

func named(tb testing.TB, name, notation string) headgate.Limit {
	tb.Helper()
	return limit(tb, name, notation).Limit
}

// take takes one unit from a limit by name.
func take(tb testing.TB, l *headgate.Limiter, name, key string) headgate.Decision {
	tb.Helper()
	d, err := l.Allow(tb.Context(), headgate.MustNamed(name), key)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// TestWhichLimitHoldsForAKey gives one limit all kinds of items.
func TestWhichLimitHoldsForAKey(t *testing.T) {
	s := memory.New(nil)
	c := open(t, s)
	set(t, c, limit(t, "login", "fixed-window 1/1h"), limit(t, "api", "fixed-window 2/1h"))
	mustSucceed(t)(c.SetPlans(t.Context(), admin,
		catalog.Plan{Name: "pro", Limits: []headgate.Limit{named(t, "login", "fixed-window 10/1h")}},
		catalog.Plan{Name: "team", Limits: []headgate.Limit{
			named(t, "login", "fixed-window 20/1h"), named(t, "api", "fixed-window 21/1h"),
		}}))
	mustSucceed(t)(c.Assign(t.Context(), admin,
		catalog.Assignment{Plan: "pro", Key: "bob"}, catalog.Assignment{Plan: "pro", Key: "acme/ann"},
		catalog.Assignment{Plan: "team", Key: "acme/", Prefix: true},
		catalog.Assignment{Plan: "pro", Key: "acme/x/", Prefix: true},
		catalog.Assignment{Plan: "pro", Key: "carl"}))
	mustSucceed(t)(c.Override(t.Context(), admin,
		catalog.Override{Limit: named(t, "login", "fixed-window 100/1h"), Key: "carl"},
		catalog.Override{Limit: named(t, "login", "fixed-window 200/1h"), Key: "big/", Prefix: true},
		catalog.Override{Limit: named(t, "login", "fixed-window 300/1h"), Key: "big/er/", Prefix: true},
		catalog.Override{Limit: named(t, "login", "unlimited"), Key: "big/er/one"},
		catalog.Override{Limit: named(t, "login", "0"), Key: "mallory"}))

	l := headgate.New(s, &headgate.Config{Names: c})
	for _, test := range []struct {
		limit, key, applied string
		capacity            int64
	}{
		{"login", "nobody", "", 1},
		{"login", "bob", "plan pro", 10},
		{"api", "bob", "", 2}, // the plan does not name api
		{"login", "acme/joe", "plan team of acme/*", 20},
		{"api", "acme/joe", "plan team of acme/*", 21},
		{"login", "acme/ann", "plan pro", 10},
		{"api", "acme/ann", "", 2}, // the key has a plan, so the plan of the prefix does not count
		{"login", "acme/x/y", "plan pro of acme/x/*", 10},
		{"login", "carl", "override", 100},
		{"login", "big/", "override of big/*", 200},
		{"login", "big/er/two", "override of big/er/*", 300},
		{"login", "big", "", 1},
	} {
		if d := take(t, l, test.limit, test.key); d.Applied != test.applied || d.Capacity != test.capacity {
			t.Errorf("%s %s: %q, %d; want %q, %d", test.limit, test.key, d.Applied, d.Capacity, test.applied, test.capacity)
		}
	}
	if d := take(t, l, "login", "mallory"); d.Allowed || d.RetryAfter != headgate.Never {
		t.Errorf("0 in the place of a limit: %+v", d)
	}
	for range 100 {
		if d := take(t, l, "login", "big/er/one"); !d.Allowed {
			t.Fatalf("unlimited in the place of a limit: %+v", d)
		}
	}
	mustSucceed(t)(c.Assign(t.Context(), admin, catalog.Assignment{Plan: "pro"}))
	if list, err := c.Assignments(t.Context(), "", 1); err != nil || len(list) != 1 || list[0].Key != "" {
		t.Errorf("the first assignment is that of the empty key: %+v, %v", list, err)
	}
	d, err := l.Take(t.Context(), headgate.Charge{Limit: headgate.MustNamed("login"), Key: "carl"},
		headgate.Charge{Limit: headgate.MustNamed("api"), Key: "acme/joe"})
	if err != nil || len(d.Each) != 2 || d.Each[0].Applied != "override" || d.Each[1].Applied != "plan team of acme/*" {
		t.Errorf("two charges: %+v, %v", d, err)
	}
	st, err := l.Inspect(t.Context(), headgate.MustNamed("login"), "carl")
	if err != nil || st.Applied != "override" || st.Rule != "fixed-window 100/1h" || st.Used != headgate.Units(2) {
		t.Errorf("inspect: %+v, %v", st, err)
	}
}

// countingStore counts the look-ups of items of single keys.
type countingStore struct {
	store.Store
	store.Catalog
	asked atomic.Int64
	mu    sync.Mutex
	last  []store.Item
	slow  func() // waits as long as an answer takes
}

func (c *countingStore) Unwrap() store.Store { return c.Store }

func (c *countingStore) Items(ctx context.Context, list []store.Item) (int64, []store.Item, error) {
	c.asked.Add(1)
	c.mu.Lock()
	c.last = slices.Clone(list)
	c.mu.Unlock()
	c.slow()
	return c.Catalog.Items(ctx, list)
}

func newCountingStore(slow func()) *countingStore {
	s := memory.New(nil)
	k, _ := store.As[store.Catalog](s)
	return &countingStore{Store: s, Catalog: k, slow: slow}
}

// TestAKeyIsLookedUpOnce counts the look-ups of many callers.
func TestAKeyIsLookedUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountingStore(func() { time.Sleep(20 * time.Millisecond) })
		writer, c := open(t, s.Store), open(t, s)
		set(t, writer, limit(t, "login", "token-bucket 1000/1h"))
		await.Until(t, "the limit is known", func() bool { return len(c.List()) == 1 })
		l := headgate.New(s, &headgate.Config{Names: c})
		s.asked.Store(0)
		for range 10 {
			take(t, l, "login", "bob")
		}
		if n := s.asked.Load(); n != 0 {
			t.Errorf("without plans and overrides %d questions were asked", n)
		}
		mustSucceed(t)(writer.SetPlans(t.Context(), admin, catalog.Plan{
			Name: "pro", Limits: []headgate.Limit{named(t, "login", "token-bucket 2000/1h")},
		}))
		mustSucceed(t)(writer.Assign(t.Context(), admin, catalog.Assignment{Plan: "pro", Key: "bob"}))
		mustSucceed(t)(writer.Override(t.Context(), admin, catalog.Override{
			Limit: named(t, "login", "token-bucket 3000/1h"), Key: "carl",
		}))
		version, _ := writer.Version()
		await.Until(t, "the plan is known", func() bool { v, _ := c.Version(); return v == version })

		s.asked.Store(0)
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() { take(t, l, "login", []string{"bob", "carl", "ann"}[i%3]) })
		}
		wg.Wait()
		if n := s.asked.Load(); n > 3 { // callers that came during the first look-up were looked up together
			t.Errorf("100 callers of 3 keys asked %d questions", n)
		}
		s.asked.Store(0)
		for range 10 {
			a, b := take(t, l, "login", "bob").Applied, take(t, l, "login", "ann").Applied
			if a != "plan pro" || b != "" {
				t.Fatalf("%q, %q", a, b)
			}
		}
		if n := s.asked.Load(); n != 0 {
			t.Errorf("what is known, and that there is nothing, was asked for %d times", n)
		}

		mustSucceed(t)(writer.Unassign(t.Context(), admin, "bob", false))
		await.Until(t, "bob has no plan", func() bool { return take(t, l, "login", "bob").Applied == "" })
		for _, key := range []string{"carl", "ann", "bob"} {
			take(t, l, "login", key)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		want := []store.Item{{Kind: store.KindAssignment, Key: "bob"}}
		if n := s.asked.Load(); n != 1 || !slices.Equal(s.last, want) {
			t.Errorf("one key was changed, and %d questions were asked, the last for %v", n, s.last)
		}
	})
}

// TestNoDecisionIsByHalfAChange changes a plan and an override in one version, again and again. No decision sees only
// one of the two changes.
func TestNoDecisionIsByHalfAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountingStore(func() { time.Sleep(100 * time.Microsecond) })
		writer, c := open(t, s.Store), open(t, s)
		set(t, writer, limit(t, "login", "token-bucket 1/1h burst 1"))
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		write := func(n int) {
			now, err := s.ReadCatalog(ctx, 0)
			text := fmt.Sprintf("token-bucket 1/1h burst %d", n)
			if err == nil {
				_, err = s.WriteCatalog(ctx, store.Edit{Base: now.Version, Items: []store.Item{
					{Kind: store.KindPlan, Name: "pro", Key: "login", Text: text},
					{Kind: store.KindOverride, Name: "login", Key: "carl", Text: text},
					{Kind: store.KindPrefixOverride, Name: "login", Key: "acme/", Text: text},
					{Kind: store.KindAssignment, Key: "bob", Text: "pro"},
				}})
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
		write(2)
		// A look-up that meets too many changes returns ErrUnavailable. That happens if this goroutine
		// gets more of the processor than the other.
		looks := make(chan struct{}, 3)
		wg.Go(func() {
			for n := 3; ; n++ {
				select {
				case <-looks:
				case <-ctx.Done():
					return
				}
				write(n)
				time.Sleep(930 * time.Microsecond)
			}
		})
		await.Until(t, "the plan is known", func() bool { return len(c.Plans()) == 1 })
		seen := map[string]bool{}
		for begin := time.Now(); time.Since(begin) < 200*time.Millisecond; time.Sleep(30 * time.Microsecond) {
			charges := []headgate.Charge{
				{Limit: headgate.MustNamed("login"), Key: "bob"},
				{Limit: headgate.MustNamed("login"), Key: "carl"},
				{Limit: headgate.MustNamed("login"), Key: "acme/1"},
			}
			select {
			case looks <- struct{}{}:
			default:
			}
			if err := c.FindAll(t.Context(), charges); err != nil {
				t.Fatal(err)
			}
			texts := []string{charges[0].Limit.String(), charges[1].Limit.String(), charges[2].Limit.String()}
			if texts[0] != texts[1] || texts[0] != texts[2] {
				t.Fatalf("half a change: %q", texts)
			}
			seen[texts[0]] = true
		}
		cancel()
		wg.Wait()
		if len(seen) < 10 {
			t.Errorf("%d versions were seen", len(seen))
		}
	})
}

// TestWrongPlansAndOverridesChangeNothing makes edits with invalid input.
func TestWrongPlansAndOverridesChangeNothing(t *testing.T) {
	s := memory.New(nil)
	c := open(t, s)
	set(t, c, limit(t, "login", "token-bucket 5/1m"), limit(t, "jobs", "concurrency 5 ttl 1m"))
	mustSucceed(t)(c.SetPlans(t.Context(), admin, catalog.Plan{
		Name: "pro", Limits: []headgate.Limit{named(t, "login", "token-bucket 10/1m")},
	}))
	before, _ := c.Version()
	login := named(t, "login", "token-bucket 6/1m")
	override := func(o catalog.Override) error { return errOf(c.Override(t.Context(), admin, o)) }
	assign := func(a catalog.Assignment) error { return errOf(c.Assign(t.Context(), admin, a)) }
	plan := func(p catalog.Plan) error { return errOf(c.SetPlans(t.Context(), admin, p)) }
	for name, test := range map[string]struct {
		err  error
		want error
		says string
	}{
		"an override in the past": {
			override(catalog.Override{Limit: login, Key: "bob", Until: time.Now().Add(-time.Second)}), headgate.ErrInvalid, "until: ",
		},
		"an override that ends after all time": {
			override(catalog.Override{Limit: login, Key: "bob", Until: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}),
			headgate.ErrInvalid, "until: ",
		},
		"of a limit that is not there": {override(catalog.Override{Limit: named(t, "nix", "0"), Key: "bob"}), headgate.ErrUnknownLimit, `"nix"`},
		"without a name":               {override(catalog.Override{Limit: headgate.MustParse("0"), Key: "b"}), headgate.ErrInvalid, "limit: "},
		"a bucket for a lease":         {override(catalog.Override{Limit: named(t, "jobs", "1/s"), Key: "bob"}), headgate.ErrInvalid, "acquired"},
		"a key that is too long":       {override(catalog.Override{Limit: login, Key: strings.Repeat("x", 513)}), headgate.ErrInvalid, "key: "},
		"of all keys":                  {override(catalog.Override{Limit: login, Prefix: true}), headgate.ErrInvalid, "key: "},
		"a plan that is not there":     {assign(catalog.Assignment{Plan: "gold", Key: "bob"}), headgate.ErrInvalid, `"gold" is not known; the catalog has pro`},
		"a plan in the past": {
			assign(catalog.Assignment{Plan: "pro", Key: "bob", Until: time.Now().Add(-time.Second)}), headgate.ErrInvalid, "until: ",
		},
		"no plan to take away":     {errOf(c.Unassign(t.Context(), admin, "bob", false)), headgate.ErrInvalid, `"bob" has none`},
		"no override to remove":    {errOf(c.RemoveOverride(t.Context(), admin, "login", "bob", false)), headgate.ErrInvalid, "has none"},
		"a plan of no limits":      {plan(catalog.Plan{Name: "gold"}), headgate.ErrInvalid, "plan: "},
		"a plan with a bad name":   {plan(catalog.Plan{Name: "Gold", Limits: []headgate.Limit{login}}), headgate.ErrInvalid, "plan: "},
		"a plan for a strange one": {plan(catalog.Plan{Name: "gold", Limits: []headgate.Limit{named(t, "nix", "0")}}), headgate.ErrUnknownLimit, `"nix"`},
		"a limit twice":            {plan(catalog.Plan{Name: "gold", Limits: []headgate.Limit{login, login}}), headgate.ErrInvalid, "twice"},
		"no plan to remove":        {errOf(c.RemovePlan(t.Context(), admin, "gold")), headgate.ErrInvalid, `"gold" is not known`},
	} {
		if !errors.Is(test.err, test.want) || !strings.Contains(test.err.Error(), test.says) {
			t.Errorf("%s: %v; want %v that says %s", name, test.err, test.want, test.says)
		}
	}
	if after, _ := c.Version(); after != before {
		t.Errorf("the version was %d and is %d", before, after)
	}
	many := make([]catalog.Override, 10_001)
	for i := range many {
		many[i] = catalog.Override{Limit: login, Key: fmt.Sprint("p", i, "/"), Prefix: true}
	}
	if err := errOf(c.Override(t.Context(), admin, many...)); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("10,001 prefixes: %v", err)
	}
	mustSucceed(t)(c.Override(t.Context(), admin, many[:10_000]...))
	mustSucceed(t)(c.Override(t.Context(), admin, many[:1]...))
	if err := errOf(c.Override(t.Context(), admin, many[10_000])); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("one prefix more: %v", err)
	}
}

// errOf returns the error of an edit.
func errOf(_ int64, err error) error { return err }

// TestAFileDefinesPlans applies files with plans, and rolls back.
func TestAFileDefinesPlans(t *testing.T) {
	s := memory.New(nil)
	c := open(t, s)
	pro := catalog.Plan{Name: "pro", Limits: []headgate.Limit{named(t, "login", "token-bucket 10/1m")}}
	file := catalog.File{Path: "a.yaml", Limits: []catalog.Definition{limit(t, "login", "token-bucket 5/1m")}, Plans: []catalog.Plan{pro}}
	d, version, err := c.Apply(t.Context(), admin, file, catalog.Once)
	if err != nil || len(d.Changes) != 2 || catalog.Describe(d.Changes[1]) != "+ plan pro: login = token-bucket 10/1m burst 10" {
		t.Fatalf("%+v, %v", d, err)
	}
	d, _, err = c.Apply(t.Context(), admin, file, catalog.Once)
	if err != nil || !d.Empty() || d.Known != catalog.Newest {
		t.Errorf("again: %+v, %v", d, err)
	}
	file.Plans = nil
	d, _, err = c.Apply(t.Context(), admin, file, catalog.Once)
	if err != nil || len(d.Changes) != 1 || !c.Plans()[0].Retired {
		t.Errorf("a file without the plan: %+v, %v, %+v", d, err, c.Plans())
	}
	mustSucceed(t)(c.Assign(t.Context(), admin, catalog.Assignment{Plan: "pro", Key: "bob"}))
	mustSucceed(t)(c.Override(t.Context(), admin, catalog.Override{Limit: named(t, "login", "0"), Key: "bob"}))
	if _, err := c.Rollback(t.Context(), admin, version); err != nil {
		t.Fatal(err)
	}
	plan, overrides, err := c.Has(t.Context(), "bob", "login")
	if err != nil || plan != nil || overrides != nil || c.Plans()[0].Retired {
		t.Errorf("after the rollback bob has %v, %v, %v; plans %+v", plan, overrides, err, c.Plans())
	}
	file.Plans = []catalog.Plan{{Name: "pro", Limits: []headgate.Limit{named(t, "nix", "0")}}}
	if _, _, err := c.Apply(t.Context(), admin, file, catalog.Once); !errors.Is(err, headgate.ErrUnknownLimit) {
		t.Errorf("a plan for a limit that is not there: %v", err)
	}
}

// TestAPlanOfTheEmptyKey assigns a plan only to the empty key.
func TestAPlanOfTheEmptyKey(t *testing.T) {
	s := memory.New(nil)
	c := open(t, s)
	set(t, c, limit(t, "login", "fixed-window 1/1h"))
	mustSucceed(t)(c.SetPlans(t.Context(), admin, catalog.Plan{
		Name: "pro", Limits: []headgate.Limit{named(t, "login", "fixed-window 10/1h")},
	}))
	mustSucceed(t)(c.Assign(t.Context(), admin, catalog.Assignment{Plan: "pro"}))
	l := headgate.New(s, &headgate.Config{Names: open(t, s)})
	if d := take(t, l, "login", ""); d.Applied != "plan pro" {
		t.Errorf("%+v", d)
	}
}
