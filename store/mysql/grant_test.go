package mysql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// userWith makes a user with a role, and returns the name and the URL.
func userWith(t *testing.T, s *mysql.Store, url string, role store.Role) (name, as string) {
	t.Helper()
	name = string(role) + strings.TrimPrefix(url[strings.LastIndex(url, "/")+1:], "headgate_test")
	newUser(t, plainDB(t, url), name, "right")
	if lines, err := s.Grant(t.Context(), role, name); err != nil || len(lines) == 0 {
		t.Fatalf("%q, %v", lines, err)
	}
	return name, strings.Replace(url, "root@", name+":right@", 1)
}

// errorNumber returns the number of a server's error.
func errorNumber(err error) uint16 {
	my, _ := errors.AsType[*driver.MySQLError](err)
	if my == nil {
		return 0
	}
	return my.Number
}

// roleLimits defines the limits for the tests of roles.
func roleLimits(t *testing.T, s *mysql.Store) {
	t.Helper()
	define(t, s, store.Item{Name: "api", Text: "fixed-window 100/30d"},
		store.Item{Name: "jobs", Text: "concurrency 5 ttl 1h"},
		store.Item{Name: "log", Text: "sliding-log 5/30d history 60d"},
		store.Item{Kind: store.KindOverride, Name: "api", Key: "big", Text: "fixed-window 900/30d"})
}

// appCalls are calls of the role app, with the first column of the answer.
var appCalls = []struct{ text, want string }{
	{"CALL headgate_take('api', 'k', 10)", "allowed=1"},
	{"CALL headgate_take('api', 'big', 800)", "allowed=1"},
	{"CALL headgate_check('api', 'k', 91)", "allowed=0"},
	{"CALL headgate_take('log', 'k', 1)", "allowed=1"},
	{"CALL headgate_take_once('1', 'api', 'k', 5, 0)", "allowed=1"},
	{"CALL headgate_extend('1', 'api', 'k', 5, 0)", "allowed=1"},
	{"CALL headgate_settle('1', 'api', 'k', 4)", "corrected=1.000000000"},
	{"CALL headgate_take_once('2', 'api', 'k', 5, 0)", "allowed=1"},
	{"CALL headgate_cancel('2', 'api', 'k')", "returned=5.000000000"},
	{"CALL headgate_debit('w', 'api', 'w', 2, 0)", "charged=1"},
	{"CALL headgate_reserve('api', 'k', 1, 0, NULL, 0)", "allowed=1"},
	{"CALL headgate_acquire('jobs', 'k', 1)", "acquired=1"},
	{`CALL headgate_take_all('[{"limit": "api", "key": "m", "cost": 2}]')`, "ordinality=1 allowed=1"},
	{`CALL headgate_take_all_once('3', '[{"limit": "api", "key": "m", "cost": 2}]', 0)`, "ordinality=1 allowed=1"},
	{`CALL headgate_extend_all('3', '[{"limit": "api", "key": "m", "cost": 2}]', 0)`, "ordinality=1 allowed=1"},
	{`CALL headgate_settle_all('3', '[{"limit": "api", "key": "m", "cost": 2}]')`, "ordinality=1 key=m corrected=0.0"},
	{`CALL headgate_reserve_all('[{"limit": "api", "key": "m", "cost": 2}]', 1, NULL, 0)`, "ordinality=1 allowed=1"},
	{"CALL headgate_take_up_to('api', 'm', 200)", "allowed=1"},
	{"CALL headgate_limit_of('api', 'big')", "rule=fixed-window 900/30d"},
	{"CALL check_velocity(1, 'k')", "blocked=0"},
	{"CALL request_token('b')", "granted=1"},
}

// TestRoleApp calls all that a user with the role app may call, outside and inside a transaction, and tries all else.
func TestRoleApp(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openUnmigrated(t, url)
	roleLimits(t, s)
	root := openSession(t, url)
	execute(t, root, "INSERT INTO headgate_zones (id, rate, window_seconds) VALUES (1, 1, 3600); "+
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 1, 3600)")
	_, as := userWith(t, s, url, store.RoleApp)
	app := openSession(t, as)
	for _, within := range []bool{true, false} {
		if within {
			setReadCommitted(t, app)
			execute(t, app, "START TRANSACTION")
		}
		for _, tt := range appCalls {
			if got := answerOf(t, app, tt.text); !strings.HasPrefix(got, tt.want) {
				t.Errorf("%s: %s, want %s (within a transaction: %t)", tt.text, got, tt.want, within)
			}
		}
		if within {
			execute(t, app, "ROLLBACK")
		}
	}
	newest := answerOf(t, root, "SELECT MAX(number) AS n FROM headgate_entries WHERE limit_name = 'jobs'")
	lease := strings.TrimPrefix(newest, "n=")
	for _, procedure := range []string{"renew", "release"} {
		if got := answerOf(t, app, "CALL headgate_"+procedure+"('jobs', 'k', "+lease+")"); got != "done=1" {
			t.Errorf("%s: %s", procedure, got)
		}
	}
	refusedForApp(t, app, fmt.Sprint(mysql.Revision))

	// The clock of a session is not the one that counts.
	if _, err := app.ExecContext(t.Context(), "SET timestamp = 4000000000"); err != nil {
		t.Logf("SET timestamp: %v", err)
	}
	if got := answerOf(t, app, "CALL headgate_take('log', 'k', 5)"); !strings.HasPrefix(got, "allowed=0") {
		t.Errorf("with a clock that is years ahead: %s", got)
	}
	if _, err := app.ExecContext(t.Context(), "SET timestamp = 4000000000"); err != nil {
		t.Logf("SET timestamp: %v", err)
	}
	if got := answerOf(t, app, "CALL request_token('b')"); !strings.HasPrefix(got, "granted=0") {
		t.Errorf("a token with a clock that is years ahead: %s", got)
	}
	history := "SELECT COUNT(*) AS n FROM headgate_history WHERE limit_name = 'log' AND `key` = 'k'"
	if got := answerOf(t, root, history); got != "n=2" {
		t.Errorf("the history has %s, want 2", got)
	}
}

// refusedForApp tries statements that the server must refuse: 1142 for a table, 1370 for a procedure.
func refusedForApp(t *testing.T, app *sql.Conn, revision string) {
	t.Helper()
	for want, calls := range map[uint16][]string{
		1370: {
			"CALL headgate_ask_N(1, 'api', 'k', 1, 0, 1000, 1000000, 1000, 1, 0, 0, 1, 0, '', 0, 0, 0, 0, 0, 0)",
			"CALL headgate_verb_N(6, 0, 'api', 'k', 1, NULL, 0, 0, 0, '')",
			"CALL headgate_all_N(1, '[]', NULL, 0, 0)",
			"CALL headgate_group_N(1, 1, '[]', '', 0, 0, 0)",
			"CALL headgate_reset('api', 'k')",
			"CALL headgate_block('api', 'k', 0, '')",
			"CALL headgate_sweep(10)",
			"CALL headgate_attempts('api', 'k', 10)",
			"DROP PROCEDURE headgate_take",
		},
		1142: {
			"UPDATE headgate_limits SET rule = '9/s'",
			"DELETE FROM headgate_catalog",
			"UPDATE headgate_catalog_version SET kinds = 0",
			"UPDATE headgate_cells SET level = 0",
			"DELETE FROM headgate_cells",
			"DELETE FROM headgate_roles",
			"SELECT * FROM headgate_cells",
			"SELECT * FROM headgate_limits",
			"DROP TABLE headgate_cells",
		},
		1644: {
			"CALL headgate_take('9/s', 'k', 1)",
			"CALL headgate_check(' 9/s', 'k', 1)",
			"CALL headgate_limit_of('9/s', 'k')",
			`CALL headgate_take_all('[{"limit": "9/s", "key": "k", "cost": 2}]')`,
			"CALL headgate_take_up_to('9/s', 'k', 1)",
			"CALL headgate_acquire('concurrency 99 ttl 1h', 'k', 1)",
		},
	} {
		for _, text := range calls {
			text = strings.Replace(text, "_N(", "_"+revision+"(", 1)
			if _, err := app.ExecContext(t.Context(), text); errorNumber(err) != want {
				t.Errorf("%s: %v, want error %d", text, err, want)
			}
		}
	}
}

// TestRoleService does all that servers, the command and programs do, as a user with the role service.
func TestRoleService(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openUnmigrated(t, url)
	name, as := userWith(t, s, url, store.RoleService)
	service := openUnmigrated(t, as)
	roleLimits(t, service)
	l := limiter(service)
	limit, leases := headgate.MustParse("sliding-log 5/1h history 30d"), headgate.MustParse("concurrency 1 ttl 1h")
	if d, err := l.Allow(t.Context(), limit, "k"); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	charge := headgate.Charge{Limit: limit, Key: "k"}
	if d, err := l.Once("id", time.Hour).Take(t.Context(), charge); err != nil || !d.Allowed {
		t.Errorf("once: %+v, %v", d, err)
	}
	lease, err := l.Acquire(t.Context(), headgate.Charge{Limit: leases, Key: "k"})
	if err != nil || lease == nil {
		t.Fatalf("acquire: %v", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	if _, err := l.Block(t.Context(), limit, "k", time.Hour, "a robot"); err != nil {
		t.Errorf("block: %v", err)
	}
	if _, err := l.Reset(t.Context(), limit, "k"); err != nil {
		t.Errorf("reset: %v", err)
	}
	if _, err := service.Sweep(t.Context(), 10); err != nil {
		t.Errorf("sweep: %v", err)
	}
	if cells, _, err := service.Cells(t.Context(), store.Query{}); err != nil || len(cells) == 0 {
		t.Errorf("cells: %v, %v", cells, err)
	}
	entries, err := service.Entries(t.Context(), law.Cell{Limit: limit.Name(), Key: "k"}, 9)
	if err != nil || len(entries) == 0 {
		t.Errorf("entries: %v, %v", entries, err)
	}
	conn := openSession(t, as)
	execute(t, conn, "INSERT INTO headgate_zones (id, rate, window_seconds) VALUES (1, 1, 3600); "+
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 1, 3600); "+
		"UPDATE headgate_limits SET description = 'x' WHERE name = 'api'")
	for _, tt := range append(slices.Clone(appCalls), []struct{ text, want string }{
		{"CALL headgate_take('fixed-window 1/1h', 'k', 1)", "allowed=1"},
		{"CALL headgate_reset('fixed-window 1/1h', 'k')", "existed=1"},
		{"CALL headgate_sweep(10)", "removed="},
	}...) {
		if got := answerOf(t, conn, tt.text); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %s, want %s", tt.text, got, tt.want)
		}
	}
	versions := versionsOf(t, service)
	if n := len(versions); n < 2 || !strings.HasPrefix(versions[n-1].Author, name+"@") {
		t.Errorf("versions: %+v", versions)
	}
	if _, err := service.Migrate(t.Context()); err == nil {
		if _, err := conn.ExecContext(t.Context(), "CREATE TABLE x (y INT)"); errorNumber(err) != 1142 {
			t.Errorf("to make a table: %v", err)
		}
	}
}

// TestGrantRefuses grants to users, and grants roles, that do not exist.
func TestGrantRefuses(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openUnmigrated(t, url)
	for _, tt := range []struct {
		role store.Role
		user string
	}{
		{"owner", "root@localhost"},
		{store.RoleApp, "nobody_at_all"},
		{store.RoleService, "nobody@example.com"},
		{store.RoleApp, ""},
		{store.RoleApp, "@localhost"},
		{store.RoleApp, "bob@"},
		{store.RoleApp, `it's\`},
	} {
		if lines, err := s.Grant(t.Context(), tt.role, tt.user); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s to %q: %q, %v", tt.role, tt.user, lines, err)
		}
	}
	if got := answerOf(t, plainDB(t, url), "SELECT COUNT(*) AS n FROM headgate_roles"); got != "n=0" {
		t.Errorf("roles that were not given: %s", got)
	}
	_, as := userWith(t, s, url, store.RoleService)
	if _, err := openUnmigrated(t, as).Grant(t.Context(), store.RoleApp, "root@localhost"); !errors.Is(err, store.ErrSetup) {
		t.Errorf("who may not give rights: %v", err)
	}
}

// TestRolesOutliveAMigration replaces all procedures, which on MySQL drops the rights on them.
func TestRolesOutliveAMigration(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	url := dbtest.MariaDB(t)
	s := openAt(t, url)
	roleLimits(t, s)
	name, as := userWith(t, s, url, store.RoleApp)
	_, service := userWith(t, s, url, store.RoleService)
	gone := "gone" + name
	execute(t, openSession(t, url), "CREATE USER '"+gone+"'@localhost IDENTIFIED BY 'x'")
	if _, err := s.Grant(t.Context(), store.RoleApp, gone+"@localhost"); err != nil {
		t.Fatal(err)
	}
	execute(t, openSession(t, url), "DROP USER '"+gone+"'@localhost")
	report, err := mysql.Newer(openUnmigrated(t, url)).Migrate(t.Context())
	told := "could not give '" + gone + "'@'localhost' the role app again"
	if err != nil || !strings.Contains(strings.Join(report, "\n"), told) {
		t.Fatalf("%q, %v", report, err)
	}
	app := openSession(t, as)
	if got := answerOf(t, app, "CALL headgate_take('api', 'k', 1)"); !strings.HasPrefix(got, "allowed=1") {
		t.Errorf("app: %s", got)
	}
	if got := answerOf(t, openSession(t, service), "CALL headgate_reset('api', 'k')"); got != "existed=1" {
		t.Errorf("service: %s", got)
	}
	refusedForApp(t, app, fmt.Sprint(mysql.Revision+1))
	users := answerOf(t, plainDB(t, url), "SELECT COUNT(*) AS n FROM mysql.user WHERE user = '"+gone+"'")
	if users != "n=0" {
		t.Errorf("the migration has made a user: %s", users)
	}
}

// TestTheUserWhoHasMigratedIsGone drops the user who has migrated: another user drops a procedure and migrates, which
// makes all procedures again, as docs/sql.md says.
func TestTheUserWhoHasMigratedIsGone(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	url := dbtest.MariaDB(t)
	root := openSession(t, url)
	name := url[strings.LastIndex(url, "/")+1:]
	user := "o" + strings.TrimPrefix(name, "headgate_test")
	execute(t, root, "CREATE USER "+user+" IDENTIFIED BY 'right'; GRANT ALL ON "+name+".* TO "+user)
	if _, err := openUnmigrated(t, strings.Replace(url, "root@", user+":right@", 1)).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := openUnmigrated(t, url)
	roleLimits(t, s)
	_, as := userWith(t, s, url, store.RoleApp)
	execute(t, root, "DROP USER "+user)
	app := openSession(t, as)
	if _, err := app.ExecContext(t.Context(), "CALL headgate_take('api', 'k', 1)"); errorNumber(err) != 1449 {
		t.Errorf("without the user: %v, want error 1449", err)
	}
	execute(t, root, "DROP PROCEDURE headgate_check")
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := answerOf(t, openSession(t, as), "CALL headgate_take('api', 'k', 1)"); !strings.HasPrefix(got, "allowed=1") {
		t.Errorf("migrated by another user: %s", got)
	}
}
