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

func TestMigrateIsIdempotentAndMayBeDoneByManyAtOnce(t *testing.T) {
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
	report, err := openAt(t, url).Migrate(t.Context())
	if err != nil || len(report) != 1 || !strings.Contains(report[0], "nothing to do") {
		t.Errorf("again: %q, %v", report, err)
	}
}

// TestSchemaIsWhatMigrateDoes feeds the printed schema to the mysql client.
func TestSchemaIsWhatMigrateDoes(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	addr, port, _ := strings.Cut(host, ":")
	path := dbtest.Program(t, "mariadb", "mariadb-client")
	for _, set := range []string{"gbk", "latin1"} {
		client := osexec.CommandContext(t.Context(), path, "--no-defaults", "--default-character-set="+set, "-uroot",
			"-h"+addr, "-P"+port, name)
		client.Stdin = strings.NewReader(mysql.Schema())
		if out, err := client.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	expectFixedSession(t, url)
	s := openAt(t, url)
	report, err := s.Migrate(t.Context())
	if err != nil || len(report) != 1 || !strings.Contains(report[0], "nothing to do") {
		t.Errorf("%q, %v", report, err)
	}
	if got, err := callTake(t, plainDB(t, url), "headgate_take", "token-bucket 1/s", "k", "1"); err != nil ||
		got.allowed != 1 {
		t.Errorf("headgate_take: %+v, %v", got, err)
	}
}

// expectFixedSession checks that routines and views keep fixed session settings, and not those of the session that made
// them.
func expectFixedSession(t *testing.T, url string) {
	t.Helper()
	rows, err := plainDB(t, url).QueryContext(t.Context(), `
		SELECT DISTINCT CONCAT_WS(' ', character_set_client, collation_connection, sql_mode)
		FROM information_schema.routines WHERE routine_schema = DATABASE()
		UNION SELECT DISTINCT CONCAT_WS(' ', character_set_client, collation_connection,
			'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION')
		FROM information_schema.views WHERE table_schema = DATABASE()`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var made []string
	for rows.Next() {
		var how string
		if err := rows.Scan(&how); err != nil {
			t.Fatal(err)
		}
		made = append(made, how)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if want := "utf8mb4 utf8mb4_bin STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"; len(made) != 1 || made[0] != want {
		t.Errorf("made under %q, want %s", made, want)
	}
}

func TestSetUpErrorsAreClear(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	admin := plainDB(t, url)
	limit := headgate.MustParse("token-bucket 1/s")
	s, err := mysql.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := limiter(s).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrSetup) ||
		!strings.Contains(err.Error(), "headgate migrate") {
		t.Errorf("no schema: %v", err)
	}
	openAt(t, url)

	name := url[strings.LastIndex(url, "/")+1:]
	user := "u" + strings.TrimPrefix(name, "headgate_test")
	newUser(t, admin, user, "right")
	run(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON "+name+".* TO "+user)
	as := func(password string) string { return strings.Replace(url, "root@", user+":"+password+"@", 1) }
	if _, err := mysql.Open(t.Context(), as("secret"), nil); !errors.Is(err, store.ErrSetup) ||
		strings.Contains(fmt.Sprint(err), "secret") {
		t.Errorf("wrong password: %v", err)
	}
	ordinary, err := mysql.Open(t.Context(), as("right"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ordinary.Close()
	if d, err := limiter(ordinary).Allow(t.Context(), limit, "k"); err != nil || !d.Allowed {
		t.Errorf("a user who may only read and write rows: %+v, %v", d, err)
	}
	if _, err := admin.ExecContext(t.Context(), "DELETE FROM headgate_installed"); err != nil {
		t.Fatal(err)
	}
	if _, err := ordinary.Migrate(t.Context()); !errors.Is(err, store.ErrSetup) {
		t.Errorf("migrate without the right to create: %v", err)
	}
	if _, err := admin.ExecContext(t.Context(),
		"REPLACE INTO headgate_installed (only_one, state, revision, fingerprint, digest, names) VALUES (1, 999, 999, '', '', '')"); err != nil {
		t.Fatal(err)
	}
	if _, err := limiter(s).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrSchemaNewer) ||
		!strings.Contains(err.Error(), "999") {
		t.Errorf("a newer schema: %v", err)
	}
	if _, err := s.Migrate(t.Context()); !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("migrate a newer schema: %v", err)
	}
	for _, tt := range []struct {
		url string
		is  error
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
		{url + "?pool_max_con=8", store.ErrSetup}, // to wait for the server would not help
		{url + "?sql_mode=none", store.ErrSetup},
		{url + "?version=1", store.ErrSetup},
		{url + "?lock_wait_timeout=soon", store.ErrSetup},
	} {
		_, err := mysql.Open(t.Context(), tt.url, nil)
		if !errors.Is(err, tt.is) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: got %v, want %v and no password", tt.url, err, tt.is)
		}
	}
}

// TestAServerThatSaysNothing uses a server that accepts connections and sends nothing, like one that hangs, or a proxy
// whose server is away.
func TestAServerThatSaysNothing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answered := make(chan error, 1)
	go func() {
		_, err := mysql.Open(context.Background(), "mysql://u@"+l.Addr().String()+"/db?timeout=50ms", nil)
		answered <- err
	}()
	if err := await.Receive(t, "the end of the attempt", answered); !errors.Is(err, store.ErrUnavailable) {
		t.Error(err)
	}
}

func TestNewNeedsSeveralStatementsAtOnce(t *testing.T) {
	t.Parallel()
	s := mysql.New(plainDB(t, migrated.MariaDB(t)), nil)
	_, err := limiter(s).Allow(t.Context(), headgate.MustParse("token-bucket 1/s"), "k")
	if !errors.Is(err, store.ErrSetup) || !strings.Contains(err.Error(), "multiStatements=true") {
		t.Errorf("got %v", err)
	}
}

// pool returns a caller's own pool.
func pool(tb testing.TB, url string, options ...string) *sql.DB {
	tb.Helper()
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	db, err := sql.Open("mysql", "root@tcp("+host+")/"+name+"?"+
		strings.Join(append(options, "multiStatements=true"), "&"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

// TestInTxChargesWithTheCallersWork commits and rolls back: the charge must go with the transaction.
func TestInTxChargesWithTheCallersWork(t *testing.T) {
	t.Parallel()
	db := pool(t, migrated.MariaDB(t))
	s := mysql.New(db, nil)
	limit := headgate.MustParse("token-bucket 1/1h burst 2")
	for _, commit := range []bool{false, true} {
		tx := beginTx(t, db)
		if d, err := limiter(s.InTx(tx)).Allow(t.Context(), limit, "k"); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	d, err := limiter(s).Check(t.Context(), headgate.Charge{Limit: limit, Key: "k"})
	if err != nil || !d.Allowed || d.Remaining != 1 { // one was committed
		t.Errorf("%+v, %v; want the committed charge to count, and no other", d, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("the caller's pool was closed: %v", err)
	}
}

func TestErrorClasses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		number  uint16
		message string
		is      error
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
		if !errors.Is(err, tt.is) {
			t.Errorf("%d %s: %v, want %v", tt.number, tt.message, err, tt.is)
		}
	}
	for version, ok := range map[string]bool{
		"10.11.19-MariaDB-0+deb12u1": true, "10.6.1-MariaDB": true, "10.5.9-MariaDB": false,
		"5.5.5-10.4.1-MariaDB": false,
		"8.0.36":               true, "9.1.0": true, "5.7.44-log": false, "8.0.11-TiDB-v8.5.0": true,
	} {
		if err := mysql.CheckVersion(version); (err == nil) != ok || err != nil && !errors.Is(err, store.ErrSetup) {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// TestAnOrdinaryUserOfAPlainServer uses a user who may only make procedures, at a server that writes a binary log and
// has no time zone tables.
func TestAnOrdinaryUserOfAPlainServer(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDBAt(t, ownServer(t))[0]
	name := url[strings.LastIndex(url, "/")+1:]
	root := plainDB(t, url)
	newUser(t, root, "someone", "")
	run(t, root, "GRANT CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON "+name+".* TO someone")
	conn := openSession(t, strings.Replace(url, "root@", "someone@", 1))
	makeProcedures(t, conn)
	const now = 1_800_000_000_000_000
	if b, err := callBounds(conn, "day", "UTC", now); err != nil || b[1] > now || b[2]-b[1] != 86400e6 {
		t.Errorf("UTC: %v %v", b, err)
	}
	if canonical, _, _, zone, err := callCompile(conn, "fixed-window 5/day UTC"); err != nil ||
		canonical != "fixed-window 5/day" || zone.String != "UTC" {
		t.Errorf("UTC: %q %v %v", canonical, zone, err)
	}
	const want = "time zone: the server does not know Europe/Berlin: load its time zone tables " +
		"(mariadb-tzinfo-to-sql or mysql_tzinfo_to_sql)"
	_, err1 := callBounds(conn, "day", "Europe/Berlin", now)
	_, _, _, _, err2 := callCompile(conn, "fixed-window 5/day Europe/Berlin")
	for _, err := range []error{err1, err2} {
		if message, ok := signalText(err); !ok || message != want {
			t.Errorf("a named zone: %v, want %s", err, want)
		}
	}
}
