package mysql_test

import (
	"cmp"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// inForce is a result of headgate_limit_of.
type inForce struct {
	rule, applied string
	until         time.Time
}

func limitOf(tb testing.TB, db *sql.DB, rule, key string) (f inForce, err error) {
	tb.Helper()
	var until sql.NullTime
	err = db.QueryRowContext(tb.Context(), "CALL headgate_limit_of(?, ?)", rule, key).Scan(&f.rule, &f.applied, &until)
	f.until = until.Time
	return f, err
}

// define writes items of all kinds as one version.
func define(tb testing.TB, s *mysql.Store, items ...store.Item) {
	tb.Helper()
	now, err := s.ReadCatalog(tb.Context(), 0)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range items {
		items[i].Kind = cmp.Or(items[i].Kind, store.KindLimit)
	}
	if _, err := s.WriteCatalog(tb.Context(), store.Edit{Base: now.Version, Items: items}); err != nil {
		tb.Fatal(err)
	}
}

// clockOf returns the store's clock, in microseconds.
func clockOf(tb testing.TB, s *mysql.Store) int64 {
	tb.Helper()
	c, err := s.ReadCatalog(tb.Context(), 0)
	if err != nil {
		tb.Fatal(err)
	}
	return c.Clock
}

// exceptions returns a catalog with each kind of item, of limit api.
func exceptions(now int64) []store.Item {
	later, over := now+int64(time.Hour/time.Microsecond), now-1
	return []store.Item{
		{Kind: store.KindLimit, Name: "api", Text: "fixed-window 1/30d"},
		{Kind: store.KindLimit, Name: "mail", Text: "fixed-window 2/30d"},
		{Kind: store.KindPlan, Name: "pro", Key: "api", Text: "fixed-window 10/30d"},
		{Kind: store.KindPlan, Name: "free", Key: "mail", Text: "fixed-window 11/30d"},
		{Kind: store.KindOverride, Name: "api", Key: "acme/1", Text: "fixed-window 20/30d"},
		{Kind: store.KindOverride, Name: "api", Key: "acme/over", Text: "fixed-window 21/30d", Until: over},
		{Kind: store.KindOverride, Name: "api", Key: "acme/later", Text: "fixed-window 22/30d", Until: later},
		{Kind: store.KindOverride, Name: "api", Key: "Pro ", Text: "fixed-window 23/30d"},
		{Kind: store.KindOverride, Name: "api", Key: "é", Text: "fixed-window 24/30d"},
		{Kind: store.KindPrefixOverride, Name: "api", Key: "acme/", Text: "fixed-window 30/30d"},
		{Kind: store.KindPrefixOverride, Name: "api", Key: "acme/big/", Text: "fixed-window 31/30d", Until: later},
		{Kind: store.KindPrefixOverride, Name: "api", Key: "acme/big/x", Text: "fixed-window 32/30d", Until: over},
		{Kind: store.KindPrefixOverride, Name: "api", Key: "acme/bigger", Text: "fixed-window 33/30d"},
		{Kind: store.KindAssignment, Key: "pro", Text: "pro"},
		{Kind: store.KindAssignment, Key: "free", Text: "free"},
		{Kind: store.KindAssignment, Key: "gone", Text: "gone"},
		{Kind: store.KindAssignment, Key: "org/free", Text: "free", Until: later},
		{Kind: store.KindAssignment, Key: "org/over", Text: "free", Until: over},
		{Kind: store.KindAssignment, Key: "acme/pro", Text: "pro"},
		{Kind: store.KindPrefixAssignment, Key: "org/", Text: "pro"},
		{Kind: store.KindPrefixAssignment, Key: "org/gone/", Text: "gone"},
		{Kind: store.KindPrefixAssignment, Key: "org/free/", Text: "free", Until: later},
	}
}

// TestSQLKnowsOverridesAndPlans looks up in SQL which limit holds for a key, and takes by it.
func TestSQLKnowsOverridesAndPlans(t *testing.T) {
	t.Parallel()
	db, s := client(t)
	now := clockOf(t, s)
	define(t, s, exceptions(now)...)
	later := time.UnixMicro(now).Add(time.Hour).UTC()
	for _, tt := range []struct {
		limit, key string
		want       inForce
		remaining  int64
	}{
		{"api", "bob", inForce{rule: "fixed-window 1/30d"}, 0},
		{"api", "acme/1", inForce{rule: "fixed-window 20/30d", applied: "override"}, 19},
		{"mail", "acme/1", inForce{rule: "fixed-window 2/30d"}, 1},
		{"api", "ACME/1", inForce{rule: "fixed-window 1/30d"}, 0},
		{"api", "acme/1 ", inForce{rule: "fixed-window 30/30d", applied: "override of acme/*"}, 29},
		{"api", "acme", inForce{rule: "fixed-window 1/30d"}, 0},
		{"api", "acme/", inForce{rule: "fixed-window 30/30d", applied: "override of acme/*"}, 29},
		{"api", "acme/zebra", inForce{rule: "fixed-window 30/30d", applied: "override of acme/*"}, 29},
		{"api", "acme/over", inForce{rule: "fixed-window 30/30d", applied: "override of acme/*"}, 29},
		{"api", "acme/later", inForce{"fixed-window 22/30d", "override", later}, 21},
		{"api", "acme/pro", inForce{rule: "fixed-window 30/30d", applied: "override of acme/*"}, 29},
		{"mail", "acme/pro", inForce{rule: "fixed-window 2/30d"}, 1},
		{"api", "acme/big/a", inForce{"fixed-window 31/30d", "override of acme/big/*", later}, 30},
		{"api", "acme/big/xyz", inForce{"fixed-window 31/30d", "override of acme/big/*", later}, 30},
		{"api", "acme/bigger", inForce{rule: "fixed-window 33/30d", applied: "override of acme/bigger*"}, 32},
		{"api", "Pro ", inForce{rule: "fixed-window 23/30d", applied: "override"}, 22},
		{"api", "pro ", inForce{rule: "fixed-window 1/30d"}, 0},
		{"api", "é", inForce{rule: "fixed-window 24/30d", applied: "override"}, 23},
		{"api", "e", inForce{rule: "fixed-window 1/30d"}, 0},
		{"api", "pro", inForce{rule: "fixed-window 10/30d", applied: "plan pro"}, 9},
		{"mail", "pro", inForce{rule: "fixed-window 2/30d"}, 1},
		{"api", "free", inForce{rule: "fixed-window 1/30d"}, 0},
		{"mail", "free", inForce{rule: "fixed-window 11/30d", applied: "plan free"}, 10},
		{"api", "gone", inForce{rule: "fixed-window 1/30d"}, 0},
		{"api", "org/free", inForce{"fixed-window 1/30d", "", later}, 0},
		{"api", "org/over", inForce{rule: "fixed-window 10/30d", applied: "plan pro of org/*"}, 9},
		{"api", "org/gone/1", inForce{rule: "fixed-window 10/30d", applied: "plan pro of org/*"}, 9},
		{"api", "org/free/1", inForce{"fixed-window 1/30d", "", later}, 0},
		{"mail", "org/free/1", inForce{"fixed-window 11/30d", "plan free of org/free/*", later}, 10},
	} {
		got, err := limitOf(t, db, tt.limit, tt.key)
		if err != nil || got != tt.want {
			t.Errorf("headgate_limit_of('%s', '%s'): %+v, %v; want %+v", tt.limit, tt.key, got, err, tt.want)
		}
		for _, procedure := range []string{"headgate_check", "headgate_take"} {
			remaining := tt.remaining
			if procedure == "headgate_check" { // before it is taken
				remaining++
			}
			d, err := callTake(t, db, procedure, tt.limit, tt.key, "1")
			if err != nil || d.allowed != 1 || d.remaining != remaining || d.limit != tt.limit {
				t.Errorf("%s('%s', '%s', 1): %+v, %v; want %d left", procedure, tt.limit, tt.key, d, err, remaining)
			}
		}
	}
	got, err := limitOf(t, db, "5  per minute", "acme/1")
	if err != nil || got != (inForce{rule: "token-bucket 5/1m burst 5"}) {
		t.Errorf("a notation: %+v, %v", got, err)
	}
}

// TestEveryProcedureKnowsOverrides calls each procedure for a key whose override admits what the limit refuses.
func TestEveryProcedureKnowsOverrides(t *testing.T) {
	t.Parallel()
	db, s := client(t)
	define(t, s, store.Item{Name: "api", Text: "token-bucket 1/1h burst 1"},
		store.Item{Kind: store.KindOverride, Name: "api", Key: "k", Text: "token-bucket 1/s burst 100"},
		store.Item{Name: "jobs", Text: "concurrency 1 ttl 1h"},
		store.Item{Kind: store.KindOverride, Name: "jobs", Key: "k", Text: "concurrency 5 ttl 60s"})
	for _, tt := range []struct{ text, want string }{
		{"CALL headgate_take_once('id', 'api', 'k', 50, 0)", "allowed=1 remaining=50"},
		{"CALL headgate_settle('id', 'api', 'k', 10)", "corrected=40.000000000"},
		{"CALL headgate_cancel('other', 'api', 'k')", ""},
		{"CALL headgate_reserve('api', 'k', 99, 20, NULL, 0)", "allowed=1 "},
		{"CALL headgate_acquire('jobs', 'k', 4)", "acquired=1 "},
		{"CALL headgate_renew('jobs', 'k', 1)", "done=1"},
		{"CALL headgate_release('jobs', 'k', 1)", "done=1"},
		{"CALL headgate_block('api', 'k', 0, '')", "blocked_until="},
		{"CALL headgate_reset('api', 'k')", "existed=1"},
	} {
		if tt.want == "" {
			continue
		}
		if got := answerOf(t, db, tt.text); len(got) < len(tt.want) || got[:len(tt.want)] != tt.want {
			t.Errorf("%s: %s, want %s", tt.text, got, tt.want)
		}
	}
}

// TestSQLAgreesWithTheCatalog makes random catalogs, and looks up the limits of random keys in SQL and in Go.
func TestSQLAgreesWithTheCatalog(t *testing.T) {
	t.Parallel()
	db, s := client(t)
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	text := func(most int) (text string) {
		for range rng.IntN(most + 1) {
			text += []string{"a", "b", "B", "é", " "}[rng.IntN(5)]
		}
		return text
	}
	for round := range tier.Pick(8, 20, 100) {
		now := clockOf(t, s)
		edit := map[store.Item]store.Item{}
		add := func(i store.Item) {
			switch rng.IntN(4) {
			case 0:
				i.Until = now - rng.Int64N(30_000_000) // Go still looks at it, SQL does too
			case 1:
				i.Until = now + int64(time.Hour/time.Microsecond)
			}
			edit[i.ID()] = i
		}
		rate := func() string { return fmt.Sprintf("fixed-window %d/30d", 1+rng.IntN(1000)) }
		for _, name := range []string{"x", "y"} {
			i := store.Item{Kind: store.KindLimit, Name: name, Text: rate()}
			edit[i.ID()] = i
		}
		for range rng.IntN(3) {
			i := store.Item{
				Kind: store.KindPlan, Name: []string{"p", "q"}[rng.IntN(2)],
				Key: []string{"x", "y"}[rng.IntN(2)], Text: rate(),
			}
			edit[i.ID()] = i
		}
		for range rng.IntN(4) {
			add(store.Item{
				Kind: store.KindOverride, Name: []string{"x", "y"}[rng.IntN(2)], Key: "a" + text(2), Text: rate(),
			})
			add(store.Item{Kind: store.KindAssignment, Key: "a" + text(2), Text: []string{"p", "q", "r"}[rng.IntN(3)]})
		}
		for range rng.IntN(6) {
			add(store.Item{
				Kind: store.KindPrefixOverride, Name: []string{"x", "y"}[rng.IntN(2)], Key: text(3), Text: rate(),
			})
			add(store.Item{Kind: store.KindPrefixAssignment, Key: text(3), Text: []string{"p", "q", "r"}[rng.IntN(3)]})
		}
		compareWithGo(t, db, s, edit, func() (name, key string) { return []string{"x", "y"}[rng.IntN(2)], text(5) },
			fmt.Sprintf("seed %d, round %d", seed, round))
	}
}

// compareWithGo makes a catalog of only some items, and compares the limits that SQL and Go find for 40 keys.
func compareWithGo(t *testing.T, db *sql.DB, s *mysql.Store, items map[store.Item]store.Item,
	ask func() (name, key string), where string,
) {
	t.Helper()
	old, err := s.ReadCatalog(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []store.Kind{store.KindOverride, store.KindAssignment} {
		more, err := s.ItemsAfter(t.Context(), kind, store.Item{}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		old.Items = append(old.Items, more...)
	}
	edit := store.Edit{Base: old.Version}
	for _, i := range old.Items {
		if _, ok := items[i.ID()]; !ok {
			gone := i.ID()
			gone.Removed = true
			edit.Items = append(edit.Items, gone)
		}
	}
	for _, i := range items {
		edit.Items = append(edit.Items, i)
	}
	if _, err := s.WriteCatalog(t.Context(), edit); err != nil {
		t.Fatal(where, err)
	}
	names, err := catalog.Open(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer names.Close()
	for range 40 {
		name, key := ask()
		want := decideBy(t, names, s, name, key)
		got, err := limitOf(t, db, name, key)
		rule := fmt.Sprintf("fixed-window %d/30d", want.Capacity)
		if err != nil || got.rule != rule || got.applied != want.Applied {
			t.Fatalf("%s: limit %s of %q: %+v, %v; Go has %s, applied %q", where, name, key, got, err, rule,
				want.Applied)
		}
	}
}

// decideBy checks in Go, at the store's clock.
func decideBy(t *testing.T, names headgate.Names, s store.Store, name, key string) headgate.Decision {
	t.Helper()
	d, err := headgate.New(s, &headgate.Config{Names: names, Timeout: time.Minute}).Check(t.Context(),
		headgate.Charge{Limit: headgate.MustNamed(name), Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestCallsThatWaitUntilAnOverrideEnds lets calls wait for the locks of their keys until overrides have ended: the
// limits must decide all their charges.
func TestCallsThatWaitUntilAnOverrideEnds(t *testing.T) {
	t.Parallel()
	db, s := client(t)
	calls := []struct{ key, columns, call, want string }{
		{"take", "allowed", "take('user', 'take', 1)", "0"},
		{"once", "allowed", "take_once('id', 'user', 'once', 1, 0)", "0"},
		{"reserve", "allowed", "reserve('user', 'reserve', 1, 10, 'other', 0)", "0"},
		{"up to", "capacity accepted", "take_up_to('user', 'up to', 1)", "5 0.000000"},
		{
			"all", "allowed capacity remaining",
			"take_all('" + charges("user", "all", "1", "org", "all", "1", "user", "all", "1") + "')",
			"0 5 0, 0 20 20, 0 5 0",
		},
		{
			"reserve all", "allowed capacity remaining",
			"reserve_all('" + charges("user", "reserve all", "1", "org", "reserve all", "1") + "', 60, NULL, 0)",
			"0 5 0, 0 20 20",
		},
	}
	define(t, s, store.Item{Name: "user", Text: "fixed-window 5/30d"},
		store.Item{Name: "org", Text: "fixed-window 20/30d"})
	override := func(life time.Duration) (until int64) {
		until = clockOf(t, s) + life.Microseconds()
		var items []store.Item
		for _, c := range calls {
			items = append(items, store.Item{
				Kind: store.KindOverride, Name: "user", Key: c.key, Text: "fixed-window 900/30d", Until: until,
			})
		}
		define(t, s, items...)
		return until
	}
	override(time.Hour)
	for _, c := range calls {
		if d, err := callTake(t, db, "headgate_take", "user", c.key, "5"); err != nil || d.remaining != 895 {
			t.Fatalf("%s: while the override holds: %+v, %v", c.key, d, err)
		}
	}
	tx := beginTx(t, db)
	run(t, tx, "UPDATE headgate_cells SET reason = 'held'")
	// Long enough for the calls to find the overrides. A call that comes later is decided by the limits, too.
	until := override(500 * time.Millisecond)
	answered := make([]chan string, len(calls))
	for i, c := range calls {
		answered[i] = make(chan string, 1)
		go func() { answered[i] <- answersOf(t, db, c.columns, "CALL headgate_"+c.call) }()
	}
	await.Until(t, "the overrides to end", func() bool { return serverClock(t, db) > until })
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for i, c := range calls {
		if got := await.Receive(t, c.call, answered[i]); got != c.want {
			t.Errorf("%s after the end: %s, want %s", c.call, got, c.want)
		}
		if d, err := callTake(t, db, "headgate_check", "user", c.key, "1"); err != nil || d.allowed != 0 {
			t.Errorf("headgate_check after the end: %+v, %v", d, err)
		}
	}
}

// TestKindsAreKept changes the catalog by hand and by a program: calls from SQL must know which kinds of items exist.
func TestKindsAreKept(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openUnmigrated(t, url)
	conn := openSession(t, url)
	expect := func(want string) {
		t.Helper()
		if got := answerOf(t, plainDB(t, url), "SELECT kinds FROM headgate_catalog_version"); got != "kinds="+want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	const insert = "INSERT INTO headgate_catalog (kind, name, item_key, text) VALUES "
	expect("0")
	define(t, s, store.Item{Name: "api", Text: "fixed-window 1/30d"})
	expect("0")
	execute(t, conn, insert+"('prefix-override', 'api', 'a', 'fixed-window 2/30d')")
	expect("2")
	define(t, s, store.Item{Kind: store.KindAssignment, Key: "k", Text: "pro"})
	expect("6")
	execute(t, conn, insert+"('override', 'api', 'k', 'fixed-window 3/30d')")
	expect("7")
	execute(t, conn, "DELETE FROM headgate_catalog WHERE kind = 'prefix-override'")
	expect("7")
	gone := store.Item{Kind: store.KindAssignment, Key: "k", Removed: true}
	define(t, s, gone)
	expect("1")
	define(t, s, store.Item{Kind: store.KindOverride, Name: "api", Key: "k", Removed: true})
	expect("0")
}
