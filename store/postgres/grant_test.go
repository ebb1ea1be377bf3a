package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/storetest"
)

// createUser makes a user, grants it a role of Headgate, and returns its name and its URL.
func createUser(t *testing.T, conn *pgx.Conn, s *postgres.Store, role store.Role) (user, url string) {
	t.Helper()
	user, url = createOrdinaryRole(t, conn)
	lines, err := s.Grant(t.Context(), role, user)
	if err != nil || len(lines) < 2 || !strings.Contains(lines[0], user) {
		t.Fatalf("Grant: got %q, %v; want at least 2 lines, the first with %s", lines, err, user)
	}
	return user, url
}

// sqlstateOf returns the SQLSTATE of an error, and "" without an error. Another error fails the test.
func sqlstateOf(t *testing.T, err error) string {
	t.Helper()
	pg, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok:
		return pg.Code
	case err != nil:
		t.Fatal(err)
	}
	return ""
}

// roleSetup makes limits, a zone, a bucket and two cells for the tests of roles.
const roleSetup = `insert into headgate.limits (name, rule) values ('login', 'token-bucket 1000/1h'), ('held', 'concurrency 100 ttl 1h');
	insert into headgate.zones (id, rate, window_seconds) values (1, 5, 60);
	insert into headgate.buckets (id, capacity, refill_seconds) values ('b', 5, 60);
	select headgate.take('login', 'k'), headgate.take('token-bucket 1000/1h', 'k')`

// appCalls are calls that role app may make. Some need earlier calls of the list.
var appCalls = []string{
	`take('login', 'k')`, `check('login', 'k')`, `take_once('i', 'login', 'k')`, `extend('i', 'login', 'k', 2)`, `settle('i', 'login', 'k', 0.5)`,
	`take_once('j', 'login', 'k')`, `cancel('j', 'login', 'k')`, `debit('w', 'login', 'k', 2)`, `reserve('login', 'k', 1, '1 s')`,
	`acquire('held', 'k')`, `renew('held', 'k', 1)`, `release('held', 'k', 1)`, `limit_of('login', 'k')`,
	`take_all(array['login'], '{k}', '{1}')`, `take_all_once('i of all', array['login'], '{k}', '{1}')`,
	`take_first(array['login'], '{k}', '{1}')`, `take_first_once('i of first', array['login'], '{k}', '{1}')`,
	`extend_all('i of all', array['login'], '{k}', '{2}')`, `reserve_all(array['login'], '{k}', '{1}', '1 s')`, `settle_all('i of all', array['login'], '{k}', '{0.5}')`,
	`take_up_to('login', 'k', 2)`, `take_float('login', 'k', 0.5)`, `enforce('login', 'k')`,
}

// TestRoleAppChargesLimitsByNameOnly checks that a user with role app may make appCalls and call check_velocity and
// request_token, and may neither call other functions, nor use limits without a name, nor read or change tables.
func TestRoleAppChargesLimitsByNameOnly(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s := openAt(t, dsn)
	mustExec(t, conn, roleSetup)
	user, url := createUser(t, conn, s, store.RoleApp)
	setRoleSession := connect(t, dsn)
	mustExec(t, setRoleSession, `set role `+user)
	wantStates := map[string]string{ // SQLSTATEs of refused statements
		`select headgate.reset('login', 'k')`: "42501", `select headgate.block('login', 'k', '0')`: "42501",
		`select headgate.attempts('login', 'k')`: "42501", `select headgate.sweep(1)`: "42501",
		`select headgate_internal.take_sums_2(null, null, null, null, null, null, null, null, null, null)`:    "42501",
		`select headgate_internal.apply_2(null, null, null, null, null)`:                                      "42501",
		`select headgate_internal.ask_2(1, 'login', null, 'k', 1, 0, '')`:                                     "42501",
		`select headgate_internal.charge_2(1, 'login', 'k', 1, 0, '', 0, false)`:                              "42501",
		`select headgate_internal.charge_all_2(1, array['unlimited'], '{k}', '{1}', 0, '', 0)`:                "42501",
		`select headgate_internal.ask_again_2(1, null, null, '{k}', '{1}', 0, '', 0, '{0}', 0, '{0}', '{0}')`: "42501",
		`select headgate_internal.write_catalog_2(0, '', '', '[]')`:                                           "42501",
		`select headgate.grant_role('service', session_user::text)`:                                           "42501",
		`select public.rate_limiting_request('k', 1000000)`:                                                   "42501",
		`select * from headgate.limits`:                                                                       "42501",
		`update headgate.limits set rule = 'gcra 9/s'`:                                                        "42501",
		`insert into headgate.limits (name, rule) values ('mine', 'unlimited')`:                               "42501",
		`insert into headgate.catalog (kind, name, key, text) values ('override', 'login', 'k', '9/s')`:       "42501",
		`delete from headgate.catalog`:                                                                        "42501",
		`update headgate.cells set level = 0`:                                                                 "42501",
		`delete from headgate.cells`:                                                                          "42501",
		`insert into headgate.notations (rule) values ('unlimited')`:                                          "42501",
		`update headgate.granted set role = 'service'`:                                                        "42501",
		`create function headgate.mine() returns int language sql as 'select 1'`:                              "42501",
		`do $$ begin execute 'set role postgres'; perform headgate.take('unlimited', 'k'); end $$`:            "42501 or 22023",
	}
	for _, call := range appCalls {
		for name, notation := range map[string]string{
			"'login'": "'token-bucket 1000/1h'", "'held'": "'concurrency 100 ttl 1h'",
		} {
			if strings.Contains(call, name) {
				for _, rule := range []string{notation, "'unlimited'", "'5/s'", "'0'", "''"} {
					wantStates["select * from headgate."+strings.Replace(call, name, rule, 1)] = "42501"
				}
			}
		}
	}
	for session, conn := range map[string]*pgx.Conn{"of the user": connect(t, url), "after set role": setRoleSession} {
		for _, call := range appCalls {
			if _, err := conn.Exec(t.Context(), "select * from headgate."+strings.NewReplacer("'i'", "'i of "+session+"'", "'i of all'", "'all of "+session+"'", "'j'",
				"'j of "+session+"'").Replace(call)); err != nil {
				t.Errorf("%s: %v", call, err)
			}
		}
		for sql, wantState := range wantStates {
			_, err := conn.Exec(t.Context(), sql)
			if got := sqlstateOf(t, err); got == "" || !strings.Contains(wantState, got) {
				t.Errorf("session %s: %s: got %q %v, want %s", session, sql, got, err, wantState)
			}
		}
		for _, sql := range []string{`select public.check_velocity(1, 'k')`, `select public.request_token('b')`} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Errorf("%s: %v", sql, err)
			}
		}
	}
	reader, url := createOrdinaryRole(t, conn)
	mustExec(t, conn, `grant usage on schema headgate to `+reader+`; grant select on headgate.levels, headgate.history to `+
		reader)
	if _, err := connect(t, url).Exec(t.Context(), `select * from headgate.levels, headgate.history`); err != nil {
		t.Errorf("a role that only reads views: got %v, want success", err)
	}
	_, urlWithoutRole := createOrdinaryRole(t, conn)
	for _, sql := range []string{"select * from headgate." + appCalls[0], "select * from public.request_token('b')"} {
		if _, err := connect(t, urlWithoutRole).Exec(t.Context(), sql); sqlstateOf(t, err) != "42501" {
			t.Errorf("a user without a role: %s: got %v, want SQLSTATE 42501", sql, err)
		}
	}
}

// TestRoleServiceMayDoAllButDropFunctions opens a store as a user with role service: the histories of the conformance
// suite, the catalog, InTx and functions for people must work, and it must not drop a function.
func TestRoleServiceMayDoAllButDropFunctions(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	mustExec(t, conn, roleSetup)
	user, url := createUser(t, conn, openAt(t, dsn), store.RoleService)
	storetest.RunHistories(t, func(tb testing.TB) store.Store {
		tb.Helper()
		if _, err := conn.Exec(tb.Context(), `delete from headgate.cells; delete from headgate.entries; delete from headgate.admissions`); err != nil {
			tb.Fatal(err)
		}
		s, err := postgres.Open(tb.Context(), url, nil)
		if err != nil {
			tb.Fatal(err)
		}
		return s
	}, &storetest.Options{Histories: 30})
	s := openUnmigrated(t, url)
	if err := storetest.TryDefine(t.Context(), s, store.Item{Name: "written", Text: "gcra 1/s"}); err != nil {
		t.Errorf("WriteCatalog: %v", err)
	}
	if list, err := s.CatalogVersions(t.Context(), 0, 1); err != nil || !strings.HasSuffix(list[0].Author, user) {
		t.Errorf("CatalogVersions: got %+v, %v; want the author %s", list, err, user)
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		d, err := newLimiter(s.InTx(tx)).Allow(t.Context(), headgate.MustParse("gcra 1/h"), "inTx")
		if err == nil && !d.Allowed {
			err = errors.New("refused")
		}
		return err
	}); err != nil {
		t.Errorf("Allow of InTx: %v", err)
	}
	if _, _, err := s.Cells(t.Context(), store.Query{}); err != nil {
		t.Errorf("Cells: %v", err)
	}
	session := connect(t, url)
	for _, sql := range []string{
		`take('login', 'k')`, `take('token-bucket 7/1h', 'k')`, `take_once('i', 'unlimited', 'k')`, `reset('login', 'k')`,
		`block('login', 'k', '1 s')`, `block('login', 'k', '0 s')`, `attempts('login', 'k')`, `sweep(10)`, `levels`,
		`history`, `limit_of('gcra 1/s', 'k')`,
	} {
		if _, err := session.Exec(t.Context(), "select * from headgate."+sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	for _, sql := range []string{
		`insert into headgate.catalog (kind, name, key, text) values ('override', 'login', 'k', 'gcra 1/s')`,
		`update headgate.limits set rule = 'gcra 2/s' where name = 'login'`, `select public.rate_limiting_request('k')`,
		`delete from headgate.catalog`,
	} {
		if _, err := session.Exec(t.Context(), sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if _, err := session.Exec(t.Context(), `drop function headgate.take`); sqlstateOf(t, err) != "42501" {
		t.Errorf("drop a function: got %v, want SQLSTATE 42501", err)
	}
}

// TestMigrateRestoresGrantsOfRoles checks that Migrate grants again what a user had on functions that were dropped, and
// nothing to a user whose grants were revoked. Grant must refuse unknown roles and users, and public.
func TestMigrateRestoresGrantsOfRoles(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s := openAt(t, dsn)
	mustExec(t, conn, roleSetup)
	for _, role := range []store.Role{store.RoleApp, store.RoleService} {
		user, url := createUser(t, conn, s, role)
		dropFunctions := `drop function headgate.limit_of; drop function headgate.sweep; create function headgate.sweep(p_max int, p_more int)
			returns int language sql as 'select 1'; create function headgate.new() returns int language sql as 'select 1'`
		checkRights := func(event string, want bool) {
			t.Helper()
			session := connect(t, url)
			for _, sql := range []string{`select headgate.limit_of('login', 'k')`, `select headgate.sweep(1)`} {
				_, err := session.Exec(t.Context(), sql)
				wantSuccess := want && (role == store.RoleService || strings.Contains(sql, "limit_of"))
				if wantSuccess != (err == nil) {
					t.Errorf("%s, after %s: %s: got %v, want success %t", role, event, sql, err, wantSuccess)
				}
			}
		}
		checkRights("Grant", true)
		mustExec(t, conn, dropFunctions)
		checkRights("functions were dropped", false)
		if _, err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkRights("Migrate", true)
		mustExec(t, conn, "drop owned by "+user)
		if _, err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkRights("drop owned and Migrate", false)
		mustExec(t, conn, "drop function if exists headgate.sweep(int, int); drop function if exists headgate.new")
	}
	for problem, call := range map[string]func() ([]string, error){
		"role":  func() ([]string, error) { return s.Grant(t.Context(), "owner", "x") },
		"user":  func() ([]string, error) { return s.Grant(t.Context(), store.RoleApp, `no "such"; user`) },
		"user:": func() ([]string, error) { return s.Grant(t.Context(), store.RoleService, "public") },
	} {
		if lines, err := call(); !errors.Is(err, store.ErrInvalid) || !strings.Contains(fmt.Sprint(err), problem) {
			t.Errorf("Grant: got %q, %v; want an error about the %s", lines, err, problem)
		}
	}
}
