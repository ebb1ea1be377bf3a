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

func limit(tb testing.TB, name, notation string) headgate.Limit {
	tb.Helper()
	return define(tb, name, notation).Limit
}

// take takes one unit of a limit of the catalog, and returns the decision: admitted or refused.
func take(tb testing.TB, l *headgate.Limiter, name, key string) headgate.Decision {
	tb.Helper()
	d, err := l.Allow(tb.Context(), headgate.MustNamed(name), key)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// TestPrecedenceOfPlansAndOverrides checks which limit holds for keys that have plans and overrides, also by prefix.
func TestPrecedenceOfPlansAndOverrides(t *testing.T) {
	s := memory.New(nil)
	c := open(t, s)
	mustSet(t, c, define(t, "login", "fixed-window 1/1h"), define(t, "api", "fixed-window 2/1h"))
	mustSucceed(t)(c.SetPlans(t.Context(), admin,
		catalog.Plan{Name: "pro", Limits: []headgate.Limit{limit(t, "login", "fixed-window 10/1h")}},
		catalog.Plan{Name: "team", Limits: []headgate.Limit{
			limit(t, "login", "fixed-window 20/1h"), limit(t, "api", "fixed-window 21/1h"),
		}}))
	mustSucceed(t)(c.Assign(t.Context(), admin,
		catalog.Assignment{Plan: "pro", Key: "bob"}, catalog.Assignment{Plan: "pro", Key: "acme/ann"},
		catalog.Assignment{Plan: "team", Key: "acme/", Prefix: true},
		catalog.Assignment{Plan: "pro", Key: "acme/x/", Prefix: true},
		catalog.Assignment{Plan: "pro", Key: "carl"}))
	mustSucceed(t)(c.Override(t.Context(), admin,
		catalog.Override{Limit: limit(t, "login", "fixed-window 100/1h"), Key: "carl"},
		catalog.Override{Limit: limit(t, "login", "fixed-window 200/1h"), Key: "big/", Prefix: true},
		catalog.Override{Limit: limit(t, "login", "fixed-window 300/1h"), Key: "big/er/", Prefix: true},
		catalog.Override{Limit: limit(t, "login", "unlimited"), Key: "big/er/one"},
		catalog.Override{Limit: limit(t, "login", "0"), Key: "mallory"}))

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
		t.Errorf("limit 0 in the place of a limit: got %+v, want a refusal for ever", d)
	}
	for range 100 {
		if d := take(t, l, "login", "big/er/one"); !d.Allowed {
			t.Fatalf("unlimited in the place of a limit: got %+v, want it admitted", d)
		}
	}
	mustSucceed(t)(c.Assign(t.Context(), admin, catalog.Assignment{Plan: "pro"}))
	if list, err := c.Assignments(t.Context(), "", 1); err != nil || len(list) != 1 || list[0].Key != "" {
		t.Errorf("got %+v, %v; want the assignment of the empty key first", list, err)
	}
	d, err := l.Take(t.Context(), headgate.Charge{Limit: headgate.MustNamed("login"), Key: "carl"},
		headgate.Charge{Limit: headgate.MustNamed("api"), Key: "acme/joe"})
	if err != nil || len(d.Each) != 2 || d.Each[0].Applied != "override" || d.Each[1].Applied != "plan team of acme/*" {
		t.Errorf("two charges: got %+v, %v; want an override and a plan", d, err)
	}
	st, err := l.Inspect(t.Context(), headgate.MustNamed("login"), "carl")
	if err != nil || st.Applied != "override" || st.Rule != "fixed-window 100/1h" || st.Used != headgate.Units(2) {
		t.Errorf("Inspect: got %+v, %v; want the override with 2 used", st, err)
	}
}

// countingStore counts calls of Items, which look up items of single keys.
type countingStore struct {
	store.Store
	store.Catalog
	lookups      atomic.Int64
	mu           sync.Mutex
	lastList     []store.Item // the argument of the last look-up; guarded by mu
	beforeAnswer func()       // is called before each answer of Items
}

func (c *countingStore) Unwrap() store.Store { return c.Store }

func (c *countingStore) Items(ctx context.Context, list []store.Item) (int64, []store.Item, error) {
	c.lookups.Add(1)
	c.mu.Lock()
	c.lastList = slices.Clone(list)
	c.mu.Unlock()
	c.beforeAnswer()
	return c.Catalog.Items(ctx, list)
}

func newCountingStore(beforeAnswer func()) *countingStore {
	s := memory.New(nil)
	backend, _ := store.As[store.Catalog](s)
	return &countingStore{Store: s, Catalog: backend, beforeAnswer: beforeAnswer}
}

// TestAKeyIsLookedUpOnce checks that a key is looked up once for all callers, until one of its items changes.
func TestAKeyIsLookedUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountingStore(func() { time.Sleep(20 * time.Millisecond) })
		writer, c := open(t, s.Store), open(t, s)
		mustSet(t, writer, define(t, "login", "token-bucket 1000/1h"))
		await.Until(t, "the limit was read", func() bool { return len(c.List()) == 1 })
		l := headgate.New(s, &headgate.Config{Names: c})
		s.lookups.Store(0)
		for range 10 {
			take(t, l, "login", "bob")
		}
		if n := s.lookups.Load(); n != 0 {
			t.Errorf("without plans and overrides: got %d look-ups, want 0", n)
		}
		mustSucceed(t)(writer.SetPlans(t.Context(), admin, catalog.Plan{
			Name: "pro", Limits: []headgate.Limit{limit(t, "login", "token-bucket 2000/1h")},
		}))
		mustSucceed(t)(writer.Assign(t.Context(), admin, catalog.Assignment{Plan: "pro", Key: "bob"}))
		mustSucceed(t)(writer.Override(t.Context(), admin, catalog.Override{
			Limit: limit(t, "login", "token-bucket 3000/1h"), Key: "carl",
		}))
		version, _ := writer.Version()
		await.Until(t, "the plan is known", func() bool { v, _ := c.Version(); return v == version })

		s.lookups.Store(0)
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() { take(t, l, "login", []string{"bob", "carl", "ann"}[i%3]) })
		}
		wg.Wait()
		if n := s.lookups.Load(); n > 3 { // the callers that wait during a look-up share the next one
			t.Errorf("100 callers of 3 keys: got %d look-ups, want 3 at most", n)
		}
		s.lookups.Store(0)
		for range 10 {
			bob, ann := take(t, l, "login", "bob").Applied, take(t, l, "login", "ann").Applied
			if bob != "plan pro" || ann != "" {
				t.Fatalf("got %q for bob, %q for ann; want plan pro, nothing", bob, ann)
			}
		}
		if n := s.lookups.Load(); n != 0 {
			t.Errorf("cached keys: got %d look-ups, want 0", n)
		}

		mustSucceed(t)(writer.Unassign(t.Context(), admin, "bob", false))
		await.Until(t, "bob has no plan", func() bool { return take(t, l, "login", "bob").Applied == "" })
		for _, key := range []string{"carl", "ann", "bob"} {
			take(t, l, "login", key)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		want := []store.Item{{Kind: store.KindAssignment, Key: "bob"}}
		if n := s.lookups.Load(); n != 1 || !slices.Equal(s.lastList, want) {
			t.Errorf("after one change: got %d look-ups, the last of %v; want one of %v", n, s.lastList, want)
		}
	})
}

// TestFindAllReturnsLimitsOfOneVersion changes a plan and two overrides in one version, again and again. FindAll must
// return the limits of one version, never some old and some new ones.
func TestFindAllReturnsLimitsOfOneVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountingStore(func() { time.Sleep(100 * time.Microsecond) })
		writer, c := open(t, s.Store), open(t, s)
		mustSet(t, writer, define(t, "login", "token-bucket 1/1h burst 1"))
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		write := func(n int) {
			changes, err := s.ReadCatalog(ctx, 0)
			text := fmt.Sprintf("token-bucket 1/1h burst %d", n)
			if err == nil {
				_, err = s.WriteCatalog(ctx, store.Edit{Base: changes.Version, Items: []store.Item{
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
		// FindAll fails if the catalog changes faster than it reads. So each call permits a write; up to three wait.
		permits := make(chan struct{}, 3)
		wg.Go(func() {
			for n := 3; ; n++ {
				select {
				case <-permits:
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
			case permits <- struct{}{}:
			default:
			}
			if err := c.FindAll(t.Context(), charges); err != nil {
				t.Fatal(err)
			}
			texts := []string{charges[0].Limit.String(), charges[1].Limit.String(), charges[2].Limit.String()}
			if texts[0] != texts[1] || texts[0] != texts[2] {
				t.Fatalf("got limits of two versions: %q", texts)
			}
			seen[texts[0]] = true
		}
		cancel()
		wg.Wait()
		if len(seen) < 10 {
			t.Errorf("got limits of %d versions, want 10 at least", len(seen))
		}
	})
}

// TestInvalidPlansAndOverridesChangeNothing checks the errors of invalid edits, and that they make no version.
func TestInvalidPlansAndOverridesChangeNothing(t *testing.T) {
	s := memory.New(nil)
	c := open(t, s)
	mustSet(t, c, define(t, "login", "token-bucket 5/1m"), define(t, "jobs", "concurrency 5 ttl 1m"))
	mustSucceed(t)(c.SetPlans(t.Context(), admin, catalog.Plan{
		Name: "pro", Limits: []headgate.Limit{limit(t, "login", "token-bucket 10/1m")},
	}))
	oldVersion, _ := c.Version()
	login := limit(t, "login", "token-bucket 6/1m")
	override := func(o catalog.Override) error { return errOf(c.Override(t.Context(), admin, o)) }
	assign := func(a catalog.Assignment) error { return errOf(c.Assign(t.Context(), admin, a)) }
	plan := func(p catalog.Plan) error { return errOf(c.SetPlans(t.Context(), admin, p)) }
	for name, test := range map[string]struct {
		err     error
		wantErr error
		wantMsg string
	}{
		"an override in the past": {
			override(catalog.Override{Limit: login, Key: "bob", Until: time.Now().Add(-time.Second)}), headgate.ErrInvalid, "until: ",
		},
		"an override that ends after 2255": {
			override(catalog.Override{Limit: login, Key: "bob", Until: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}),
			headgate.ErrInvalid, "until: ",
		},
		"an unknown limit":       {override(catalog.Override{Limit: limit(t, "nix", "0"), Key: "bob"}), headgate.ErrUnknownLimit, `"nix"`},
		"a limit without a name": {override(catalog.Override{Limit: headgate.MustParse("0"), Key: "b"}), headgate.ErrInvalid, "limit: "},
		"a bucket for a lease":   {override(catalog.Override{Limit: limit(t, "jobs", "1/s"), Key: "bob"}), headgate.ErrInvalid, "acquired"},
		"a key that is too long": {override(catalog.Override{Limit: login, Key: strings.Repeat("x", 513)}), headgate.ErrInvalid, "key: "},
		"an empty prefix":        {override(catalog.Override{Limit: login, Prefix: true}), headgate.ErrInvalid, "key: "},
		"an unknown plan":        {assign(catalog.Assignment{Plan: "gold", Key: "bob"}), headgate.ErrInvalid, `"gold" is not known; the catalog has pro`},
		"a plan in the past": {
			assign(catalog.Assignment{Plan: "pro", Key: "bob", Until: time.Now().Add(-time.Second)}), headgate.ErrInvalid, "until: ",
		},
		"no plan to take away":       {errOf(c.Unassign(t.Context(), admin, "bob", false)), headgate.ErrInvalid, `"bob" has none`},
		"no override to remove":      {errOf(c.RemoveOverride(t.Context(), admin, "login", "bob", false)), headgate.ErrInvalid, "has none"},
		"a plan of no limits":        {plan(catalog.Plan{Name: "gold"}), headgate.ErrInvalid, "plan: "},
		"a plan with a bad name":     {plan(catalog.Plan{Name: "Gold", Limits: []headgate.Limit{login}}), headgate.ErrInvalid, "plan: "},
		"a plan of an unknown limit": {plan(catalog.Plan{Name: "gold", Limits: []headgate.Limit{limit(t, "nix", "0")}}), headgate.ErrUnknownLimit, `"nix"`},
		"a limit twice":              {plan(catalog.Plan{Name: "gold", Limits: []headgate.Limit{login, login}}), headgate.ErrInvalid, "twice"},
		"no plan to remove":          {errOf(c.RemovePlan(t.Context(), admin, "gold")), headgate.ErrInvalid, `"gold" is not known`},
	} {
		if !errors.Is(test.err, test.wantErr) || !strings.Contains(test.err.Error(), test.wantMsg) {
			t.Errorf("%s: got %v; want %v with %q", name, test.err, test.wantErr, test.wantMsg)
		}
	}
	if v, _ := c.Version(); v != oldVersion {
		t.Errorf("got version %d, want %d", v, oldVersion)
	}
}

// TestTheCatalogMayHave10000Prefixes sets 10,001 overrides of prefixes, 10,000, one of them again, and one more.
func TestTheCatalogMayHave10000Prefixes(t *testing.T) {
	c := open(t, memory.New(nil))
	mustSet(t, c, define(t, "login", "token-bucket 5/1m"))
	login := limit(t, "login", "token-bucket 6/1m")
	overrides := make([]catalog.Override, 10_001)
	for i := range overrides {
		overrides[i] = catalog.Override{Limit: login, Key: fmt.Sprint("p", i, "/"), Prefix: true}
	}
	if err := errOf(c.Override(t.Context(), admin, overrides...)); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("10,001 prefixes: got %v, want %v", err, headgate.ErrInvalid)
	}
	mustSucceed(t)(c.Override(t.Context(), admin, overrides[:10_000]...))
	mustSucceed(t)(c.Override(t.Context(), admin, overrides[:1]...))
	if err := errOf(c.Override(t.Context(), admin, overrides[10_000])); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("one prefix above 10,000: got %v, want %v", err, headgate.ErrInvalid)
	}
}

func errOf(_ int64, err error) error { return err }

// TestApplyDefinesPlans applies a file with a plan, the file without it, which retires the plan, and rolls back.
func TestApplyDefinesPlans(t *testing.T) {
	s := memory.New(nil)
	c := open(t, s)
	pro := catalog.Plan{Name: "pro", Limits: []headgate.Limit{limit(t, "login", "token-bucket 10/1m")}}
	file := catalog.File{Path: "a.yaml", Limits: []catalog.Definition{define(t, "login", "token-bucket 5/1m")}, Plans: []catalog.Plan{pro}}
	d, version, err := c.Apply(t.Context(), admin, file, catalog.ApplyOnce)
	if err != nil || len(d.Changes) != 2 || catalog.Describe(d.Changes[1]) != "+ plan pro: login = token-bucket 10/1m burst 10" {
		t.Fatalf("got %+v, %v; want a limit and a plan", d, err)
	}
	d, _, err = c.Apply(t.Context(), admin, file, catalog.ApplyOnce)
	if err != nil || !d.Empty() || d.Standing != catalog.FileNewest {
		t.Errorf("applied again: got %+v, %v; want no change", d, err)
	}
	file.Plans = nil
	d, _, err = c.Apply(t.Context(), admin, file, catalog.ApplyOnce)
	if err != nil || len(d.Changes) != 1 || !c.Plans()[0].Retired {
		t.Errorf("a file without the plan: got %+v, %v, %+v; want it retired", d, err, c.Plans())
	}
	mustSucceed(t)(c.Assign(t.Context(), admin, catalog.Assignment{Plan: "pro", Key: "bob"}))
	mustSucceed(t)(c.Override(t.Context(), admin, catalog.Override{Limit: limit(t, "login", "0"), Key: "bob"}))
	if _, err := c.Rollback(t.Context(), admin, version); err != nil {
		t.Fatal(err)
	}
	plan, overrides, err := c.OfKey(t.Context(), "bob", "login")
	if err != nil || plan != nil || overrides != nil || c.Plans()[0].Retired {
		t.Errorf("after the rollback bob has %v, %v, %v; plans %+v; want none for bob, and pro not retired",
			plan, overrides, err, c.Plans())
	}
	file.Plans = []catalog.Plan{{Name: "pro", Limits: []headgate.Limit{limit(t, "nix", "0")}}}
	if _, _, err := c.Apply(t.Context(), admin, file, catalog.ApplyOnce); !errors.Is(err, headgate.ErrUnknownLimit) {
		t.Errorf("a plan of an unknown limit: got %v, want %v", err, headgate.ErrUnknownLimit)
	}
}

// TestAssignToTheEmptyKey checks that a catalog that is opened later finds a plan that only the empty key has.
func TestAssignToTheEmptyKey(t *testing.T) {
	s := memory.New(nil)
	c := open(t, s)
	mustSet(t, c, define(t, "login", "fixed-window 1/1h"))
	mustSucceed(t)(c.SetPlans(t.Context(), admin, catalog.Plan{
		Name: "pro", Limits: []headgate.Limit{limit(t, "login", "fixed-window 10/1h")},
	}))
	mustSucceed(t)(c.Assign(t.Context(), admin, catalog.Assignment{Plan: "pro"}))
	l := headgate.New(s, &headgate.Config{Names: open(t, s)})
	if d := take(t, l, "login", ""); d.Applied != "plan pro" {
		t.Errorf("got %+v, want plan pro", d)
	}
}
