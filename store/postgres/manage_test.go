package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// TestOverridesPlansAndBlocksFromSQL changes overrides, plans and blocks of a key by functions, and checks the row
// of the key in headgate.levels after each call.
func TestOverridesPlansAndBlocksFromSQL(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s := openAt(t, dsn)
	storetest.Define(t, s, store.Item{Name: "api", Text: "fixed-window 10/1h"},
		store.Item{Name: "jobs", Text: "concurrency 2 ttl 30s"})
	mustExec(t, conn, `insert into headgate.catalog (kind, name, key, text)
		values ('plan', 'pro', 'api', 'fixed-window 100/1h')`)
	levelRow := func() string {
		t.Helper()
		var text string
		if err := conn.QueryRow(t.Context(), `select concat_ws(' ', used, capacity, remaining, percent,
			case when blocked_until is not null then 'blocked' end) from headgate.levels where key = 'acme'`).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	mustExec(t, conn, `select headgate.take('api', 'acme', 2.5)`)
	for _, step := range []struct{ call, want, wantLevel string }{
		{`select headgate.override('api', 'acme', '5/1h', reason => 'noisy') > 0`, "true", "2.500000 5 2 50"},
		{`select applied from headgate.limit_of('api', 'acme')`, "override", "2.500000 5 2 50"},
		{`select headgate.override('api', 'acme', null) > 0`, "true", "2.500000 10 7 25"},
		{`select headgate.set_plan('acme', 'pro', '1 hour', 'trial') > 0`, "true", "2.500000 100 97 3"},
		{`select applied from headgate.limit_of('api', 'acme')`, "plan pro", "2.500000 100 97 3"},
		{`select reason from headgate.versions order by version desc limit 1`, "trial", "2.500000 100 97 3"},
		{`select headgate.set_plan('acme', null) > 0`, "true", "2.500000 10 7 25"},
		{`select headgate.block('api', 'acme', '1 hour') is not null`, "true", "2.500000 10 0 25 blocked"},
		{`select headgate.unblock('api', 'acme')`, "true", "2.500000 10 7 25"},
		{`select headgate.unblock('api', 'acme')`, "false", "2.500000 10 7 25"},
	} {
		var got string
		if err := conn.QueryRow(t.Context(), "select x::text from ("+step.call+") v(x)").Scan(&got); err != nil || got != step.want {
			t.Errorf("%s: got %q, %v; want %q", step.call, got, err, step.want)
		}
		if got := levelRow(); got != step.wantLevel {
			t.Errorf("level after %s: got %q, want %q", step.call, got, step.wantLevel)
		}
	}
	expectErrors(t, conn, map[string]string{
		`select headgate.override('nobody', 'acme', '5/1h')`:                                           `limit_name: "nobody" is not in headgate.limits`,
		`select headgate.override('api', 'acme', '5/')`:                                                `period`,
		`select headgate.override('api', 'acme', 'concurrency 5 ttl 30s')`:                             `rule: concurrency 5 ttl 30s is taken or acquired`,
		`select headgate.override('jobs', 'acme', '5/1h')`:                                             `rule: token-bucket 5/1h burst 5 is taken or acquired`,
		`select headgate.override('api', 'acme', null)`:                                                `key: there is no override for "acme"`,
		`select headgate.override('api', 'acme', '5/1h', '-1 second')`:                                 `for_interval: -00:00:01 is not above 0`,
		`select headgate.override('api', 'a', '5/1h', reason => repeat('x', 1001))`:                    `reason: is longer than 1000 bytes`,
		`select headgate.set_plan('acme', 'gold')`:                                                     `plan: "gold" is not in headgate.catalog, which has pro`,
		`select headgate.set_plan('acme', null)`:                                                       `key: there is no assignment for "acme"`,
		`insert into headgate.catalog (kind, name) values ('assignment', 'pro')`:                       `name: is "pro"; it is empty in a row of kind assignment`,
		`insert into headgate.catalog (kind, key) values ('assignment', 'acme')`:                       `text: is missing`,
		`insert into headgate.catalog (kind, name, key, text) values ('override', '', 'acme', '5/1h')`: `name: is missing`,
		`insert into headgate.catalog (kind, name, text) values ('plan', 'pro', '5/1h')`:               `key: is missing`,
	})
}

// expectErrors makes the calls in problems, and checks that each fails with a message that begins with its text there.
func expectErrors(t *testing.T, conn *pgx.Conn, problems map[string]string) {
	t.Helper()
	for call, want := range problems {
		_, err := conn.Exec(t.Context(), call)
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "22023" || !strings.HasPrefix(pg.Message, want) {
			t.Errorf("%s: got %v, want the error %q", call, err, want)
		}
	}
}
