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

// insertItem inserts a row of the catalog; in is the interval after which it ends, "" for never.
func insertItem(t *testing.T, conn *pgx.Conn, kind, name, key, text, in string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), `insert into headgate.catalog (kind, name, key, text, until) values ($1, $2, $3, $4,
		coalesce((extract(epoch from clock_timestamp() + nullif($5, '')::interval) * 1000000)::bigint, 0))
		on conflict (kind, name, key) do update set text = excluded.text, until = excluded.until`,
		kind, name, key, text, in); err != nil {
		t.Fatalf("%s %s %s: %v", kind, name, key, err)
	}
}

// limitFromSQL describes the limit of a key by the functions in SQL.
func limitFromSQL(t *testing.T, conn *pgx.Conn, limit, key string) (s string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), `select concat_ws('; ', l.rule, l.applied, (select c.remaining from headgate.check($1, $2) c))
		from headgate.limit_of($1, $2) l`, limit, key).Scan(&s); err != nil {
		t.Fatalf("%s, %s: %v", limit, key, err)
	}
	return s
}

// limitFromGo describes the limit of a key by a Limiter, in the format of limitFromSQL.
func limitFromGo(t *testing.T, s *postgres.Store, c *catalog.Catalog, limit, key string) string {
	t.Helper()
	d, err := headgate.New(s, &headgate.Config{Names: c}).Check(t.Context(),
		headgate.Charge{Limit: headgate.MustNamed(limit), Key: key})
	if err != nil {
		t.Fatalf("%s, %s: %v", limit, key, err)
	}
	return fmt.Sprintf("token-bucket %d/1h burst %[1]d; %s; %d", d.Capacity, d.Applied, d.Remaining)
}

// bucketOf returns a limit with n as its capacity, which identifies it.
func bucketOf(n int) string { return fmt.Sprintf("token-bucket %d/1h", n) }

func TestOverridesAndPlansFromSQL(t *testing.T) {
	t.Parallel()
	conn, dsn := session(t)
	s := openAt(t, dsn)
	if _, err := conn.Exec(t.Context(), `insert into headgate.limits (name, rule) values ('api', 'token-bucket 1/1h'),
		('other', 'token-bucket 2/1h')`); err != nil {
		t.Fatal(err)
	}
	for _, i := range [][5]string{
		{"override", "api", "acme/bob", bucketOf(10), ""},
		{"override", "api", "late", bucketOf(11), "-1 s"},
		{"override", "api", "soon", bucketOf(12), "1 h"},
		{"override", "api", "", bucketOf(13), ""},
		{"prefix-override", "api", "acme/", bucketOf(20), ""},
		{"prefix-override", "api", "acme/ö", bucketOf(21), ""},
		{"prefix-override", "api", "acme/ö/x", bucketOf(22), "-1 s"},
		{"prefix-override", "other", "lat", bucketOf(23), ""},
		{"plan", "pro", "api", bucketOf(30), ""},
		{"plan", "basic", "other", bucketOf(31), ""},
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
		insertItem(t, conn, i[0], i[1], i[2], i[3], i[4])
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
			t.Errorf("%s for %q: %q, in Go %q; want %q", tt.limit, tt.key, got, want, tt.applied)
		}
	}
	var sees string
	if err := conn.QueryRow(t.Context(), `select concat_ws('; ', (select until - now() between '59 min' and '1 h' from headgate.limit_of('api', 'soon')),
		(select until is null from headgate.limit_of('api', 'carol')), (select l::text from headgate.limit_of('gcra 1/s', 'carol') l))`).Scan(&sees); err != nil ||
		sees != `t; t; ("gcra 1/s burst 1","",)` {
		t.Errorf("%s, %v", sees, err)
	}
}

// TestTheLimitOfAKeyMatchesGo compares limits in random catalogs, while rows are inserted,
// changed and deleted.
func TestTheLimitOfAKeyMatchesGo(t *testing.T) {
	t.Parallel()
	conn, dsn := session(t)
	s := openAt(t, dsn)
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	keys := []string{"", "a", "aa", "ab", "aab", "aaba", "aabaa", "b", "ba", "bab", "ä", "äa", "aä"}
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	if _, err := conn.Exec(t.Context(), "select setseed(0.5)"); err != nil { // for random()
		t.Fatal(err)
	}
	for _, name := range []string{"l1", "l2"} {
		if _, err := conn.Exec(t.Context(), `insert into headgate.limits (name, rule) values ($1, 'token-bucket 1/1h')`,
			name); err != nil {
			t.Fatal(err)
		}
	}
	c, err := catalog.Read(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	steps := tier.Pick(120, 600, 600)
	for n := range steps {
		ends := pick("", "", "", "1 h", "-1 s", "-30 s", "-1 h")
		switch limit, key := pick("l1", "l2"), pick(keys...); rng.IntN(12) {
		case 0, 1:
			insertItem(t, conn, "override", limit, key, bucketOf(n+2), ends)
		case 2, 3:
			insertItem(t, conn, "prefix-override", limit, key, bucketOf(n+2), ends)
		case 4:
			insertItem(t, conn, "plan", pick("p1", "p2", "p3"), limit, bucketOf(n+2), "")
		case 5, 6:
			insertItem(t, conn, "assignment", "", key, pick("p1", "p2", "p3"), ends)
		case 7, 8:
			insertItem(t, conn, "prefix-assignment", "", key, pick("p1", "p2", "p3"), ends)
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
		if n == steps/2 { // existing items apply also to a limit that is made now
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
				t.Fatalf("seed %d, step %d: %s for %q: %q, in Go %q", seed, n, limit, key, got, want)
			}
			seen[strings.Fields(strings.Split(got, "; ")[1] + " none")[0]]++
		}
	}
	if least := steps / 8; seen["override"] < least || seen["plan"] < least || seen["none"] < least {
		t.Errorf("too few of one kind: %v", seen)
	}
}

// TestAnOverrideEndsByTheServersClock makes requests before the end of an override that get the cell after it.
func TestAnOverrideEndsByTheServersClock(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]string{
		"take":      `allowed, at from headgate.take('api', 'bob')`,
		"check":     `allowed, at from headgate.check('api', 'bob')`,
		"take_once": `allowed, at from headgate.take_once('id', 'api', 'bob')`,
		"reserve":   `allowed, clock_timestamp() from headgate.reserve('api', 'bob', 1, '1 s')`,
		"acquire":   `acquired, clock_timestamp() from headgate.acquire('held', 'bob')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for life := 1; ; life *= 2 { // a longer life, if the machine pauses
				late := endsMeanwhile(t, name, ask, fmt.Sprintf("%d s", life))
				if late == "" {
					return
				}
				t.Logf("%d s: %s", life, late)
			}
		})
	}
}

// endsMeanwhile makes a request before the end of an override, and another one that waits for its cell until the
// override has ended. It returns which of the steps was too late.
func endsMeanwhile(t *testing.T, name, ask, life string) (late string) {
	t.Helper()
	conn, dsn := session(t)
	locker := connect(t, dsn)
	var at time.Time
	allowed := false
	if _, err := conn.Exec(t.Context(), `insert into headgate.limits (name, rule)
		values ('api', 'fixed-window 1/365d'), ('held', 'concurrency 1 ttl 1h')`); err != nil {
		t.Fatal(err)
	}
	insertItem(t, conn, "override", "api", "bob", "fixed-window 100/365d", life)
	insertItem(t, conn, "override", "held", "bob", "concurrency 100 ttl 1h", life)
	if _, err := conn.Exec(t.Context(), `update headgate.catalog set until = (select max(until) from headgate.catalog)`); err != nil {
		t.Fatal(err)
	}
	var until time.Time
	if err := conn.QueryRow(t.Context(), `select until from headgate.limit_of('api', 'bob')`).Scan(&until); err != nil {
		return err.Error()
	}
	for range 2 {
		if _, err := conn.Exec(t.Context(), `select headgate.take('api', 'bob'), headgate.acquire('held', 'bob')`); err != nil {
			t.Fatal(err)
		}
	}
	err := conn.QueryRow(t.Context(), "select "+ask).Scan(&allowed, &at)
	if err == nil && !allowed {
		return "the first answer came after the end"
	}
	if err != nil {
		t.Fatalf("before the end: %v", err)
	}
	if name == "take_once" {
		ask = strings.Replace(ask, "'id'", "'other'", 1)
	}
	tx, err := locker.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select from headgate.cells for update`); err != nil {
		t.Fatal(err)
	}
	done, watcher := make(chan error, 1), connect(t, dsn)
	go func() { done <- conn.QueryRow(t.Context(), "select "+ask).Scan(&allowed, &at) }()
	if name != "check" { // a check does not wait
		waitForBlock(t, watcher, locker)
		var early bool
		if err := watcher.QueryRow(t.Context(), `select clock_timestamp() < $1`, until).Scan(&early); err != nil {
			t.Fatal(err)
		}
		if !early {
			return "it did not wait before the end"
		}
		sleepUntil(t, watcher, until)
	} else if err := <-done; err == nil && !allowed && !at.Before(until) {
		_ = tx.Rollback(t.Context())
		return "a check came after the end"
	} else if err != nil || !allowed || !at.Before(until) {
		t.Errorf("a check before the end: %v at %v, %v", allowed, at, err)
	} else {
		sleepUntil(t, watcher, until)
		go func() { done <- conn.QueryRow(t.Context(), "select "+ask).Scan(&allowed, &at) }()
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || allowed || at.Before(until) {
		t.Errorf("after the end, %v: %v at %v, %v", until, allowed, at, err)
	}
	return ""
}

// sleepUntil waits until the server's clock has passed a time.
func sleepUntil(t *testing.T, conn *pgx.Conn, at time.Time) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), `select pg_sleep_until($1::timestamptz + interval '1 ms')`, at); err != nil {
		t.Fatal(err)
	}
}

// TestKeysWithoutOverridesPayNothing checks the query plans of charges.
func TestKeysWithoutOverridesPayNothing(t *testing.T) {
	t.Parallel()
	conn, dsn := session(t)
	w := watchPlans(t, dsn)
	if _, err := conn.Exec(t.Context(), `insert into headgate.limits (name, rule) values ('api', 'gcra 10/1h'), ('other', 'gcra 10/1h')`); err != nil {
		t.Fatal(err)
	}
	plans := func(limit string) (all, ofCatalog int) {
		t.Helper()
		for _, sql := range []string{"take('%s', 'k')", "take_once('i', '%s', 'k')", "block('%s', 'k', '1 s')", "reset('%s', 'k')"} {
			for range 3 {
				if _, err := w.Exec(t.Context(), "select headgate."+fmt.Sprintf(sql, limit)); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, p := range w.plans {
			if strings.Contains(p, `"Relation Name": "catalog"`) {
				ofCatalog++
				if strings.Contains(p, `"Seq Scan"`) {
					t.Errorf("it reads all of the catalog: %s", p)
				}
			}
		}
		all = len(w.plans)
		w.plans = nil
		return all, ofCatalog
	}
	plans("api")
	before, none := plans("api")
	insertItem(t, conn, "override", "other", "k", "gcra 5/1h", "")
	insertItem(t, conn, "prefix-override", "other", "", "gcra 5/1h", "")
	insertItem(t, conn, "plan", "pro", "other", "gcra 5/1h", "")
	insertItem(t, conn, "assignment", "", "k", "pro", "")
	after, still := plans("api")
	if before != after || none+still != 0 {
		t.Errorf("%d statements, with overrides of another limit %d; %d and %d read the catalog", before, after, none, still)
	}
	if _, some := plans("other"); some != 12 {
		t.Errorf("%d statements read the catalog in 12 calls for a limit with overrides", some)
	}
	if _, err := conn.Exec(t.Context(), `delete from headgate.catalog`); err != nil {
		t.Fatal(err)
	}
	if _, some := plans("other"); some != 0 {
		t.Errorf("%d statements read the catalog when the overrides are gone", some)
	}
}

// TestWritersOfOverridesDoNotMissEachOther has one transaction delete the last override that it sees, while
// another one inserts one.
func TestWritersOfOverridesDoNotMissEachOther(t *testing.T) {
	t.Parallel()
	conn, dsn := session(t)
	if _, err := conn.Exec(t.Context(), `insert into headgate.limits (name, rule) values ('api', 'token-bucket 1/1h')`); err != nil {
		t.Fatal(err)
	}
	insertItem(t, conn, "override", "api", "old", bucketOf(2), "")
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `insert into headgate.catalog (kind, name, key, text) values ('override', 'api', 'new', 'token-bucket 3/1h')`); err != nil {
		t.Fatal(err)
	}
	other := connect(t, dsn)
	done := make(chan error, 1)
	go func() {
		_, err := other.Exec(t.Context(), `delete from headgate.catalog where key = 'old'`)
		done <- err
	}()
	waitForBlock(t, connect(t, dsn), conn)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := limitFromSQL(t, conn, "api", "new"); got != bucketOf(3)+" burst 3; override; 3" {
		t.Errorf("of the new one: %s", got)
	}
	if got := limitFromSQL(t, conn, "api", "old"); got != bucketOf(1)+" burst 1; ; 1" {
		t.Errorf("of the old one: %s", got)
	}
}
