package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/postgres"
)

// insertItem inserts or replaces a row of the catalog. Its life is an interval of SQL; empty: it never ends.
func insertItem(t *testing.T, conn *pgx.Conn, kind, name, key, text, life string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), `insert into headgate.catalog (kind, name, key, text, until) values ($1, $2, $3, $4,
		coalesce((extract(epoch from clock_timestamp() + nullif($5, '')::interval) * 1000000)::bigint, 0))
		on conflict (kind, name, key) do update set text = excluded.text, until = excluded.until`,
		kind, name, key, text, life); err != nil {
		t.Fatalf("%s %s %s: %v", kind, name, key, err)
	}
}

// limitFromSQL returns the limit of a key as "rule; what applied; remaining units", by headgate.limit_of and check.
func limitFromSQL(t *testing.T, conn *pgx.Conn, limit, key string) (s string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), `select concat_ws('; ', l.rule, l.applied, (select c.remaining from headgate.check($1, $2) c))
		from headgate.limit_of($1, $2) l`, limit, key).Scan(&s); err != nil {
		t.Fatalf("%s, %s: %v", limit, key, err)
	}
	return s
}

// limitFromGo returns the limit of a key by a Limiter, in the format of limitFromSQL.
func limitFromGo(t *testing.T, s *postgres.Store, c *catalog.Catalog, limit, key string) string {
	t.Helper()
	d, err := headgate.New(s, &headgate.Config{Names: c}).Check(t.Context(),
		headgate.Charge{Limit: headgate.MustNamed(limit), Key: key})
	if err != nil {
		t.Fatalf("%s, %s: %v", limit, key, err)
	}
	return fmt.Sprintf("token-bucket %d/1h burst %[1]d; %s; %d", d.Capacity, d.Applied, d.Remaining)
}

// bucketRule returns the rule of a bucket whose capacity is n. Tests recognize the rule by n.
func bucketRule(n int) string { return fmt.Sprintf("token-bucket %d/1h", n) }

// TestOverridesAndPlansFromSQL checks which override or plan applies to a key, in SQL and in Go.
func TestOverridesAndPlansFromSQL(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s := openAt(t, dsn)
	mustExec(t, conn, `insert into headgate.limits (name, rule) values ('api', 'token-bucket 1/1h'),
		('other', 'token-bucket 2/1h')`)
	for _, row := range [][5]string{ // kind, name, key, text, life
		{"override", "api", "acme/bob", bucketRule(10), ""},
		{"override", "api", "late", bucketRule(11), "-1 s"},
		{"override", "api", "soon", bucketRule(12), "1 h"},
		{"override", "api", "", bucketRule(13), ""},
		{"prefix-override", "api", "acme/", bucketRule(20), ""},
		{"prefix-override", "api", "acme/ö", bucketRule(21), ""},
		{"prefix-override", "api", "acme/ö/x", bucketRule(22), "-1 s"},
		{"prefix-override", "other", "lat", bucketRule(23), ""},
		{"plan", "pro", "api", bucketRule(30), ""},
		{"plan", "basic", "other", bucketRule(31), ""},
		{"assignment", "", "carol", "pro", ""},
		{"assignment", "", "late", "pro", ""},
		{"assignment", "", "dave", "basic", ""},
		{"assignment", "", "acme/carol", "pro", ""},
		{"assignment", "", "big/gone", "none", ""},
		{"assignment", "", "big/basic", "basic", ""},
		{"assignment", "", "big/ended", "basic", "-1 h"},
		{"prefix-assignment", "", "big/", "pro", ""},
		{"prefix-assignment", "", "big/er", "gone", ""},
		{"prefix-assignment", "", "big/er/", "basic", "1 h"},
	} {
		insertItem(t, conn, row[0], row[1], row[2], row[3], row[4])
	}
	c, err := catalog.Read(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ limit, key, applied string }{
		{"api", "nobody", ""},
		{"api", "acme/bob", "override"},
		{"api", "", "override"},
		{"api", "acme/ann", "override of acme/*"},
		{"api", "acme/ö", "override of acme/ö*"},
		{"api", "acme/ö/x", "override of acme/ö*"},
		{"api", "acme/carol", "override of acme/*"},
		{"api", "acme", ""},
		{"api", "soon", "override"},
		{"api", "late", "plan pro"},
		{"api", "carol", "plan pro"},
		{"api", "dave", ""},
		{"api", "big/one", "plan pro of big/*"},
		{"api", "big/gone", "plan pro of big/*"},
		{"api", "big/basic", ""},
		{"api", "big/ended", "plan pro of big/*"},
		{"api", "big/er", "plan pro of big/*"},
		{"api", "big/er/x", ""},
		{"other", "late", "override of lat*"},
		{"other", "big/er/x", "plan basic of big/er/*"},
		{"other", "acme/bob", ""},
		{"other", "dave", "plan basic"},
	} {
		got, want := limitFromSQL(t, conn, tt.limit, tt.key), limitFromGo(t, s, c, tt.limit, tt.key)
		if got != want || strings.Split(got, "; ")[1] != tt.applied {
			t.Errorf("%s for %q: got %q, in Go %q; want %q", tt.limit, tt.key, got, want, tt.applied)
		}
	}
	var text string
	if err := conn.QueryRow(t.Context(), `select concat_ws('; ', (select until - now() between '59 min' and '1 h' from headgate.limit_of('api', 'soon')),
		(select until is null from headgate.limit_of('api', 'carol')), (select l::text from headgate.limit_of('gcra 1/s', 'carol') l))`).Scan(&text); err != nil ||
		text != `t; t; ("gcra 1/s burst 1","",)` {
		t.Errorf("ends by limit_of: got %s, %v; want an hour, none, and none", text, err)
	}
}

// TestLimitOfMatchesGo compares the limits of random keys in SQL and in Go, while rows of the catalog are inserted,
// changed and deleted.
func TestLimitOfMatchesGo(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s := openAt(t, dsn)
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	keys := []string{"", "a", "aa", "ab", "aab", "aaba", "aabaa", "b", "ba", "bab", "ä", "äa", "aä"}
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	if _, err := conn.Exec(t.Context(), "select setseed(0.5)"); err != nil { // for random()
		t.Fatal(err)
	}
	for _, name := range []string{"l1", "l2"} {
		mustExec(t, conn, `insert into headgate.limits (name, rule) values ($1, 'token-bucket 1/1h')`, name)
	}
	c, err := catalog.Read(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	appliedCounts := map[string]int{}
	steps := tier.Pick(120, 600, 600)
	for n := range steps {
		life := pick("", "", "", "1 h", "-1 s", "-30 s", "-1 h")
		switch limit, key := pick("l1", "l2"), pick(keys...); rng.IntN(12) {
		case 0, 1:
			insertItem(t, conn, "override", limit, key, bucketRule(n+2), life)
		case 2, 3:
			insertItem(t, conn, "prefix-override", limit, key, bucketRule(n+2), life)
		case 4:
			insertItem(t, conn, "plan", pick("p1", "p2", "p3"), limit, bucketRule(n+2), "")
		case 5, 6:
			insertItem(t, conn, "assignment", "", key, pick("p1", "p2", "p3"), life)
		case 7, 8:
			insertItem(t, conn, "prefix-assignment", "", key, pick("p1", "p2", "p3"), life)
		case 9:
			_, err = conn.Exec(t.Context(), `update headgate.catalog set name = $1 where ctid = any (array(select ctid from headgate.catalog
				where kind = 'override' and (kind, $1, key) not in (select kind, name, key from headgate.catalog) limit 1))`, limit)
		default:
			_, err = conn.Exec(t.Context(), `delete from headgate.catalog where kind = $1 and random() < 0.7`,
				pick("override", "override", "prefix-override", "plan", "assignment", "prefix-assignment"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if n == steps/2 { // existing rows must apply to a new limit of their name too
			_, err = conn.Exec(t.Context(), `delete from headgate.limits where name = 'l2'`)
			if err == nil {
				_, err = conn.Exec(t.Context(), `insert into headgate.limits (name, rule) values ('l2', 'token-bucket 1/1h')`)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			limit, key := pick("l1", "l2"), pick(keys...)
			got, want := limitFromSQL(t, conn, limit, key), limitFromGo(t, s, c, limit, key)
			if got != want {
				t.Fatalf("seed %d, step %d: %s for %q: got %q, in Go %q", seed, n, limit, key, got, want)
			}
			appliedCounts[strings.Fields(strings.Split(got, "; ")[1] + " none")[0]]++ // override, plan or none
		}
	}
	minCount := steps / 8
	if appliedCounts["override"] < minCount || appliedCounts["plan"] < minCount || appliedCounts["none"] < minCount {
		t.Errorf("got %v, want at least %d of each kind", appliedCounts, minCount)
	}
}

// TestOverrideEndsByTheServersClock makes requests before the end of an override wait for their cell until the end.
// The override must not decide them, since the server reads its clock after the wait.
func TestOverrideEndsByTheServersClock(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{
		"take":      `allowed, at from headgate.take('api', 'bob')`,
		"check":     `allowed, at from headgate.check('api', 'bob')`,
		"take_once": `allowed, at from headgate.take_once('id', 'api', 'bob')`,
		"reserve":   `allowed, clock_timestamp() from headgate.reserve('api', 'bob', 1, '1 s')`,
		"acquire":   `acquired, clock_timestamp() from headgate.acquire('held', 'bob')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for life := 1; ; life *= 2 { // a longer life, if the machine pauses
				lateStep := checkOverrideEnd(t, name, query, fmt.Sprintf("%d s", life))
				if lateStep == "" {
					return
				}
				t.Logf("%d s: %s", life, lateStep)
			}
		})
	}
}

// checkOverrideEnd makes a request before the end of an override, and another one that waits for its cell until the
// override has ended; a check does not wait, and comes later. It returns the step that was too late, or "".
func checkOverrideEnd(t *testing.T, name, query, life string) (lateStep string) {
	t.Helper()
	conn, dsn := openSession(t)
	locker := connect(t, dsn)
	var at time.Time
	allowed := false
	mustExec(t, conn, `insert into headgate.limits (name, rule)
		values ('api', 'fixed-window 1/365d'), ('held', 'concurrency 1 ttl 1h')`)
	insertItem(t, conn, "override", "api", "bob", "fixed-window 100/365d", life)
	insertItem(t, conn, "override", "held", "bob", "concurrency 100 ttl 1h", life)
	mustExec(t, conn, `update headgate.catalog set until = (select max(until) from headgate.catalog)`)
	var until time.Time
	if err := conn.QueryRow(t.Context(), `select until from headgate.limit_of('api', 'bob')`).Scan(&until); err != nil {
		return err.Error()
	}
	for range 2 {
		mustExec(t, conn, `select headgate.take('api', 'bob'), headgate.acquire('held', 'bob')`)
	}
	err := conn.QueryRow(t.Context(), "select "+query).Scan(&allowed, &at)
	if err == nil && !allowed {
		return "the first answer came after the end"
	}
	if err != nil {
		t.Fatalf("before the end: %v", err)
	}
	if name == "take_once" {
		query = strings.Replace(query, "'id'", "'other'", 1)
	}
	tx, err := locker.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, `select from headgate.cells for update`)
	done, watcher := make(chan error, 1), connect(t, dsn)
	go func() { done <- conn.QueryRow(t.Context(), "select "+query).Scan(&allowed, &at) }()
	if name != "check" { // a check does not wait
		waitForWaiter(t, watcher, locker)
		var waitsBeforeEnd bool
		if err := watcher.QueryRow(t.Context(), `select clock_timestamp() < $1`, until).Scan(&waitsBeforeEnd); err != nil {
			t.Fatal(err)
		}
		if !waitsBeforeEnd {
			return "it did not wait before the end"
		}
		sleepUntil(t, watcher, until)
	} else if err := <-done; err == nil && !allowed && !at.Before(until) {
		_ = tx.Rollback(t.Context())
		return "a check came after the end"
	} else if err != nil || !allowed || !at.Before(until) {
		t.Errorf("a check before the end: got allowed %v at %v, %v; want true before %v", allowed, at, err, until)
	} else {
		sleepUntil(t, watcher, until)
		go func() { done <- conn.QueryRow(t.Context(), "select "+query).Scan(&allowed, &at) }()
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || allowed || at.Before(until) {
		t.Errorf("after the end: got allowed %v at %v, %v; want false after %v", allowed, at, err, until)
	}
	return ""
}

// sleepUntil waits until the server's clock has passed a time.
func sleepUntil(t *testing.T, conn *pgx.Conn, at time.Time) {
	t.Helper()
	mustExec(t, conn, `select pg_sleep_until($1::timestamptz + interval '1 ms')`, at)
}

// TestLimitsWithoutOverridesReadNoCatalog checks by query plans that calls for a limit without overrides and plans do
// not read the table of the catalog.
func TestLimitsWithoutOverridesReadNoCatalog(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	w := watchPlans(t, dsn)
	mustExec(t, conn, `insert into headgate.limits (name, rule) values ('api', 'gcra 10/1h'), ('other', 'gcra 10/1h')`)
	countPlans := func(limit string) (total, ofCatalog int) {
		t.Helper()
		for _, sql := range []string{"take('%s', 'k')", "take_once('i', '%s', 'k')", "block('%s', 'k', '1 s')", "reset('%s', 'k')"} {
			for range 3 {
				mustExec(t, w, "select headgate."+fmt.Sprintf(sql, limit))
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, p := range w.plans {
			if strings.Contains(p, `"Relation Name": "catalog"`) {
				ofCatalog++
				if strings.Contains(p, `"Seq Scan"`) {
					t.Errorf("got a scan of the whole catalog, want an index: %s", p)
				}
			}
		}
		total = len(w.plans)
		w.plans = nil
		return total, ofCatalog
	}
	countPlans("api") // plans of the first calls differ
	totalBefore, ofCatalogBefore := countPlans("api")
	insertItem(t, conn, "override", "other", "k", "gcra 5/1h", "")
	insertItem(t, conn, "prefix-override", "other", "", "gcra 5/1h", "")
	insertItem(t, conn, "plan", "pro", "other", "gcra 5/1h", "")
	insertItem(t, conn, "assignment", "", "k", "pro", "")
	totalAfter, ofCatalogAfter := countPlans("api")
	if totalBefore != totalAfter || ofCatalogBefore+ofCatalogAfter != 0 {
		t.Errorf("got %d statements, %d with overrides of another limit; %d and %d of them read the catalog, want none",
			totalBefore, totalAfter, ofCatalogBefore, ofCatalogAfter)
	}
	if _, n := countPlans("other"); n != 12 { // one in each of 4 * 3 calls
		t.Errorf("got %d statements that read the catalog for a limit with overrides, want 12", n)
	}
	mustExec(t, conn, `delete from headgate.catalog`)
	if _, n := countPlans("other"); n != 0 {
		t.Errorf("got %d statements that read the catalog after the overrides were deleted, want 0", n)
	}
}

// TestConcurrentInsertAndDeleteOfOverrides deletes the only committed override while another transaction inserts one.
// The limit must keep its mark of having overrides, so that the new one applies.
func TestConcurrentInsertAndDeleteOfOverrides(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	mustExec(t, conn, `insert into headgate.limits (name, rule) values ('api', 'token-bucket 1/1h')`)
	insertItem(t, conn, "override", "api", "old", bucketRule(2), "")
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, `insert into headgate.catalog (kind, name, key, text) values ('override', 'api', 'new', 'token-bucket 3/1h')`)
	deleter := connect(t, dsn)
	done := make(chan error, 1)
	go func() {
		_, err := deleter.Exec(t.Context(), `delete from headgate.catalog where key = 'old'`)
		done <- err
	}()
	waitForWaiter(t, connect(t, dsn), conn)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := limitFromSQL(t, conn, "api", "new"); got != bucketRule(3)+" burst 3; override; 3" {
		t.Errorf("the key of the new override: got %s", got)
	}
	if got := limitFromSQL(t, conn, "api", "old"); got != bucketRule(1)+" burst 1; ; 1" {
		t.Errorf("the key of the deleted override: got %s", got)
	}
}
