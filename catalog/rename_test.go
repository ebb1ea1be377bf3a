package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/sqlite"
)

// edit changes a catalog.
type edit func(ctx context.Context, c *catalog.Catalog) error

func rename(from, to string) edit {
	return func(ctx context.Context, c *catalog.Catalog) error {
		_, err := c.Rename(ctx, catalog.By{}, from, to)
		return err
	}
}

// named returns the definition of a limit; the name is "signin" or, for one that is renamed, "login>signin".
func named(name string, amount int) catalog.Definition {
	name, to, _ := strings.Cut(name, ">")
	l := headgate.MustParseNamed(name, fmt.Sprintf("fixed-window %d/1d", amount))
	return catalog.Definition{Limit: l, RenamedTo: to}
}

func set(name string, amount int) edit {
	return func(ctx context.Context, c *catalog.Catalog) error {
		_, err := c.Set(ctx, catalog.By{}, named(name, amount))
		return err
	}
}

func remove(names ...string) edit {
	return func(ctx context.Context, c *catalog.Catalog) error {
		_, err := c.Remove(ctx, catalog.By{}, names...)
		return err
	}
}

func rollback(version int64, names ...string) edit {
	return func(ctx context.Context, c *catalog.Catalog) error {
		_, err := c.Rollback(ctx, catalog.By{}, version, names...)
		return err
	}
}

// apply applies a file as a command does: Compare comes first.
func apply(list ...catalog.Definition) edit {
	return func(ctx context.Context, c *catalog.Catalog) error {
		f := catalog.File{Path: "f.yaml", Limits: list}
		if _, err := c.Compare(ctx, f); err != nil {
			return err
		}
		_, _, err := c.Apply(ctx, catalog.By{}, f, catalog.ApplyAgain)
		return err
	}
}

// renameText lists the limits of a catalog by the names of their cells, what they let pass and their names now.
func renameText(c *catalog.Catalog) string {
	var list []string
	for _, d := range c.List() {
		text := d.Name() + " " + strings.TrimSuffix(strings.TrimPrefix(d.String(), "fixed-window "), "/1d")
		if d.RenamedTo != "" {
			text += " >" + d.RenamedTo
		}
		if d.Retired {
			text += " retired"
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// onStores runs a test on stores that need no server.
func onStores(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, memory.New(&memory.Config{Names: true})) })
	t.Run("sqlite", func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "headgate.db"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(t, s)
	})
}

// TestRename makes edits one after another, and looks at the limits after each. A text that begins with "error" is of
// an edit that must fail, and then changes nothing.
func TestRename(t *testing.T) {
	t.Parallel()
	type step struct {
		do   edit
		want string
	}
	login := []step{{set("login", 1), "login 1"}, {rename("login", "signin"), "login 1 >signin"}}
	for name, steps := range map[string][]step{
		"the new name defines": append(login[:2:2],
			step{set("signin", 2), "login 2 >signin"},
			step{set("login", 3), "error limits.login: was renamed to signin"},
			step{set("login>signin", 4), "login 4 >signin"}),
		"a chain": append(login[:2:2],
			step{rename("signin", "auth"), "login 1 >auth"},
			step{rename("login", "auth"), "login 1 >auth"},
			step{set("signin", 2), "error limits.signin: was renamed to auth"},
			step{rename("signin", "entry"), "login 1 >entry"}),
		"and back": append(login[:2:2],
			step{rename("signin", "login"), "login 1"},
			step{set("signin", 2), "error limits.signin: was renamed to login"},
			step{set("login", 2), "login 2"}),
		"refused": append(login[:2:2],
			step{set("api", 5), "api 5; login 1 >signin"},
			step{rename("signin", "api"), "error limits.api: is there already"},
			step{rename("api", "login"), "error limits.login: is there already"},
			step{rename("api", "signin"), "error limits.signin: is there already"},
			step{rename("none", "other"), `error unknown: "none"; the catalog has api, login, signin`},
			step{rename("api", "No"), "error name"},
			step{set("api>No", 5), "error name"}),
		"removed by the new name": append(login[:2:2],
			step{remove("signin"), ""},
			step{rename("signin", "auth"), "error unknown"},
			step{rollback(2), "login 1 >signin"}),
		"removed by the old name": append(login[:2:2],
			step{remove("login", "signin"), ""},
			step{rollback(2, "signin"), "login 1 >signin"}),
		"rolled back": append(login[:2:2],
			step{set("signin", 2), "login 2 >signin"},
			step{rollback(2, "signin"), "login 1 >signin"},
			step{rollback(1), "login 1"},
			step{set("login", 3), "login 3"},
			step{rollback(3, "login"), "login 2 >signin"}),
		"rolled back by one of two names": {
			{set("a", 1), "a 1"},
			{rename("a", "b"), "a 1 >b"},
			{remove("b"), ""},
			{set("b", 2), "b 2"},
			{rename("b", "a"), "b 2 >a"},
			{rollback(2, "b"), "a 1 >b"},
			{rollback(5, "b"), "b 2 >a"},
			{rollback(2, "a"), "a 1 >b"},
		},
		"a file": {
			{apply(named("login", 1)), "login 1"},
			{apply(named("login>signin", 1)), "login 1 >signin"},
			{apply(named("login>signin", 1)), "login 1 >signin"},
			{apply(named("signin", 2)), "login 2 >signin"}, // without the line
			{apply(named("login", 2), named("api", 1)), "error limits.login: was renamed to signin"},
			{apply(named("signin>auth", 2)), "login 2 >auth"},
			{apply(named("login>auth", 3)), "login 3 >auth"},
			{apply(), "login 3 retired"},
			{apply(named("signin", 4)), "login 4 >signin"},
			{apply(named("signin>login", 4)), "login 4"},
		},
		"a file in an empty catalog": {
			{apply(named("login>signin", 1), named("api", 2)), "api 2; login 1 >signin"},
			{apply(named("login>signin", 1), named("login", 2)), "error limits.login: is there twice"},
			{apply(named("login>signin", 1), named("signin>login", 2)), "error limits.login: is there twice"},
			{apply(named("login>signin", 1), named("signin>auth", 2)), "error limits.login: is there twice"},
			{apply(named("api>web", 1), named("web>api", 2)), "error limits.web: is there twice"},
		},
		"a file after a rename by hand": {
			{apply(named("login", 1)), "login 1"},
			{rename("login", "signin"), "login 1 >signin"},
			{apply(named("login", 2)), "error limits.login: was renamed to signin"},
			{apply(named("login>signin", 2)), "login 2 >signin"},
			{apply(named("api", 2)), "api 2; login 2 retired"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			onStores(t, func(t *testing.T, s store.Store) {
				c := open(t, s)
				last := ""
				for i, step := range steps {
					want := step.want
					err := step.do(t.Context(), c)
					if text, fails := strings.CutPrefix(want, "error "); fails {
						if err == nil || !strings.Contains(err.Error(), text) ||
							!errors.Is(err, headgate.ErrInvalid) && !errors.Is(err, headgate.ErrUnknownLimit) {
							t.Errorf("step %d: got %v, want %s", i, err, text)
						}
						want = last
					} else if err != nil {
						t.Fatalf("step %d: %v", i, err)
					}
					for which, c := range map[string]*catalog.Catalog{"the writer": c, "another reader": open(t, s)} {
						if got := renameText(c); got != want {
							t.Errorf("step %d: %s has %s, want %s", i, which, got, want)
						}
					}
					last = want
				}
			})
		})
	}
}

// TestBothNamesReachOneCell takes, by both names, what overrides and plans of both names leave.
func TestBothNamesReachOneCell(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s store.Store) {
		c := open(t, s)
		ctx, by := t.Context(), catalog.By{}
		window := func(name string, n int) headgate.Limit {
			return headgate.MustParseNamed(name, fmt.Sprintf("fixed-window %d/100d", n))
		}
		must := func(_ int64, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		mustSet(t, c, catalog.Definition{Limit: window("login", 2)}, catalog.Definition{Limit: window("signin", 9)})
		must(c.Override(ctx, by, catalog.Override{Limit: window("signin", 9), Key: "k"}))
		must(c.Remove(ctx, by, "signin")) // its override stays, and is not of the limit that gets the name
		must(c.SetPlans(ctx, by, catalog.Plan{Name: "pro", Limits: []headgate.Limit{window("login", 3)}}))
		must(c.Override(ctx, by, catalog.Override{Limit: window("login", 4), Key: "old"}))
		must(c.Rename(ctx, by, "login", "signin"))
		must(c.Override(ctx, by, catalog.Override{Limit: window("signin", 5), Key: "new"},
			catalog.Override{Limit: window("signin", 6), Key: "pre", Prefix: true}))
		must(c.SetPlans(ctx, by, catalog.Plan{Name: "max", Limits: []headgate.Limit{window("signin", 7)}}))
		must(c.Assign(ctx, by, catalog.Assignment{Plan: "pro", Key: "p"}, catalog.Assignment{Plan: "max", Key: "m"}))
		_, err := c.SetPlans(ctx, by, catalog.Plan{Name: "two", Limits: []headgate.Limit{window("signin", 1), window("login", 2)}})
		if !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("a plan with one limit by two names: got %v, want ErrInvalid", err)
		}
		limiter := headgate.New(s, &headgate.Config{Names: c})
		for key, want := range map[string]int{"k": 2, "p": 3, "old": 4, "new": 5, "prefix": 6, "m": 7} {
			for i := range want + 2 { // by the names in turn
				name := []string{"login", "signin"}[i%2]
				d, err := limiter.Allow(ctx, headgate.MustNamed(name), key)
				if err != nil || d.Allowed != (i < want) || d.LimitName != "login" {
					t.Errorf("%s, charge %d by %s: got %+v, %v; want %d admitted, of login", key, i, name, d, err, want)
				}
			}
		}
		if list, err := c.Replacements(ctx, "prefix", false, "signin"); err != nil || len(list) != 1 {
			t.Errorf("replacements by the new name: got %v, %v", list, err)
		}
		if _, list, err := c.OfKey(ctx, "old", "signin"); err != nil || len(list) != 1 {
			t.Errorf("overrides by the new name: got %v, %v", list, err)
		}
		must(c.RemoveOverride(ctx, by, "signin", "old", false))
		must(c.RemoveOverride(ctx, by, "login", "new", false))
		must(c.RemoveOverride(ctx, by, "signin", "k", false))
		if history, err := c.History(ctx, "signin", 100); err != nil || len(history) != 11 {
			t.Errorf("got %d versions about signin, %v; want all 11", len(history), err)
		}
		if st, err := limiter.Inspect(ctx, headgate.MustNamed("signin"), "k"); err != nil || st.Used.Float64() != 2 {
			t.Errorf("inspected by the new name: got %+v, %v; want 2 used", st, err)
		}
		if n, err := c.Reset(ctx, "signin"); err != nil || n != 6 {
			t.Errorf("got %d keys reset, %v; want 6", n, err)
		}
		if l := c.Limit("signin", headgate.MustParse("1/s")); l.Name() != "login" || c.CellsOf("signin") != "login" {
			t.Errorf("got a limit of cells %s, want login", l.Name())
		}
	})
}

// TestAnOlderFileWithTheOldNameIsNoError checks the start of a server whose file says the name of before: it goes on.
func TestAnOlderFileWithTheOldNameIsNoError(t *testing.T) {
	t.Parallel()
	c := open(t, memory.New(nil))
	file := catalog.File{Limits: []catalog.Definition{named("login", 1)}}
	for _, f := range []catalog.File{file, {Limits: []catalog.Definition{named("login>signin", 2)}}, file} {
		if _, _, err := c.Apply(t.Context(), catalog.By{}, f, catalog.ApplyOnce); err != nil {
			t.Fatal(err)
		}
	}
	d, err := c.Status(file)
	if err != nil || d.Standing != catalog.FileOlder || renameText(c) != "login 2 >signin" {
		t.Errorf("got %v, %v, %s; want an older file, and the limit as the newer one has it", d.Standing, err, renameText(c))
	}
	mustSet(t, c, named("api", 1))
	if _, err := c.Status(catalog.File{Limits: []catalog.Definition{named("login>api", 1)}}); err != nil {
		t.Errorf("the status of a file whose new name is that of another limit: %v", err)
	}
	d, err = c.Compare(t.Context(), catalog.File{Limits: []catalog.Definition{named("signin>auth", 2)}})
	if err != nil {
		t.Fatal(err)
	}
	want := "+ auth = renamed from login\n- signin = renamed from login   (retired: it decides until it is removed)"
	if got := strings.Join(d.Lines(), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestAReleaseWakesWhoWaitsByAnotherName holds a slot by the new name of a limit, while another caller of this process
// waits for it by that name: it gets the slot at once.
func TestAReleaseWakesWhoWaitsByAnotherName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(nil)
		c, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		mustSet(t, c, define(t, "jobs", "concurrency 1 ttl 1h"))
		if _, err := c.Rename(t.Context(), catalog.By{}, "jobs", "tasks"); err != nil {
			t.Fatal(err)
		}
		limiter := headgate.New(s, &headgate.Config{Names: c})
		charge := headgate.Charge{Limit: headgate.MustNamed("tasks"), Key: "k"}
		lease, err := limiter.Await(t.Context(), charge)
		if err != nil {
			t.Fatal(err)
		}
		waited := make(chan time.Time)
		go func() {
			second, err := limiter.Await(t.Context(), charge)
			if err != nil {
				t.Error(err)
			} else {
				second.Release(t.Context())
			}
			waited <- time.Now()
		}()
		time.Sleep(time.Minute + time.Millisecond) // of this test's clock: it is between two tries
		at := time.Now()
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if got := (<-waited).Sub(at); got != 0 {
			t.Errorf("the next one had the slot %v after the release, want at once", got)
		}
	})
}

// TestNamesThatRowsGive writes items as somebody may do by hand: a name without its limit, one of another name, one
// that is none, and two that are not retired.
func TestNamesThatRowsGive(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	var items []store.Item
	for name, text := range map[string]string{
		"login": "fixed-window 1/1d", "a": "login", "b": "login", "c": "a", "gone": "nothing", "Bad": "login",
		"newer": "from-another-program 1/1d", "d": "newer", "e": "No",
	} {
		if !strings.Contains(text, " ") {
			text = store.RenamedFrom + text
		}
		items = append(items, store.Item{Kind: store.KindLimit, Name: name, Text: text})
	}
	if _, err := s.WriteCatalog(t.Context(), store.Edit{Items: items}); err != nil {
		t.Fatal(err)
	}
	c := open(t, s)
	for name, want := range map[string]string{
		"login": "", "a": "", "b": "", "c": "unknown", "gone": "unknown", "Bad": "unknown", "newer": "cannot be read",
		"d": "cannot be read", "e": "unknown",
	} {
		if l, err := c.Get(name); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) ||
			err == nil && l.Name() != "login" {
			t.Errorf("%s: got %s, %v; want login or %s", name, l.Name(), err, want)
		}
	}
	if got := c.Limit("d", headgate.MustParse("1/s")).Name(); got != "newer" {
		t.Errorf("what holds while a limit cannot be read has cells %s, want newer", got)
	}
	mustSet(t, c, named("e", 1)) // it is no other name
	if got := renameText(c); got != "e 1; login 1 >b" {
		t.Errorf("got %s, want the later one of two names", got)
	}
	if _, err := c.Remove(t.Context(), catalog.By{}, "gone", "c"); err != nil {
		t.Errorf("names without a limit are removed: %v", err)
	}
}
