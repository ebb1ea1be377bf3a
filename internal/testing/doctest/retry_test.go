package doctest

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	storemysql "github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/postgres"
)

// pairCallers is how many callers charge two keys each at the same time, in the workload "pairs" of examples/sql.
const pairCallers = 8

const sqlPrograms = root + "/examples/sql"

// language is a language in which examples/sql has a program that repeats transactions after conflicts.
type language struct {
	name          string
	mysql         bool
	driverCommand []string // runs the driver in the folder of all programs
}

var languages = []language{
	{"Python on PostgreSQL", false, []string{"/usr/bin/python3", "drive_postgres.py"}},
	{"Python on MariaDB", true, []string{"/usr/bin/python3", "drive_mysql.py"}},
	{"Java on PostgreSQL", false, []string{"java", "-cp", ".:/usr/share/java/postgresql.jar", "Drive"}},
	{"Java on MariaDB", true, []string{"java", "-cp", ".:/usr/share/java/mariadb-java-client.jar", "Drive"}},
	{"Node on PostgreSQL", false, []string{"node", "drive_postgres.mjs"}},
	{"Node on MariaDB", true, []string{"node", "drive_mysql.mjs"}},
}

// copyPrograms copies the programs of examples/sql and their drivers to a folder, and compiles those in Java.
func copyPrograms(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	programs, err := filepath.Glob(sqlPrograms + "/*")
	if err != nil || len(programs) == 0 {
		t.Fatalf("found %q, %v", programs, err)
	}
	for _, path := range programs {
		writeFile(t, filepath.Join(dir, filepath.Base(path)), readFile(t, path))
	}
	drivers, err := filepath.Glob("testdata/retry/*")
	if err != nil || len(drivers) == 0 {
		t.Fatalf("found %q, %v", drivers, err)
	}
	for _, path := range drivers {
		writeFile(t, filepath.Join(dir, filepath.Base(path)), readFile(t, path))
	}
	installRuntimes(t)
	link(t, dir, "node_modules", dbtest.NodeModules(t, "testdata/node"))
	compile := exec.CommandContext(t.Context(), "javac", "Retry.java", "Drive.java")
	compile.Dir = dir
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return dir
}

// driverResult is what a program reports about its calls.
type driverResult struct {
	Admitted map[string]int
	Repeated int // transactions in addition to one for each call
	Errors   []string
}

// run runs the driver of a program: each caller makes so many calls of a workload.
func (l *language) run(t *testing.T, dir, dsn, rule string, callers, calls int, workload string) driverResult {
	t.Helper()
	switch {
	case l.driverCommand[0] != "java":
	case l.mysql:
		dsn = jdbc(t, "mariadb", dsn)
	default:
		dsn = jdbc(t, "postgresql", dsn)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	args := slices.Concat(l.driverCommand, []string{dsn, rule, strconv.Itoa(callers), strconv.Itoa(calls), workload})
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var d driverResult
	if err == nil {
		err = json.Unmarshal(out, &d)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", l.name, err, out, &stderr)
	}
	t.Logf("%s: %+v", workload, d)
	return d
}

func (l *language) newDatabase(t *testing.T) string {
	t.Helper()
	if l.mysql {
		return migratedMySQL(t, dbtest.MariaDB(t))
	}
	dsn := dbtest.Postgres(t)
	s, err := postgres.Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	migrate(t, s)
	// By default, PostgreSQL looks for deadlocks after a second.
	_, err = connect(t, dsn).Exec(t.Context(),
		"do $$ begin execute format('alter database %I set deadlock_timeout = 20', current_database()); end $$")
	if err != nil {
		t.Fatal(err)
	}
	return dsn
}

func migratedMySQL(t *testing.T, dsn string) string {
	t.Helper()
	s, err := storemysql.Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	migrate(t, s)
	return dsn
}

func migrate(t *testing.T, s store.Store) {
	t.Helper()
	defer s.Close()
	if _, err := s.(store.Migrator).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestRetryPrograms checks that the programs of examples/sql get a decision for every call, and charge it once: while
// transactions conflict (eight callers at SERIALIZABLE charge two keys in either order), while answers get lost, and on
// MariaDB while another session locks the key for too long.
func TestRetryPrograms(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	dir := copyPrograms(t)
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			dsn := l.newDatabase(t)
			t.Run("conflicts", func(t *testing.T) {
				const calls, capacity = 5, 25
				d := l.run(t, dir, dsn, fmt.Sprintf("fixed-window %d/30d", capacity), pairCallers, calls, "pairs")
				if d.Admitted["a"] != capacity || d.Admitted["b"] != capacity || d.Repeated == 0 || len(d.Errors) > 0 {
					t.Errorf("got %+v, want %d of %d, and conflicts", d, capacity, pairCallers*calls)
				}
			})
			t.Run("lost answers", func(t *testing.T) { l.testLostAnswers(t, dir, dsn) })
			if l.mysql {
				t.Run("a held key", func(t *testing.T) { l.testLockedKey(t, dir, dsn) })
			}
		})
	}
}

// testLostAnswers runs a program behind a proxy that cuts connections while their answers are on the way.
func (l *language) testLostAnswers(t *testing.T, dir, dsn string) {
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = startLossyProxy(t, u.Host, 15)
	const callers, calls = 4, 10
	d := l.run(t, dir, u.String(), "fixed-window 1000/30d", callers, calls, "takes")
	remaining := l.remaining(t, dsn, "fixed-window 1000/30d", "a")
	if d.Admitted["a"] != callers*calls || d.Repeated == 0 || len(d.Errors) > 0 || remaining != 1000-callers*calls {
		t.Errorf("got %+v, charged %d; want %d, and lost answers", d, 1000-remaining, callers*calls)
	}
}

// testLockedKey charges a key in a transaction that stays open for longer than the program waits for it: error 1205.
func (l *language) testLockedKey(t *testing.T, dir, dsn string) {
	db := openMySQL(t, dsn)
	const rule = "fixed-window 5/30d"
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "CALL headgate_take(?, 'a', 1)", rule); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	committed := make(chan struct{})
	go func() {
		defer close(committed)
		const waiting = `select t.trx_wait_started from information_schema.innodb_trx t
			join information_schema.processlist p on p.id = t.trx_mysql_thread_id
			where p.db = database() and t.trx_wait_started is not null`
		// A second wait has begun: the first one took too long.
		for waitStarts := map[string]bool{}; len(waitStarts) < 2 && ctx.Err() == nil; {
			var since string
			if db.QueryRowContext(ctx, waiting).Scan(&since) == nil {
				waitStarts[since] = true
			}
			// InnoDB refreshes innodb_trx only if it was not read for 100 ms: findings/mariadb-innodb-trx-polled.sh.
			_, _ = db.ExecContext(ctx, "DO SLEEP(0.2)")
		}
		_ = tx.Commit()
	}()
	d := l.run(t, dir, dsn, rule, 1, 1, "waits")
	cancel()
	<-committed
	if remaining := l.remaining(t, dsn, rule, "a"); d.Admitted["a"] != 1 || d.Repeated == 0 || len(d.Errors) > 0 ||
		remaining != 3 {
		t.Errorf("got %+v, %d left; want one admission, after a wait that took too long", d, remaining)
	}
}

func openMySQL(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// remaining returns what remains of a limit: one more than a check returns, which subtracts its own cost.
func (l *language) remaining(t *testing.T, dsn, rule, key string) (remaining int) {
	t.Helper()
	var err error
	if l.mysql {
		var allowed, retry, reset, name, at any
		err = openMySQL(t, dsn).QueryRowContext(t.Context(), "CALL headgate_check(?, ?, 1)", rule, key).Scan(&allowed,
			&remaining, &retry, &reset, &name, &at)
	} else {
		err = connect(t, dsn).QueryRow(t.Context(), "select remaining from headgate.check($1, $2)", rule,
			key).Scan(&remaining)
	}
	if err != nil {
		t.Fatal(err)
	}
	return remaining
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// TestRetriesOnGroupReplication checks that programs repeat calls after error 3101: two nodes charge the same keys.
func TestRetriesOnGroupReplication(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.GroupReplication)
	group := dbtest.StartMySQLGroup(t, nil, false)
	dir := copyPrograms(t)
	for _, l := range languages {
		if !l.mysql || l.driverCommand[0] == "java" { // it uses MariaDB's driver for Java
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			nodes := dbtest.MariaDBAt(t, group.Servers()...)
			migratedMySQL(t, nodes[0])
			const calls, capacity = 5, 25
			d := l.run(t, dir, strings.Join(nodes, ","), fmt.Sprintf("token-bucket %d/30d", capacity), pairCallers,
				calls, "pairs")
			if d.Admitted["a"] != capacity || d.Admitted["b"] != capacity || d.Repeated == 0 || len(d.Errors) > 0 {
				t.Errorf("got %+v, want %d of %d, and conflicts", d, capacity, pairCallers*calls)
			}
		})
	}
}

// TestRetriesInPsql checks that take_patiently.sql and take.sh of examples/sql are exact at SERIALIZABLE.
func TestRetriesInPsql(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	dsn := languages[0].newDatabase(t)
	dir := t.TempDir()
	for _, name := range []string{"take.sh", "take_patiently.sql"} {
		writeFile(t, filepath.Join(dir, name), readFile(t, filepath.Join(sqlPrograms, name)))
	}
	psql := dbtest.Program(t, "psql", "postgresql-client")
	runScript := func(script string) string {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PGOPTIONS=-c default_transaction_isolation=serializable", "DSN="+dsn,
			"HEADGATE_STORE="+dsn, "PSQL="+psql)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return string(out)
	}
	runScript(`$PSQL -Xq -v ON_ERROR_STOP=1 $DSN -f take_patiently.sql`)
	for name, caller := range map[string]string{
		"procedure": `for i in $(seq 10); do echo "call take_patiently('$n-$i', 'fixed-window 50/30d', 'procedure');"; done | $PSQL -XqAt $DSN`,
		"shell":     `. ./take.sh; for i in $(seq 10); do take 'fixed-window 50/30d' shell 1 120; done`,
	} {
		out := runScript("for n in 1 2 3 4 5 6 7 8; do (" + caller + ") & done; wait")
		if strings.Count(out, "t\n") != 50 || strings.Count(out, "f\n") != 30 || len(out) != 160 {
			t.Errorf("%s: 50 of 80 were to be admitted, without an error:\n%s", name, out)
		}
	}
}

// TestAnExceptionHandlerKeepsTheOldSnapshot checks a claim of docs/sql.md about EXCEPTION in PL/pgSQL.
func TestAnExceptionHandlerKeepsTheOldSnapshot(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	dsn := languages[0].newDatabase(t)
	ctx := t.Context()
	conn, otherConn := connect(t, dsn), connect(t, dsn)
	const take = "select allowed from headgate.take('fixed-window 50/30d', 'k')"
	for _, sql := range []string{take, "begin isolation level repeatable read", "select 1"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := otherConn.Exec(ctx, take); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Exec(ctx, `do $$ begin
		for attempt in 1..5 loop
			begin
				perform headgate.take('fixed-window 50/30d', 'k');
				return;
			exception when serialization_failure then
			end;
		end loop;
		raise exception 'five attempts';
	end $$`)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Message != "five attempts" {
		t.Errorf("got %v, want the exception after five attempts", err)
	}
}
