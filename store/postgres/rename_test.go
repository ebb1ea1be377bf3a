package postgres_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
)

// TestSQLFollowsALimitThatWasRenamed calls functions and writes rows by both names of a limit; each is about one cell.
func TestSQLFollowsALimitThatWasRenamed(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s := openAt(t, dsn)
	mustExec(t, conn, `insert into headgate.limits (name, rule) values ('login', 'sliding-log 9/1h history 1d'), ('api', '9/1h')`)
	mustExec(t, conn, `insert into headgate.catalog (kind, name, key, text) values ('override', 'web', 'k', '5/1h')`) // of a former limit
	c, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Rename(t.Context(), catalog.By{}, "login", "signin"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Rename(t.Context(), catalog.By{}, "api", "web"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ sql, want string }{
		{`select concat_ws(' ', limit_name, remaining) from headgate.take('web', 'k')`, "api 8"},
		{`select concat_ws(' ', limit_name, remaining) from headgate.take('api', 'k')`, "api 7"},
		{`select concat_ws(' ', limit_name, remaining) from headgate.take('login', 'k')`, "login 8"},
		{`select concat_ws(' ', limit_name, remaining) from headgate.take('signin', 'k')`, "login 7"},
		{`select concat_ws(' ', limit_name, remaining) from headgate.take('signin keep 2', 'k')`, "login 6"},
		{`select concat_ws(' ', limit_name, remaining) from headgate.check('signin', 'k')`, "login 6"},
		{`select concat_ws(' ', limit_name, remaining) from headgate.take_once('id', 'signin', 'k')`, "login 5"},
		{`select concat_ws(' ', limit_name, replayed) from headgate.take_once('id', 'login', 'k')`, "login t"},
		{`select string_agg(limit_name || ' ' || remaining, ',') from headgate.take_all(array['login', 'signin'], array['k', 'k'], array[1, 1])`, "login 4,login 3"},
		{`select count(*)::text from headgate.attempts('signin', 'k')`, "6"},
		{`select string_agg(limit_name, ',') from headgate.levels where key = 'k' and limit_name <> 'api'`, "login"},
		{`select concat_ws(' ', headgate.block('signin', 'k', '1 h') is not null, headgate.unblock('login', 'k'))`, "t t"},
		{`select headgate.reset('signin', 'k')::text`, "true"},
		{`select string_agg(distinct limit_name, ',') from headgate.actions`, "login"},
		{`select (headgate.override('signin', 'o', 'sliding-log 5/1h history 1d') > 0)::text`, "true"},
		{`select concat_ws(' ', applied, rule) from headgate.limit_of('login', 'o')`, "override sliding-log 5/1h history 1d"},
		{`select (headgate.override('signin', 'o', null) > 0)::text`, "true"},
		{`with i as (insert into headgate.catalog (kind, name, key, text) values ('prefix-override', 'signin', 'p', 'sliding-log 4/1h'),
			('plan', 'pro', 'signin', 'sliding-log 3/1h'), ('assignment', '', 'q', 'pro') returning name, key)
			select string_agg(name || '/' || key, ',') from i`, "login/p,pro/login,/q"},
		{`select concat_ws(' ', applied, rule) from headgate.limit_of('signin', 'pp')`, "override of p* sliding-log 4/1h"},
		{`select concat_ws(' ', applied, rule) from headgate.limit_of('signin', 'q')`, "plan pro sliding-log 3/1h"},
	} {
		var got string
		if err := conn.QueryRow(t.Context(), step.sql).Scan(&got); err != nil || got != step.want {
			t.Errorf("%s: got %s, %v; want %s", step.sql, got, err, step.want)
		}
	}
	mustExec(t, conn, `insert into headgate.limits (name, rule) values ('entry', 'renamed from login')`)
	limiter := headgate.New(s, &headgate.Config{Names: c})
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, err := limiter.Allow(t.Context(), headgate.MustNamed("entry"), "q"); err != nil || d.Remaining != 2 {
		t.Errorf("a name that a row gives: got %+v, %v; want 2 left", d, err)
	}
	for sql, code := range map[string]string{
		`insert into headgate.limits (name, rule) values ('login', 'gcra 1/s')`:         "23505",
		`insert into headgate.limits (name, rule) values ('other', 'renamed from A b')`: "22023",
	} {
		_, err := conn.Exec(t.Context(), sql)
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != code {
			t.Errorf("%s: got %v, want code %s", sql, err, code)
		}
	}
	mustExec(t, conn, `insert into headgate.limits (name, rule) values ('self', 'renamed from self'), ('third', 'renamed from signin')`)
	for name, want := range map[string]string{
		"self":  `unknown limit: "self" is renamed from "self", which is itself renamed from self`,
		"third": `unknown limit: "third" is renamed from "signin", which is itself renamed from login`,
	} {
		_, err := conn.Exec(t.Context(), `select headgate.take($1, 'k')`, name)
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Message != want {
			t.Errorf("%s, a name of a name: got %v, want %s", name, err, want)
		}
	}
	mustExec(t, conn, `delete from headgate.limits where name = 'login'`)
	_, err = conn.Exec(t.Context(), `select headgate.take('signin', 'k')`)
	const want = `unknown limit: "login" is not in headgate.limits`
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Message != want {
		t.Errorf("a name of a limit that was removed: got %v", err)
	}
}
