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

// createRoleUser creates a user with a role, and returns the user's name and the URL with that user.
func createRoleUser(t *testing.T, s *mysql.Store, url string, role store.Role) (name, userURL string) {
	t.Helper()
	name = string(role) + strings.TrimPrefix(url[strings.LastIndex(url, "/")+1:], "headgate_test")
	createUser(t, openPlainDB(t, url), name, "right")
	if lines, err := s.Grant(t.Context(), role, name); err != nil || len(lines) == 0 {
		t.Fatalf("Grant: got %q, %v; want lines", lines, err)
	}
	return name, strings.Replace(url, "root@", name+":right@", 1)
}

// errorNumber returns the number of an error of the server; 0 for any other error.
func errorNumber(err error) uint16 {
	my, _ := errors.AsType[*driver.MySQLError](err)
	if my == nil {
		return 0
	}
	return my.Number
}

// defineRoleLimits defines the limits that appCalls use.
func defineRoleLimits(t *testing.T, s *mysql.Store) {
	t.Helper()
	defineItems(t, s, store.Item{Name: "api", Text: "fixed-window 100/30d"},
		store.Item{Name: "jobs", Text: "concurrency 5 ttl 1h"},
		store.Item{Name: "log", Text: "sliding-log 5/30d history 60d"},
		store.Item{Kind: store.KindOverride, Name: "api", Key: "big", Text: "fixed-window 900/30d"})
}

// appCalls are calls that the role app may make, with the beginnings of their answers.
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
	{`CALL headgate_take_first('[{"limit": "api", "key": "m", "cost": 2}]')`, "ordinality=1 allowed=1"},
	{`CALL headgate_take_first_once('4', '[{"limit": "api", "key": "m", "cost": 2}]', 0)`, "ordinality=1 allowed=1"},
	{`CALL headgate_extend_all('3', '[{"limit": "api", "key": "m", "cost": 2}]', 0)`, "ordinality=1 allowed=1"},
	{`CALL headgate_settle_all('3', '[{"limit": "api", "key": "m", "cost": 2}]')`, "ordinality=1 key=m corrected=0.0"},
	{`CALL headgate_reserve_all('[{"limit": "api", "key": "m", "cost": 2}]', 1, NULL, 0)`, "ordinality=1 allowed=1"},
	{"CALL headgate_take_up_to('api', 'm', 200)", "allowed=1"},
	{"CALL headgate_limit_of('api', 'big')", "rule=fixed-window 900/30d"},
	{"CALL check_velocity(1, 'k')", "blocked=0"},
	{"CALL request_token('b')", "granted=1"},
}

// TestRoleApp checks that a user with the role app may make all appCalls, inside and outside a transaction, renew and
// release a lease, but not make the calls of expectAppRefused, and that a session's own clock does not count.
func TestRoleApp(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openStore(t, url)
	defineRoleLimits(t, s)
	root := openSession(t, url)
	mustExec(t, root, "INSERT INTO headgate_zones (id, rate, window_seconds) VALUES (1, 1, 3600); "+
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 1, 3600)")
	_, userURL := createRoleUser(t, s, url, store.RoleApp)
	app := openSession(t, userURL)
	for _, inTx := range []bool{true, false} {
		if inTx {
			setReadCommitted(t, app)
			mustExec(t, app, "START TRANSACTION")
		}
		for _, tt := range appCalls {
			if got := rowText(t, app, tt.text); !strings.HasPrefix(got, tt.want) {
				t.Errorf("%s: got %s, want %s (in a transaction: %t)", tt.text, got, tt.want, inTx)
			}
		}
		if inTx {
			mustExec(t, app, "ROLLBACK")
		}
	}
	maxNumber := rowText(t, root, "SELECT MAX(number) AS n FROM headgate_entries WHERE limit_name = 'jobs'")
	lease := strings.TrimPrefix(maxNumber, "n=")
	for _, procedure := range []string{"renew", "release"} {
		if got := rowText(t, app, "CALL headgate_"+procedure+"('jobs', 'k', "+lease+")"); got != "done=1" {
			t.Errorf("%s: got %s, want done=1", procedure, got)
		}
	}
	expectAppRefused(t, app, fmt.Sprint(mysql.Revision))

	// A session may set its clock, but decisions use the server's.
	for _, call := range []string{"take('log', 'k', 5)", `take_all('[{"limit": "log", "key": "k", "cost": 5}]')`} {
		if _, err := app.ExecContext(t.Context(), "SET timestamp = 4000000000"); err != nil {
			t.Logf("SET timestamp: %v", err)
		}
		if got := rowText(t, app, "CALL headgate_"+call); !strings.Contains(got, "allowed=0") {
			t.Errorf("%s with a session clock years ahead: got %s, want allowed=0", call, got)
		}
	}
	if _, err := app.ExecContext(t.Context(), "SET timestamp = 4000000000"); err != nil {
		t.Logf("SET timestamp: %v", err)
	}
	if got := rowText(t, app, "CALL request_token('b')"); !strings.HasPrefix(got, "granted=0") {
		t.Errorf("a token with a session clock years ahead: got %s, want granted=0", got)
	}
	history := "SELECT COUNT(*) AS n FROM headgate_history WHERE limit_name = 'log' AND `key` = 'k'"
	if got := rowText(t, root, history); got != "n=3" {
		t.Errorf("headgate_history: got %s, want n=3", got)
	}
}

// expectAppRefused checks that the role app gets error 1142 for a table, 1370 for a procedure, and 1644 for a rule in
// place of the name of a limit.
func expectAppRefused(t *testing.T, app *sql.Conn, revision string) {
	t.Helper()
	for want, calls := range map[uint16][]string{
		1370: {
			"CALL headgate_ask_N(1, 'api', 'k', 1, 0, 1000, 1000000, 1000, 1, 0, 0, 1, 0, '', 0, 0, 0, 0, 0, 0)",
			"CALL headgate_verb_N(6, 0, 'api', 'k', 1, NULL, 0, 0, 0, '')",
			"CALL headgate_all_N(1, '[]', NULL, 0, 0)",
			"CALL headgate_group_N(1, 1, '[]', '', 0, 0)",
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
				t.Errorf("%s: got %v, want error %d", text, err, want)
			}
		}
	}
}

// TestRoleService checks that a user with the role service may charge, block, reset, sweep, list, write the catalog and
// call procedures, and that Migrate fails for this user, who may create no table.
func TestRoleService(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openStore(t, url)
	name, userURL := createRoleUser(t, s, url, store.RoleService)
	serviceStore := openStore(t, userURL)
	defineRoleLimits(t, serviceStore)
	l := newLimiter(serviceStore)
	limit, leases := headgate.MustParse("sliding-log 5/1h history 30d"), headgate.MustParse("concurrency 1 ttl 1h")
	if d, err := l.Allow(t.Context(), limit, "k"); err != nil || !d.Allowed {
		t.Errorf("Allow: got %+v, %v; want it allowed", d, err)
	}
	charge := headgate.Charge{Limit: limit, Key: "k"}
	if d, err := l.Once("id", time.Hour).Take(t.Context(), charge); err != nil || !d.Allowed {
		t.Errorf("Once: got %+v, %v; want it allowed", d, err)
	}
	lease, err := l.Acquire(t.Context(), headgate.Charge{Limit: leases, Key: "k"})
	if err != nil || lease == nil {
		t.Fatalf("Acquire: got %v, %v; want a lease", lease, err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
	}
	if _, err := l.Block(t.Context(), limit, "k", time.Hour, "a robot"); err != nil {
		t.Errorf("Block: %v", err)
	}
	if _, err := l.Reset(t.Context(), limit, "k"); err != nil {
		t.Errorf("Reset: %v", err)
	}
	if _, err := serviceStore.Sweep(t.Context(), 10); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	if cells, _, err := serviceStore.Cells(t.Context(), store.Query{}); err != nil || len(cells) == 0 {
		t.Errorf("Cells: got %v, %v; want some", cells, err)
	}
	entries, err := serviceStore.Entries(t.Context(), law.Cell{Limit: limit.Name(), Key: "k"}, 9)
	if err != nil || len(entries) == 0 {
		t.Errorf("Entries: got %v, %v; want some", entries, err)
	}
	conn := openSession(t, userURL)
	mustExec(t, conn, "INSERT INTO headgate_zones (id, rate, window_seconds) VALUES (1, 1, 3600); "+
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 1, 3600); "+
		"UPDATE headgate_limits SET description = 'x' WHERE name = 'api'")
	for _, tt := range append(slices.Clone(appCalls), []struct{ text, want string }{
		{"CALL headgate_take('fixed-window 1/1h', 'k', 1)", "allowed=1"},
		{"CALL headgate_reset('fixed-window 1/1h', 'k')", "existed=1"},
		{"CALL headgate_sweep(10)", "removed="},
	}...) {
		if got := rowText(t, conn, tt.text); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.text, got, tt.want)
		}
	}
	versions := versionsOf(t, serviceStore)
	if n := len(versions); n < 2 || !strings.HasPrefix(versions[n-1].Author, name+"@") {
		t.Errorf("got versions %+v, want two or more, the last by %s", versions, name)
	}
	if report, err := serviceStore.Migrate(t.Context()); !errors.Is(err, store.ErrSetup) {
		t.Errorf("Migrate: got %q, %v; want ErrSetup", report, err)
	}
	if _, err := conn.ExecContext(t.Context(), "CREATE TABLE x (y INT)"); errorNumber(err) != 1142 {
		t.Errorf("CREATE TABLE: got %v, want error 1142", err)
	}
}

// TestGrantRefusesUnknownUsersAndRoles checks that Grant returns ErrInvalid for users and roles that do not exist, and
// ErrSetup if its own user may not grant.
func TestGrantRefusesUnknownUsersAndRoles(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openStore(t, url)
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
			t.Errorf("Grant of %s to %q: got %q, %v; want ErrInvalid", tt.role, tt.user, lines, err)
		}
	}
	if got := rowText(t, openPlainDB(t, url), "SELECT COUNT(*) AS n FROM headgate_roles"); got != "n=0" {
		t.Errorf("got %s roles, want n=0", got)
	}
	_, userURL := createRoleUser(t, s, url, store.RoleService)
	if _, err := openStore(t, userURL).Grant(t.Context(), store.RoleApp, "root@localhost"); !errors.Is(err, store.ErrSetup) {
		t.Errorf("Grant by a user without rights: got %v, want ErrSetup", err)
	}
}

// TestMigrateKeepsRoles checks that users keep their roles when Migrate replaces all procedures, which on MySQL drops
// the rights on them, and that a user who was dropped is reported and not created again.
func TestMigrateKeepsRoles(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	url := dbtest.MariaDB(t)
	s := openAndMigrate(t, url)
	defineRoleLimits(t, s)
	name, appURL := createRoleUser(t, s, url, store.RoleApp)
	_, serviceURL := createRoleUser(t, s, url, store.RoleService)
	droppedUser := "gone" + name
	mustExec(t, openSession(t, url), "CREATE USER '"+droppedUser+"'@localhost IDENTIFIED BY 'x'")
	if _, err := s.Grant(t.Context(), store.RoleApp, droppedUser+"@localhost"); err != nil {
		t.Fatal(err)
	}
	mustExec(t, openSession(t, url), "DROP USER '"+droppedUser+"'@localhost")
	report, err := mysql.WithNewerRevision(openStore(t, url)).Migrate(t.Context())
	want := "could not give '" + droppedUser + "'@'localhost' the role app again"
	if err != nil || !strings.Contains(strings.Join(report, "\n"), want) {
		t.Fatalf("Migrate: got %q, %v; want a line with %s", report, err, want)
	}
	app := openSession(t, appURL)
	if got := rowText(t, app, "CALL headgate_take('api', 'k', 1)"); !strings.HasPrefix(got, "allowed=1") {
		t.Errorf("app: got %s, want allowed=1", got)
	}
	if got := rowText(t, openSession(t, serviceURL), "CALL headgate_reset('api', 'k')"); got != "existed=1" {
		t.Errorf("service: got %s, want existed=1", got)
	}
	expectAppRefused(t, app, fmt.Sprint(mysql.Revision+1))
	users := rowText(t, openPlainDB(t, url), "SELECT COUNT(*) AS n FROM mysql.user WHERE user = '"+droppedUser+"'")
	if users != "n=0" {
		t.Errorf("got %s users with the dropped name, want n=0", users)
	}
}

// TestMigrateRestoresCallsAfterTheOwnerWasDropped checks that calls fail after the user who has migrated was dropped,
// until another user drops a procedure and migrates, which makes all procedures again, as docs/sql.md says.
func TestMigrateRestoresCallsAfterTheOwnerWasDropped(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	url := dbtest.MariaDB(t)
	root := openSession(t, url)
	name := url[strings.LastIndex(url, "/")+1:]
	user := "o" + strings.TrimPrefix(name, "headgate_test")
	mustExec(t, root, "CREATE USER "+user+" IDENTIFIED BY 'right'; GRANT ALL ON "+name+".* TO "+user)
	if _, err := openStore(t, strings.Replace(url, "root@", user+":right@", 1)).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, url)
	defineRoleLimits(t, s)
	_, appURL := createRoleUser(t, s, url, store.RoleApp)
	mustExec(t, root, "DROP USER "+user)
	app := openSession(t, appURL)
	if _, err := app.ExecContext(t.Context(), "CALL headgate_take('api', 'k', 1)"); errorNumber(err) != 1449 { // no such definer
		t.Errorf("without the owner: got %v, want error 1449", err)
	}
	mustExec(t, root, "DROP PROCEDURE headgate_check")
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := rowText(t, openSession(t, appURL), "CALL headgate_take('api', 'k', 1)"); !strings.HasPrefix(got, "allowed=1") {
		t.Errorf("after Migrate by another user: got %s, want allowed=1", got)
	}
}
