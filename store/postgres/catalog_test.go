package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
)

// listCatalogChanges returns the last 100 versions of the catalog, the oldest first: the reason and changes of each.
func listCatalogChanges(tb testing.TB, s *postgres.Store) (list []string) {
	tb.Helper()
	versions, err := s.CatalogVersions(tb.Context(), 0, 100)
	if err != nil {
		tb.Fatal(err)
	}
	for i := len(versions) - 1; i >= 0; i-- {
		v := &versions[i]
		line := v.Reason
		for _, c := range v.Changes {
			line += "; " + c.After.Name + " " + c.Before.Text + " > " + c.After.Text
		}
		list = append(list, line)
	}
	return list
}

// readPlansAndRecordAction reads plans, records an action on key a, and checks that Actions returns one on key a.
func readPlansAndRecordAction(t *testing.T, s *postgres.Store) {
	t.Helper()
	if _, err := s.ItemsAfter(t.Context(), store.KindPlan, store.Item{}, 10); err != nil {
		t.Errorf("ItemsAfter: %v", err)
	}
	if err := s.RecordAction(t.Context(), store.Action{Verb: "reset", Limit: "listed", Key: "a"}); err != nil {
		t.Errorf("RecordAction: %v", err)
	}
	if list, err := s.Actions(t.Context(), 0, 1); err != nil || len(list) != 1 || list[0].Key != "a" {
		t.Errorf("Actions: got %v, %v; want the reset of key a", list, err)
	}
}

// TestRecordActionKeepsActionsWhoseNumbersHaveGaps records an action beside 10,005 others, whose numbers are -30012,
// -30009 and so on to 0. The newest 10,000 actions must remain.
func TestRecordActionKeepsActionsWhoseNumbersHaveGaps(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s, conn := openAt(t, dsn), connect(t, dsn)
	if _, err := conn.Exec(t.Context(), `insert into headgate.actions (number, at, verb, limit_name, key, lasts, author, reason)
		overriding system value select 3 * i - 30015, i, 'reset', 'api', 'k', 0, '', '' from generate_series(1, 10005) i`); err != nil {
		t.Fatal(err)
	}
	if err := s.RecordAction(t.Context(), store.Action{Verb: "reset", Limit: "api", Key: "a"}); err != nil {
		t.Fatal(err)
	}
	var count, first int
	if err := conn.QueryRow(t.Context(), "select count(*), min(number) from headgate.actions").Scan(&count, &first); err != nil ||
		count != store.KeptActions || first != -29994 {
		t.Errorf("got %d actions from number %d on, and the error %v, want %d from -29994 on", count, first, err, store.KeptActions)
	}
}

// TestChangesFromSQLMakeVersions checks that each committed transaction which changes the catalog makes one version,
// and that invalid rows are refused and make none.
func TestChangesFromSQLMakeVersions(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s := openAt(t, dsn)
	for _, sql := range []string{
		`insert into headgate.limits (name, rule) values ('login', 'gcra 1/s'), ('api', 'gcra 2/s')`,
		`update headgate.limits set rule = 'gcra 3/s' where name = 'login'`,
		`update headgate.limits set updated_at = now()`, // makes no version
		`begin`,
		`set local headgate.reason = 'a new name, and back'`,
		`update headgate.limits set name = 'log-in' where name = 'login'`,
		`update headgate.limits set rule = 'gcra 4/s' where name = 'log-in'`,
		`savepoint s`,
		`delete from headgate.limits`,
		`rollback to s`,
		`commit`,
		`begin`,
		`delete from headgate.limits`,
		`rollback`,
		`insert into headgate.catalog (kind, name, key, text) values ('override', 'api', 'bob', 'gcra 9/s')`,
		`delete from headgate.limits where name = 'api'`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	want := []string{
		"; api  > gcra 2/s; login  > gcra 1/s",
		"; login gcra 1/s > gcra 3/s",
		"a new name, and back; log-in  > gcra 4/s; login gcra 3/s > ",
		"; api  > gcra 9/s",
		"; api gcra 2/s > ",
	}
	if got := listCatalogChanges(t, s); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got the versions\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var user string
	if err := conn.QueryRow(t.Context(), `select session_user`).Scan(&user); err != nil {
		t.Fatal(err)
	}
	list, err := s.CatalogVersions(t.Context(), 0, 1)
	if err != nil || len(list) != 1 || list[0].Author != user || list[0].Number != 5 {
		t.Errorf("newest version: got %+v, %v; want number 5 by %s", list, err, user)
	}
	for sql, problem := range map[string]string{
		`insert into headgate.limits (name, rule) values ('a', 'gcra 0/s')`:                                           "amount: is 0",
		`insert into headgate.limits (name, rule) values ('A', 'gcra 1/s')`:                                           "name: ",
		`insert into headgate.catalog (kind, name, key, text) values ('plan', 'pro', 'login', 'gcra 1')`:              "period",
		`insert into headgate.catalog (kind, name, text) values ('rule', 'pro', 'gcra 1/s')`:                          "catalog_kind_check",
		`update headgate.catalog set text = 'gcra 1/fortnight' where kind = 'override' and name = 'api'`:              "period",
		`insert into headgate.limits (name, rule, origin) values ('zone.9', 'gcra 1/s', 'zone')`:                      "headgate.zones",
		`insert into headgate.catalog (kind, name, key, text) values ('override', 'a', 'k', 'x')`:                     `algorithm: "x" is not known`,
		`insert into headgate.catalog (kind, name, key, text, until) values ('override', 'api', 'k', 'gcra 9/s', -1)`: "catalog_until_check",
		`insert into headgate.limits (name, rule) values ('c', 'fixed-window 1/day Nowhere/Else')`:                    "time zone",
		`insert into headgate.catalog (kind, name, key, text) values ('override', 'api', 'bob', 'gcra 1/s')`:          "duplicate",
		`insert into headgate.limits (name, rule) values ('log-in', 'gcra 1/s')`:                                      "duplicate",
	} {
		_, err := conn.Exec(t.Context(), sql)
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || !strings.Contains(pg.Message, problem) {
			t.Errorf("%s: got %v, want an error with %q", sql, err, problem)
		}
	}
	if n := len(listCatalogChanges(t, s)); n != len(want) {
		t.Errorf("got %d versions after the refused statements, want %d", n, len(want))
	}
}

// TestZonesAreLimits checks that each row of headgate.zones makes a limit, which changes and ends with the row.
func TestZonesAreLimits(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s := openAt(t, dsn)
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(`insert into headgate.zones (id, description, rate, window_seconds) values (1, 'log-ins', 1, 3600), (2, '', 5, 60)`)
	exec(`update headgate.zones set rate = 2, history_days = 0 where id = 2`)
	got, err := s.ReadCatalog(t.Context(), 0)
	if err != nil || len(got.Items) != 2 {
		t.Fatalf("ReadCatalog: got %+v, %v; want 2 items", got, err)
	}
	for _, item := range got.Items {
		want := store.Item{
			Kind: store.KindLimit, Name: "zone.1", Text: "sliding-log 1/3600s history 30d", Note: "log-ins",
			Origin: "zone",
		}
		if item.Name == "zone.2" {
			want = store.Item{Kind: store.KindLimit, Name: "zone.2", Text: "sliding-log 2/60s", Origin: "zone"}
		}
		if item != want {
			t.Errorf("got %+v, want %+v", item, want)
		}
	}
	var blocked int
	for _, want := range []int{0, 1} {
		if err := conn.QueryRow(t.Context(), `select blocked from check_velocity(1, 'bob')`).Scan(&blocked); err != nil || blocked != want {
			t.Fatalf("check_velocity: got blocked %d, %v; want %d", blocked, err, want)
		}
	}
	exec(`select headgate.reset('zone.1', 'bob')`)
	if err := conn.QueryRow(t.Context(), `select blocked from check_velocity(1, 'bob')`).Scan(&blocked); err != nil || blocked != 0 {
		t.Errorf("after a reset: got blocked %d, %v; want 0", blocked, err)
	}
	exec(`select headgate.block('zone.1', 'carol', '1 hour', 'a robot')`)
	if err := conn.QueryRow(t.Context(), `select blocked from check_velocity(1, 'carol')`).Scan(&blocked); err != nil || blocked != 1 {
		t.Errorf("after a block: got blocked %d, %v; want 1", blocked, err)
	}
	for _, sql := range []string{
		`update headgate.limits set rule = 'gcra 1/s' where name = 'zone.1'`, `delete from headgate.limits where name = 'zone.1'`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err == nil ||
			!strings.Contains(err.Error(), "change headgate.zones") {
			t.Errorf("%s: got %v, want the error: change headgate.zones", sql, err)
		}
	}
	exec(`delete from headgate.zones where id = 1`)
	if got, err := s.ReadCatalog(t.Context(), 0); err != nil || len(got.Items) != 1 {
		t.Errorf("after one zone was removed: got %+v, %v; want 1 item", got, err)
	}
}

// TestBucketsAreLimits checks that each row of headgate.buckets whose id can be part of a name makes a limit, which
// changes and ends with the row. Any row is a bucket of request_token.
func TestBucketsAreLimits(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s := openAt(t, dsn)
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	checkToken := func(id string, want int64) {
		t.Helper()
		if tag, err := conn.Exec(t.Context(), `select from request_token($1)`, id); err != nil || tag.RowsAffected() != want {
			t.Errorf("request_token(%s): got %d tokens, %v; want %d", id, tag.RowsAffected(), err, want)
		}
	}
	exec(`insert into headgate.buckets (id, capacity, refill_seconds) values ('payments', 1, 3600), ('a-2_b.c', 5, 0.5), ('Other id', 1, 3600),
		('none', 0, 60)`)
	exec(`update headgate.buckets set capacity = 7 where id = 'a-2_b.c'`)
	want := map[string]string{
		"bucket.payments": "fixed-window 1/1h from-first", "bucket.a-2_b.c": "fixed-window 7/500ms from-first", "bucket.none": "0",
	}
	got, err := s.ReadCatalog(t.Context(), 0)
	if err != nil || len(got.Items) != len(want) {
		t.Fatalf("ReadCatalog: got %+v, %v; want %d items", got, err, len(want))
	}
	for _, item := range got.Items {
		if item != (store.Item{Kind: store.KindLimit, Name: item.Name, Text: want[item.Name], Origin: "bucket"}) {
			t.Errorf("got %+v, want the text %s", item, want[item.Name])
		}
	}
	for _, id := range []string{"payments", "Other id"} {
		checkToken(id, 1)
		checkToken(id, 0)
	}
	checkToken("none", 0)
	var cells string
	if err := conn.QueryRow(t.Context(), `select string_agg(concat_ws(' ', c.limit_name, c.key, c.unit = (l.compiled).params[3], c.step = (l.compiled).params[5]),
		', ' order by c.limit_name) from headgate.cells c left join headgate.limits l on l.name = c.limit_name where c.level > 0`).Scan(
		&cells); err != nil || cells != "bucket.payments payments t t, request_token Other id" {
		t.Errorf("cells of buckets: got %s, %v", cells, err)
	}
	limit, err := headgate.ParseNamed("bucket.payments", want["bucket.payments"])
	if err != nil {
		t.Fatal(err)
	}
	l := newLimiter(s)
	if d, err := l.Check(t.Context(), headgate.Charge{Limit: limit, Key: "payments"}); err != nil || d.Allowed {
		t.Errorf("Check in Go after a refusal: got %+v, %v; want not allowed", d, err)
	}
	exec(`select headgate.reset('bucket.payments', 'payments')`)
	checkToken("payments", 1)
	if _, err := l.Reset(t.Context(), limit, "payments"); err != nil {
		t.Error(err)
	}
	checkToken("payments", 1)
	exec(`select headgate.reset('bucket.payments', 'payments')`)
	exec(`select headgate.block('bucket.payments', 'payments', '1 hour', 'the bank is down')`)
	checkToken("payments", 0)
	exec(`select headgate.block('bucket.payments', 'payments', '0')`)
	checkToken("payments", 1)
	for _, sql := range []string{
		`update headgate.limits set rule = 'gcra 1/s' where name = 'bucket.payments'`, `delete from headgate.limits where name = 'bucket.none'`,
		`insert into headgate.limits (name, rule, origin) values ('bucket.x', 'gcra 1/s', 'bucket')`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		if err == nil || !strings.Contains(err.Error(), "change headgate.buckets") {
			t.Errorf("%s: got %v, want the error: change headgate.buckets", sql, err)
		}
	}
	exec(`update headgate.buckets set id = 'Payments' where id = 'payments'`)
	exec(`delete from headgate.buckets where id = 'none'`)
	if got, err := s.ReadCatalog(t.Context(), 0); err != nil || len(got.Items) != 1 {
		t.Errorf("after one id was changed and one bucket removed: got %+v, %v; want 1 item", got, err)
	}
}

// TestTruncateMakesAVersion checks that TRUNCATE makes one version with all rows, and that zones and buckets refuse it.
func TestTruncateMakesAVersion(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s := openAt(t, dsn)
	for _, tt := range []struct{ sql, problem string }{
		{`insert into headgate.limits (name, rule) values ('api', 'gcra 1/s')`, ""},
		{`insert into headgate.catalog (kind, name, key, text) values ('override', 'api', 'bob', 'gcra 9/s'), ('plan', 'pro', 'api', 'gcra 8/s')`, ""},
		{`truncate headgate.catalog`, ""},
		{`insert into headgate.zones (id, rate, window_seconds) values (1, 1, 60)`, ""},
		{`insert into headgate.buckets (id, capacity, refill_seconds) values ('b', 1, 1)`, ""},
		{`truncate headgate.limits`, "zones of check_velocity"},
		{`truncate headgate.zones`, "use DELETE"},
		{`truncate headgate.buckets`, "use DELETE"},
		{`delete from headgate.zones`, ""},
		{`delete from headgate.buckets`, ""},
		{`truncate headgate.limits, headgate.catalog`, ""},
		{`truncate headgate.limits`, ""}, // the table is empty already
	} {
		_, err := conn.Exec(t.Context(), tt.sql)
		if tt.problem == "" && err != nil || tt.problem != "" && (err == nil || !strings.Contains(err.Error(), tt.problem)) {
			t.Errorf("%s: got %v, want an error with %q", tt.sql, err, tt.problem)
		}
		if tt.sql == "truncate headgate.catalog" {
			if got := limitFromSQL(t, conn, "api", "bob"); got != "gcra 1/s burst 1; ; 1" {
				t.Errorf("the limit after TRUNCATE of overrides: got %s", got)
			}
		}
	}
	got := listCatalogChanges(t, s)
	if len(got) != 8 || got[2] != "; api gcra 9/s > ; pro gcra 8/s > " || got[7] != "; api gcra 1/s > " {
		t.Errorf("got the versions %q", got)
	}
}
