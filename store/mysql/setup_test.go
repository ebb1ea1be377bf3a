package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	osexec "os/exec"
	"strings"
	"sync"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// TestConcurrentMigrateIsIdempotent checks that four stores may migrate at once, and that Migrate then does nothing.
func TestConcurrentMigrateIsIdempotent(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := mysql.Open(context.Background(), url, nil)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			defer s.Close()
			if _, err := s.Migrate(context.Background()); err != nil {
				t.Errorf("migrate: %v", err)
			}
		})
	}
	wg.Wait()
	report, err := openAndMigrate(t, url).Migrate(t.Context())
	if err != nil || len(report) != 1 || !strings.Contains(report[0], "nothing to do") {
		t.Errorf("Migrate again: got %q, %v; want nothing to do", report, err)
	}
}

// TestTheClientExecutesTheSchema checks that the mysql client executes the printed schema with two character sets, and
// that Migrate then has nothing to do but to install the articles' procedures, if it is asked to.
func TestTheClientExecutesTheSchema(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	addr, port, _ := strings.Cut(host, ":")
	path := dbtest.Program(t, "mariadb", "mariadb-client")
	for _, charset := range []string{"gbk", "latin1"} {
		cmd := osexec.CommandContext(t.Context(), path, "--no-defaults", "--default-character-set="+charset, "-uroot",
			"-h"+addr, "-P"+port, name)
		cmd.Stdin = strings.NewReader(mysql.Schema())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	expectSessionSettings(t, url)
	withoutArticles, withArticles := mysql.New(openMultiDB(t, url), nil), openStore(t, url)
	for i, s := range []*mysql.Store{withoutArticles, withArticles, withArticles} {
		want := map[int]string{0: "nothing to do", 1: "installed the articles' procedures", 2: "nothing to do"}[i]
		report, err := s.Migrate(t.Context())
		if err != nil || len(report) != 1 || !strings.Contains(report[0], want) {
			t.Errorf("Migrate %d: got %q, %v; want %s", i, report, err, want)
		}
	}
	if got, err := callTake(t, openPlainDB(t, url), "headgate_take", "token-bucket 1/s", "k", "1"); err != nil ||
		got.allowed != 1 {
		t.Errorf("headgate_take: got %+v, %v; want allowed 1", got, err)
	}
}

// expectSessionSettings checks that routines and views have the character set, the collation and the SQL mode of a
// migration, whatever settings the session had that created them.
func expectSessionSettings(t *testing.T, url string) {
	t.Helper()
	rows, err := openPlainDB(t, url).QueryContext(t.Context(), `
		SELECT DISTINCT CONCAT_WS(' ', character_set_client, collation_connection, sql_mode)
		FROM information_schema.routines WHERE routine_schema = DATABASE()
		UNION SELECT DISTINCT CONCAT_WS(' ', character_set_client, collation_connection,
			'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION')
		FROM information_schema.views WHERE table_schema = DATABASE()`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var settings string
		if err := rows.Scan(&settings); err != nil {
			t.Fatal(err)
		}
		got = append(got, settings)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if want := "utf8mb4 utf8mb4_bin STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"; len(got) != 1 || got[0] != want {
		t.Errorf("got the session settings %q, want %s", got, want)
	}
}

// TestSetUpErrorsAreClear checks the classes of errors of a missing or a newer schema, of missing rights, and of wrong
// URLs. The error of a charge names the remedy, or the state of the schema. No error of a URL has the password.
func TestSetUpErrorsAreClear(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	admin := openPlainDB(t, url)
	limit := headgate.MustParse("token-bucket 1/s")
	s, err := mysql.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := newLimiter(s).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrSetup) ||
		!strings.Contains(err.Error(), "headgate migrate") {
		t.Errorf("no schema: got %v, want ErrSetup with headgate migrate", err)
	}
	openAndMigrate(t, url)

	name := url[strings.LastIndex(url, "/")+1:]
	user := "u" + strings.TrimPrefix(name, "headgate_test")
	createUser(t, admin, user, "right")
	mustExec(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON "+name+".* TO "+user)
	urlWithPassword := func(password string) string { return strings.Replace(url, "root@", user+":"+password+"@", 1) }
	if _, err := mysql.Open(t.Context(), urlWithPassword("secret"), nil); !errors.Is(err, store.ErrSetup) ||
		strings.Contains(fmt.Sprint(err), "secret") {
		t.Errorf("wrong password: got %v, want ErrSetup without the password", err)
	}
	userStore, err := mysql.Open(t.Context(), urlWithPassword("right"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer userStore.Close()
	if d, err := newLimiter(userStore).Allow(t.Context(), limit, "k"); err != nil || !d.Allowed {
		t.Errorf("a user who may only read and write rows: got %+v, %v; want it allowed", d, err)
	}
	mustExec(t, admin, "DELETE FROM headgate_installed")
	if _, err := userStore.Migrate(t.Context()); !errors.Is(err, store.ErrSetup) {
		t.Errorf("Migrate without the right to create: got %v, want ErrSetup", err)
	}
	mustExec(t, admin, "REPLACE INTO headgate_installed (only_one, state, revision, fingerprint, digest, names) VALUES (1, 999, 999, '', '', '')")
	if _, err := newLimiter(s).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrSchemaNewer) ||
		!strings.Contains(err.Error(), "999") {
		t.Errorf("a newer schema: got %v, want ErrSchemaNewer with 999", err)
	}
	if _, err := s.Migrate(t.Context()); !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("Migrate of a newer schema: got %v, want ErrSchemaNewer", err)
	}
	for _, tt := range []struct {
		url  string
		want error
	}{
		{"mysql://nobody:secret@127.0.0.1:1/x", store.ErrUnavailable},
		{strings.Replace(url, name, "no_such_database", 1), store.ErrSetup},
		{"mysql://u:secret%zz@127.0.0.1/x", store.ErrInvalid},
		{"mysql://u:secret@127.0.0.1/x?pool_max_conns=0", store.ErrInvalid},
		{"postgres://u:secret@127.0.0.1/x", store.ErrInvalid},
		{url + "?Password=secret", store.ErrInvalid},
		{url + "?PASSWD=secret%40", store.ErrInvalid},
		{url + "?db_password=secret%40", store.ErrInvalid},
		{url + "?User=root&ssl-password=%27secret", store.ErrInvalid},
		{url + "?passphrase=secret%40", store.ErrInvalid},
		{url + "?pool_max_con=8", store.ErrSetup}, // and not ErrUnavailable, which would make the caller wait
		{url + "?sql_mode=none", store.ErrSetup},
		{url + "?version=1", store.ErrSetup},
		{url + "?lock_wait_timeout=soon", store.ErrSetup},
	} {
		_, err := mysql.Open(t.Context(), tt.url, nil)
		if !errors.Is(err, tt.want) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: got %v, want %v and no password", tt.url, err, tt.want)
		}
	}
}

// TestOpenTimesOutAtASilentServer checks that Open returns ErrUnavailable after its timeout if a server accepts the
// connection and sends nothing, like a server that hangs, or a proxy whose server is away.
func TestOpenTimesOutAtASilentServer(t *testing.T) {
	t.Parallel()
	silentListener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silentListener.Close()
	openErr := make(chan error, 1)
	go func() {
		_, err := mysql.Open(context.Background(), "mysql://u@"+silentListener.Addr().String()+"/db?timeout=50ms", nil)
		openErr <- err
	}()
	if err := await.Receive(t, "the error of Open", openErr); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

// TestNewNeedsMultiStatements checks that a store over a pool without multiStatements returns ErrSetup that names the
// option.
func TestNewNeedsMultiStatements(t *testing.T) {
	t.Parallel()
	s := mysql.New(openPlainDB(t, migrated.MariaDB(t)), nil)
	_, err := newLimiter(s).Allow(t.Context(), headgate.MustParse("token-bucket 1/s"), "k")
	if !errors.Is(err, store.ErrSetup) || !strings.Contains(err.Error(), "multiStatements=true") {
		t.Errorf("got %v, want ErrSetup with multiStatements=true", err)
	}
}

// openMultiDB opens a pool with multiStatements, which mysql.New needs.
func openMultiDB(tb testing.TB, url string, options ...string) *sql.DB {
	tb.Helper()
	return openDB(tb, url, append(options, "multiStatements=true"))
}

// TestInTxCommitsAndRollsBackWithTheCaller checks that a charge of InTx counts if the caller's transaction is
// committed, and not if it is rolled back, and that Close leaves the caller's pool open.
func TestInTxCommitsAndRollsBackWithTheCaller(t *testing.T) {
	t.Parallel()
	db := openMultiDB(t, migrated.MariaDB(t))
	s := mysql.New(db, nil)
	limit := headgate.MustParse("token-bucket 1/1h burst 2")
	for _, commit := range []bool{false, true} {
		tx := beginTx(t, db)
		if d, err := newLimiter(s.InTx(tx)).Allow(t.Context(), limit, "k"); err != nil || !d.Allowed {
			t.Fatalf("got %+v, %v; want it allowed", d, err)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	d, err := newLimiter(s).Check(t.Context(), headgate.Charge{Limit: limit, Key: "k"})
	if err != nil || !d.Allowed || d.Remaining != 1 {
		t.Errorf("got %+v, %v; want remaining 1, after the committed charge alone", d, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("the caller's pool was closed: %v", err)
	}
}

// TestErrorClasses checks the classes of common errors of servers, and which versions of servers are accepted.
func TestErrorClasses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		number  uint16
		message string
		want    error
	}{
		{1213, "Deadlock found", store.ErrConflict},
		{1205, "Lock wait timeout", store.ErrConflict},
		{1020, "Record has changed", store.ErrConflict},
		{9007, "Write conflict", store.ErrConflict},
		{1105, "pessimistic lock retry limit reached", store.ErrConflict},
		{1105, "lock wait timeout", store.ErrConflict},
		{1105, "context canceled", store.ErrUnknownOutcome},
		{3101, "Plugin instructed the server to rollback the current transaction.", store.ErrConflict},
		{1180, "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT", store.ErrConflict},
		{1305, "SAVEPOINT headgate does not exist", store.ErrConflict},
		{1305, "PROCEDURE headgate_take does not exist", store.ErrSetup},
		{1290, "--read-only", store.ErrReadOnly},
		{1047, "WSREP has not yet prepared node", store.ErrUnavailable},
		{1040, "Too many connections", store.ErrUnavailable},
		{1180, "Got error during COMMIT", store.ErrUnknownOutcome},
		{1317, "Query execution was interrupted", store.ErrUnknownOutcome},
		{1406, "Data too long", store.ErrInvalid},
		{1045, "Access denied", store.ErrSetup},
		{1146, "Table doesn't exist", store.ErrSetup},
		{1142, "command denied", store.ErrSetup},
	} {
		err := mysql.Classify(&driver.MySQLError{Number: tt.number, Message: tt.message})
		if !errors.Is(err, tt.want) {
			t.Errorf("%d %s: got %v, want %v", tt.number, tt.message, err, tt.want)
		}
	}
	for version, accepted := range map[string]bool{
		"10.11.19-MariaDB-0+deb12u1": true, "10.6.1-MariaDB": true, "10.5.9-MariaDB": false,
		"5.5.5-10.4.1-MariaDB": false,
		"8.0.36":               true, "9.1.0": true, "5.7.44-log": false, "8.0.11-TiDB-v8.5.0": true,
	} {
		err := mysql.CheckVersion(version)
		if (err == nil) != accepted || err != nil && !errors.Is(err, store.ErrSetup) {
			t.Errorf("%s: got %v, want accepted %v, or ErrSetup", version, err, accepted)
		}
	}
}

// TestProceduresWithoutTimeZoneTables checks that headgate_compile and headgate_bounds know UTC at a server without
// time zone tables, and return an error for other zones. The user may only create, alter and call procedures, and the
// server has a binary log.
func TestProceduresWithoutTimeZoneTables(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDBAt(t, packageServer(t))[0]
	name := url[strings.LastIndex(url, "/")+1:]
	root := openPlainDB(t, url)
	createUser(t, root, "someone", "")
	mustExec(t, root, "GRANT CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON "+name+".* TO someone")
	conn := openSession(t, strings.Replace(url, "root@", "someone@", 1))
	makeProcedures(t, conn)
	const now = 1_800_000_000_000_000
	if b, err := callBounds(conn, "day", "UTC", now); err != nil || b[1] > now || b[2]-b[1] != 86400e6 {
		t.Errorf("headgate_bounds for UTC: got %v, %v; want a day that contains now", b, err)
	}
	if canonical, _, _, zone, err := callCompile(conn, "fixed-window 5/day UTC"); err != nil ||
		canonical != "fixed-window 5/day" || zone.String != "UTC" {
		t.Errorf("headgate_compile for UTC: got %q, zone %v, %v; want fixed-window 5/day of UTC", canonical, zone, err)
	}
	const want = "time zone: the server does not know Europe/Berlin: load its time zone tables " +
		"(mariadb-tzinfo-to-sql or mysql_tzinfo_to_sql)"
	_, boundsErr := callBounds(conn, "day", "Europe/Berlin", now)
	_, _, _, _, compileErr := callCompile(conn, "fixed-window 5/day Europe/Berlin")
	for _, err := range []error{boundsErr, compileErr} {
		if message, ok := signalText(err); !ok || message != want {
			t.Errorf("Europe/Berlin: got %v, want %s", err, want)
		}
	}
}
