package mysql_test

import (
	"cmp"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
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

// limitInForce is the row that headgate_limit_of returns.
type limitInForce struct {
	rule, applied string
	until         time.Time
}

// callLimitOf calls headgate_limit_of, and returns its row.
func callLimitOf(tb testing.TB, db *sql.DB, rule, key string) (f limitInForce, err error) {
	tb.Helper()
	var until sql.NullTime
	err = db.QueryRowContext(tb.Context(), "CALL headgate_limit_of(?, ?)", rule, key).Scan(&f.rule, &f.applied, &until)
	f.until = until.Time
	return f, err
}

// defineItems writes items of any kinds as one version of the catalog. An item without a kind is a limit.
func defineItems(tb testing.TB, s *mysql.Store, items ...store.Item) {
	tb.Helper()
	current, err := s.ReadCatalog(tb.Context(), 0)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range items {
		items[i].Kind = cmp.Or(items[i].Kind, store.KindLimit)
	}
	if _, err := s.WriteCatalog(tb.Context(), store.Edit{Base: current.Version, Items: items}); err != nil {
		tb.Fatal(err)
	}
}

// catalogClock returns the clock in an answer of ReadCatalog, in microseconds.
func catalogClock(tb testing.TB, s *mysql.Store) int64 {
	tb.Helper()
	c, err := s.ReadCatalog(tb.Context(), 0)
	if err != nil {
		tb.Fatal(err)
	}
	return c.Clock
}

// catalogItems returns limits, plans, overrides and assignments, some of which end in an hour or have ended before now.
func catalogItems(now int64) []store.Item {
	inAnHour, ended := now+int64(time.Hour/time.Microsecond), now-1
	return []store.Item{
		{Kind: store.KindLimit, Name: "api", Text: "fixed-window 1/30d"},
		{Kind: store.KindLimit, Name: "mail", Text: "fixed-window 2/30d"},
		{Kind: store.KindPlan, Name: "pro", Key: "api", Text: "fixed-window 10/30d"},
		{Kind: store.KindPlan, Name: "free", Key: "mail", Text: "fixed-window 11/30d"},
		{Kind: store.KindOverride, Name: "api", Key: "acme/1", Text: "fixed-window 20/30d"},
		{Kind: store.KindOverride, Name: "api", Key: "acme/over", Text: "fixed-window 21/30d", Until: ended},
		{Kind: store.KindOverride, Name: "api", Key: "acme/later", Text: "fixed-window 22/30d", Until: inAnHour},
		{Kind: store.KindOverride, Name: "api", Key: "Pro ", Text: "fixed-window 23/30d"},
		{Kind: store.KindOverride, Name: "api", Key: "é", Text: "fixed-window 24/30d"},
		{Kind: store.KindPrefixOverride, Name: "api", Key: "acme/", Text: "fixed-window 30/30d"},
		{Kind: store.KindPrefixOverride, Name: "api", Key: "acme/big/", Text: "fixed-window 31/30d", Until: inAnHour},
		{Kind: store.KindPrefixOverride, Name: "api", Key: "acme/big/x", Text: "fixed-window 32/30d", Until: ended},
		{Kind: store.KindPrefixOverride, Name: "api", Key: "acme/bigger", Text: "fixed-window 33/30d"},
		{Kind: store.KindAssignment, Key: "pro", Text: "pro"},
		{Kind: store.KindAssignment, Key: "free", Text: "free"},
		{Kind: store.KindAssignment, Key: "gone", Text: "gone"},
		{Kind: store.KindAssignment, Key: "org/free", Text: "free", Until: inAnHour},
		{Kind: store.KindAssignment, Key: "org/over", Text: "free", Until: ended},
		{Kind: store.KindAssignment, Key: "acme/pro", Text: "pro"},
		{Kind: store.KindPrefixAssignment, Key: "org/", Text: "pro"},
		{Kind: store.KindPrefixAssignment, Key: "org/gone/", Text: "gone"},
		{Kind: store.KindPrefixAssignment, Key: "org/free/", Text: "free", Until: inAnHour},
	}
}

// TestLimitOfAppliesOverridesAndPlans checks which limit headgate_limit_of returns for keys with overrides and plans,
// and that headgate_check and headgate_take decide by that limit.
func TestLimitOfAppliesOverridesAndPlans(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	now := catalogClock(t, s)
	defineItems(t, s, catalogItems(now)...)
	inAnHour := time.UnixMicro(now).Add(time.Hour).UTC()
	for _, tt := range []struct {
		limit, key string
		want       limitInForce
		remaining  int64
	}{
		{"api", "bob", limitInForce{rule: "fixed-window 1/30d"}, 0},
		{"api", "acme/1", limitInForce{rule: "fixed-window 20/30d", applied: "override"}, 19},
		{"mail", "acme/1", limitInForce{rule: "fixed-window 2/30d"}, 1},
		{"api", "ACME/1", limitInForce{rule: "fixed-window 1/30d"}, 0},
		{"api", "acme/1 ", limitInForce{rule: "fixed-window 30/30d", applied: "override of acme/*"}, 29},
		{"api", "acme", limitInForce{rule: "fixed-window 1/30d"}, 0},
		{"api", "acme/", limitInForce{rule: "fixed-window 30/30d", applied: "override of acme/*"}, 29},
		{"api", "acme/zebra", limitInForce{rule: "fixed-window 30/30d", applied: "override of acme/*"}, 29},
		{"api", "acme/over", limitInForce{rule: "fixed-window 30/30d", applied: "override of acme/*"}, 29},
		{"api", "acme/later", limitInForce{"fixed-window 22/30d", "override", inAnHour}, 21},
		{"api", "acme/pro", limitInForce{rule: "fixed-window 30/30d", applied: "override of acme/*"}, 29},
		{"mail", "acme/pro", limitInForce{rule: "fixed-window 2/30d"}, 1},
		{"api", "acme/big/a", limitInForce{"fixed-window 31/30d", "override of acme/big/*", inAnHour}, 30},
		{"api", "acme/big/xyz", limitInForce{"fixed-window 31/30d", "override of acme/big/*", inAnHour}, 30},
		{"api", "acme/bigger", limitInForce{rule: "fixed-window 33/30d", applied: "override of acme/bigger*"}, 32},
		{"api", "Pro ", limitInForce{rule: "fixed-window 23/30d", applied: "override"}, 22},
		{"api", "pro ", limitInForce{rule: "fixed-window 1/30d"}, 0},
		{"api", "é", limitInForce{rule: "fixed-window 24/30d", applied: "override"}, 23},
		{"api", "e", limitInForce{rule: "fixed-window 1/30d"}, 0},
		{"api", "pro", limitInForce{rule: "fixed-window 10/30d", applied: "plan pro"}, 9},
		{"mail", "pro", limitInForce{rule: "fixed-window 2/30d"}, 1},
		{"api", "free", limitInForce{rule: "fixed-window 1/30d"}, 0},
		{"mail", "free", limitInForce{rule: "fixed-window 11/30d", applied: "plan free"}, 10},
		{"api", "gone", limitInForce{rule: "fixed-window 1/30d"}, 0},
		{"api", "org/free", limitInForce{"fixed-window 1/30d", "", inAnHour}, 0},
		{"api", "org/over", limitInForce{rule: "fixed-window 10/30d", applied: "plan pro of org/*"}, 9},
		{"api", "org/gone/1", limitInForce{rule: "fixed-window 10/30d", applied: "plan pro of org/*"}, 9},
		{"api", "org/free/1", limitInForce{"fixed-window 1/30d", "", inAnHour}, 0},
		{"mail", "org/free/1", limitInForce{"fixed-window 11/30d", "plan free of org/free/*", inAnHour}, 10},
	} {
		got, err := callLimitOf(t, db, tt.limit, tt.key)
		if err != nil || got != tt.want {
			t.Errorf("headgate_limit_of('%s', '%s'): got %+v, %v; want %+v", tt.limit, tt.key, got, err, tt.want)
		}
		for _, procedure := range []string{"headgate_check", "headgate_take"} {
			remaining := tt.remaining
			if procedure == "headgate_check" { // it comes before the take
				remaining++
			}
			d, err := callTake(t, db, procedure, tt.limit, tt.key, "1")
			if err != nil || d.allowed != 1 || d.remaining != remaining || d.limit != tt.limit {
				t.Errorf("%s('%s', '%s', 1): got %+v, %v; want remaining %d", procedure, tt.limit, tt.key, d, err, remaining)
			}
		}
	}
	got, err := callLimitOf(t, db, "5  per minute", "acme/1")
	if err != nil || got != (limitInForce{rule: "token-bucket 5/1m burst 5"}) {
		t.Errorf("headgate_limit_of of a notation: got %+v, %v; want token-bucket 5/1m burst 5", got, err)
	}
}

// TestProceduresApplyOverrides checks that calls are decided by an override that admits more than the limit.
func TestProceduresApplyOverrides(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	defineItems(t, s, store.Item{Name: "api", Text: "token-bucket 1/1h burst 1"},
		store.Item{Kind: store.KindOverride, Name: "api", Key: "k", Text: "token-bucket 1/s burst 100"},
		store.Item{Name: "jobs", Text: "concurrency 1 ttl 1h"},
		store.Item{Kind: store.KindOverride, Name: "jobs", Key: "k", Text: "concurrency 5 ttl 60s"})
	for _, tt := range []struct{ text, want string }{
		{"CALL headgate_take_once('id', 'api', 'k', 50, 0)", "allowed=1 remaining=50"},
		{"CALL headgate_settle('id', 'api', 'k', 10)", "corrected=40.000000000"},
		{"CALL headgate_reserve('api', 'k', 99, 20, NULL, 0)", "allowed=1 "},
		{"CALL headgate_acquire('jobs', 'k', 4)", "acquired=1 "},
		{"CALL headgate_renew('jobs', 'k', 1)", "done=1"},
		{"CALL headgate_release('jobs', 'k', 1)", "done=1"},
		{"CALL headgate_block('api', 'k', 0, '')", "blocked_until="},
		{"CALL headgate_reset('api', 'k')", "existed=1"},
	} {
		if got := rowText(t, db, tt.text); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.text, got, tt.want)
		}
	}
}

// TestLimitOfAgreesWithGo makes random catalogs, and compares the limits that SQL and Go find for random keys.
func TestLimitOfAgreesWithGo(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	randomKey := func(maxLength int) (text string) {
		for range rng.IntN(maxLength + 1) {
			text += []string{"a", "b", "B", "é", " "}[rng.IntN(5)]
		}
		return text
	}
	for round := range tier.Pick(8, 20, 100) {
		now := catalogClock(t, s)
		items := map[store.Item]store.Item{} // by their ids
		addItem := func(i store.Item) {
			switch rng.IntN(4) {
			case 0:
				i.Until = now - rng.Int64N(30_000_000) // it has ended, but is still in the catalog
			case 1:
				i.Until = now + int64(time.Hour/time.Microsecond)
			}
			items[i.ID()] = i
		}
		rate := func() string { return fmt.Sprintf("fixed-window %d/30d", 1+rng.IntN(1000)) }
		for _, name := range []string{"x", "y"} {
			i := store.Item{Kind: store.KindLimit, Name: name, Text: rate()}
			items[i.ID()] = i
		}
		for range rng.IntN(3) {
			i := store.Item{
				Kind: store.KindPlan, Name: []string{"p", "q"}[rng.IntN(2)],
				Key: []string{"x", "y"}[rng.IntN(2)], Text: rate(),
			}
			items[i.ID()] = i
		}
		for range rng.IntN(4) {
			addItem(store.Item{
				Kind: store.KindOverride, Name: []string{"x", "y"}[rng.IntN(2)], Key: "a" + randomKey(2), Text: rate(),
			})
			addItem(store.Item{Kind: store.KindAssignment, Key: "a" + randomKey(2), Text: []string{"p", "q", "r"}[rng.IntN(3)]})
		}
		for range rng.IntN(6) {
			addItem(store.Item{
				Kind: store.KindPrefixOverride, Name: []string{"x", "y"}[rng.IntN(2)], Key: randomKey(3), Text: rate(),
			})
			addItem(store.Item{Kind: store.KindPrefixAssignment, Key: randomKey(3), Text: []string{"p", "q", "r"}[rng.IntN(3)]})
		}
		compareWithGo(t, db, s, items, func() (name, key string) { return []string{"x", "y"}[rng.IntN(2)], randomKey(5) },
			fmt.Sprintf("seed %d, round %d", seed, round))
	}
}

// compareWithGo replaces the catalog by some items, and compares the limits that SQL and Go find for 40 names and keys.
func compareWithGo(t *testing.T, db *sql.DB, s *mysql.Store, items map[store.Item]store.Item,
	randomCharge func() (name, key string), label string,
) {
	t.Helper()
	current, err := s.ReadCatalog(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []store.Kind{store.KindOverride, store.KindAssignment} {
		list, err := s.ItemsAfter(t.Context(), kind, store.Item{}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		current.Items = append(current.Items, list...)
	}
	edit := store.Edit{Base: current.Version}
	for _, i := range current.Items {
		if _, ok := items[i.ID()]; !ok {
			removal := i.ID()
			removal.Removed = true
			edit.Items = append(edit.Items, removal)
		}
	}
	for _, i := range items {
		edit.Items = append(edit.Items, i)
	}
	if _, err := s.WriteCatalog(t.Context(), edit); err != nil {
		t.Fatal(label, err)
	}
	names, err := catalog.Open(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer names.Close()
	for range 40 {
		name, key := randomCharge()
		want := checkInGo(t, names, s, name, key)
		got, err := callLimitOf(t, db, name, key)
		rule := fmt.Sprintf("fixed-window %d/30d", want.Capacity)
		if err != nil || got.rule != rule || got.applied != want.Applied {
			t.Fatalf("%s: limit %s of %q: got %+v, %v; want %s, applied %q", label, name, key, got, err, rule,
				want.Applied)
		}
	}
}

// checkInGo checks a charge of a named limit in Go.
func checkInGo(t *testing.T, names headgate.Names, s store.Store, name, key string) headgate.Decision {
	t.Helper()
	d, err := headgate.New(s, &headgate.Config{Names: names, Timeout: time.Minute}).Check(t.Context(),
		headgate.Charge{Limit: headgate.MustNamed(name), Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestCallsUseTheLimitAfterAnOverrideEnds checks that calls that wait for the locks of their keys until an override has
// ended are decided by the limit.
func TestCallsUseTheLimitAfterAnOverrideEnds(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	calls := []struct{ key, columns, call, want string }{
		{"take", "allowed", "take('user', 'take', 1)", "0"},
		{"once", "allowed", "take_once('id', 'user', 'once', 1, 0)", "0"},
		{"reserve", "allowed", "reserve('user', 'reserve', 1, 10, 'other', 0)", "0"},
		{"up to", "capacity accepted", "take_up_to('user', 'up to', 1)", "5 0.000000"},
		{
			"all", "allowed capacity remaining",
			"take_all('" + chargesJSON("user", "all", "1", "org", "all", "1", "user", "all", "1") + "')",
			"0 5 0, 0 20 20, 0 5 0",
		},
		{
			"reserve all", "allowed capacity remaining",
			"reserve_all('" + chargesJSON("user", "reserve all", "1", "org", "reserve all", "1") + "', 60, NULL, 0)",
			"0 5 0, 0 20 20",
		},
		{
			"first", "allowed capacity remaining",
			"take_first('" + chargesJSON("user", "first", "1", "fixed-window 1/month", "k", "2", "fixed-window 1/day",
				"k", "2", "fixed-window 1/hour", "k", "2", "fixed-window 20/month", "k", "1") + "')",
			"0 5 0, 0 1 1, 0 1 1, 0 1 1, 1 20 19",
		},
	}
	defineItems(t, s, store.Item{Name: "user", Text: "fixed-window 5/30d"},
		store.Item{Name: "org", Text: "fixed-window 20/30d"})
	override := func(life time.Duration) (until int64) {
		until = catalogClock(t, s) + life.Microseconds()
		var items []store.Item
		for _, c := range calls {
			items = append(items, store.Item{
				Kind: store.KindOverride, Name: "user", Key: c.key, Text: "fixed-window 900/30d", Until: until,
			})
		}
		defineItems(t, s, items...)
		return until
	}
	override(time.Hour)
	for _, c := range calls {
		if d, err := callTake(t, db, "headgate_take", "user", c.key, "5"); err != nil || d.remaining != 895 {
			t.Fatalf("%s: with the override: got %+v, %v; want remaining 895", c.key, d, err)
		}
	}
	tx := beginTx(t, db)
	mustExec(t, tx, "UPDATE headgate_cells SET reason = 'held'")
	// 500 ms are long enough for most calls to find the override. The limit decides a later call, too.
	until := override(500 * time.Millisecond)
	answered := make([]chan string, len(calls))
	for i, c := range calls {
		answered[i] = make(chan string, 1)
		go func() { answered[i] <- columnsText(t, db, c.columns, "CALL headgate_"+c.call) }()
	}
	await.Until(t, "the overrides to end", func() bool { return serverClock(t, db) > until })
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for i, c := range calls {
		if got := await.Receive(t, c.call, answered[i]); got != c.want {
			t.Errorf("%s after the end: got %s, want %s", c.call, got, c.want)
		}
		if d, err := callTake(t, db, "headgate_check", "user", c.key, "1"); err != nil || d.allowed != 0 {
			t.Errorf("headgate_check after the end: got %+v, %v; want allowed 0", d, err)
		}
	}
}

// TestCatalogVersionKnowsKindsOfItems checks that headgate_catalog_version.kinds has a bit for each kind of override
// and assignment in the catalog, after changes by hand and by WriteCatalog. A change by hand only sets bits.
func TestCatalogVersionKnowsKindsOfItems(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openStore(t, url)
	conn := openSession(t, url)
	expect := func(want string) {
		t.Helper()
		if got := rowText(t, openPlainDB(t, url), "SELECT kinds FROM headgate_catalog_version"); got != "kinds="+want {
			t.Errorf("got %s, want kinds=%s", got, want)
		}
	}
	const insert = "INSERT INTO headgate_catalog (kind, name, item_key, text) VALUES "
	expect("0")
	defineItems(t, s, store.Item{Name: "api", Text: "fixed-window 1/30d"})
	expect("0")
	mustExec(t, conn, insert+"('prefix-override', 'api', 'a', 'fixed-window 2/30d')")
	expect("2")
	defineItems(t, s, store.Item{Kind: store.KindAssignment, Key: "k", Text: "pro"})
	expect("6")
	mustExec(t, conn, insert+"('override', 'api', 'k', 'fixed-window 3/30d')")
	expect("7")
	mustExec(t, conn, "DELETE FROM headgate_catalog WHERE kind = 'prefix-override'")
	expect("7")
	defineItems(t, s, store.Item{Kind: store.KindAssignment, Key: "k", Removed: true})
	expect("1")
	defineItems(t, s, store.Item{Kind: store.KindOverride, Name: "api", Key: "k", Removed: true})
	expect("0")
}
