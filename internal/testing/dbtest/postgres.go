// Package dbtest starts real database servers for tests and benchmarks.
//
// If the environment gives a DSN, that server is used. Otherwise a throwaway server is started from installed binaries,
// on loopback, as an unprivileged user. If there are none, the distribution's package is installed; if that is not
// allowed, the test fails and says what is missing. No test is skipped silently. [EngineEnv] chooses another server of
// the same kind, which is fetched and not installed. Each server dies with this process.
//
// The tests of a process share one server of each kind, unless they start their own: by Config, Start, the functions
// for TLS, or those for clusters.
package dbtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresDSNEnv is the environment variable with the DSN of a PostgreSQL to use, for a role that may create databases.
const PostgresDSNEnv = "HEADGATE_TEST_POSTGRES_DSN"

var sharedPostgres = sync.OnceValues(func() (*Server, error) { return StartSharedPostgres(context.Background()) })

var databaseCount atomic.Int64

// runID is part of all names that this process gives. A process id alone is not unique: ids repeat, above all in
// containers, and a server from the environment outlives the process.
var runID = fmt.Sprintf("%d_%x", os.Getpid(), rand.Uint32())

// Postgres returns the DSN of a new, empty database of the shared server.
func Postgres(tb testing.TB) string {
	tb.Helper()
	return PostgresAt(tb, sharedDSN(tb, sharedPostgres, postgresKind, postgresVersion))
}

func postgresVersion(dsn string) (string, error) {
	conn, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.Background())
	number, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), " ")
	return "PostgreSQL " + number, nil
}

// PostgresAt returns the DSN of a new, empty database on the server of a DSN.
func PostgresAt(tb testing.TB, server string) string {
	tb.Helper()
	defer failTest(tb)
	dsn, drop := newDatabase(context.Background(), server)
	tb.Cleanup(func() { _ = drop() })
	return dsn
}

// KeptPostgres returns the DSN of a new database that outlives the test and ends with the server, or by drop.
func KeptPostgres(tb testing.TB) (dsn string, drop func() error) {
	tb.Helper()
	defer failTest(tb)
	return newDatabase(context.Background(), sharedDSN(tb, sharedPostgres, postgresKind, postgresVersion))
}

// Database creates an empty database on a PostgreSQL, a MariaDB or a MySQL. drop removes it; on a
// PostgreSQL also while clients are connected, whose connections it ends.
func (s *Server) Database(ctx context.Context) (dsn string, drop func(), err error) {
	defer returnFailure(&err)
	dsn, remove := newDatabase(ctx, s.DSN)
	return dsn, func() { _ = remove() }, nil
}

func newDatabase(ctx context.Context, server string) (dsn string, drop func() error) {
	name := fmt.Sprintf("headgate_test_%s_%d", runID, databaseCount.Add(1))
	defer wrapFailure("create database %s", name)
	if strings.HasPrefix(server, "mysql:") {
		check(execMariaDB(server, "create database "+name))
		// By default a session in an open transaction would block the drop for a day (MariaDB) or a year (MySQL).
		return strings.TrimSuffix(server, "/") + "/" + name, func() error {
			return execMariaDB(server, "set lock_wait_timeout = 5; drop database "+name)
		}
	}
	check(execPostgres(ctx, server, "create database "+name))
	cfg := must(pgx.ParseConfig(server))
	dsn = fmt.Sprintf("postgres://%s:%s@%s/%s", cfg.User, cfg.Password,
		net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))), name)
	return dsn, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return execPostgres(ctx, server, "drop database if exists "+name+" with (force)")
	}
}

func execPostgres(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// StartSharedPostgres returns the server that PostgresDSNEnv names, or starts one for many tests, without syncs.
func StartSharedPostgres(ctx context.Context) (*Server, error) {
	return serverFrom(ctx, PostgresDSNEnv, (&Config{Args: []string{"-c", "fsync=off"}}).Postgres)
}

func postgresPrograms() string {
	if e, ok := engineFor(postgresKind); ok {
		return postgresOf(e.major)
	}
	return findOrInstall(newestPostgres, "PostgreSQL", PostgresDSNEnv, "postgresql")
}

// startPostgres starts a server from a folder of binaries. If t is nil, the server requires no password.
func (c *Config) startPostgres(ctx context.Context, bin string, t *TLS) *Server {
	initDB := func(f *folder, data string) {
		init := []string{"-D", data, "-U", "headgate", "-A", "trust", "-E", "UTF8", "--no-sync"}
		if f.log != "" {
			init = append(init, "--waldir="+f.log, "--wal-segsize=1")
		}
		f.run(ctx, "", filepath.Join(bin, "initdb"), init...)
	}
	admin := ""
	s := c.start(ctx, "postgres", "postgres", func(f *folder, port int) *Server {
		data := filepath.Join(f.data, "data")
		if f.log != "" {
			initDB(f, data)
		} else {
			f.copyTemplate(ctx, bin, data, initDB)
		}
		options := []string{
			"-c", maxConnections, "-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB",
			"-c", "jit=off", // jit costs the tests of store/postgres a twentieth of their CPU
		}
		if testing.Testing() && !c.Faults { // a test kills servers, never the machine: the kernel still writes
			options = append(options, "-c", "fsync=off")
		}
		options = append(options, c.Args...)
		dsn := fmt.Sprintf("postgres://headgate:@127.0.0.1:%d/postgres", port)
		admin = dsn
		if t != nil {
			options = append(options, t.options(f, data)...)
			admin = fmt.Sprintf("host=%s port=%d user=headgate database=postgres", f.path, port)
			dsn = fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/postgres", TLSUser, TLSPassword, port)
		}
		return f.postgresServer(bin, data, dsn, admin, port, options...)
	})
	defer onFailure(s.Stop)
	if t != nil {
		check(execPostgres(ctx, admin, "alter role "+TLSUser+" password '"+TLSPassword+"'"))
	}
	return s
}

// postgresServer returns a server over the files in data, not launched yet. It has started once it answers at admin.
func (f *folder) postgresServer(bin, data, dsn, admin string, port int, options ...string) *Server {
	args := append([]string{"-D", data, "-h", loopback, "-p", strconv.Itoa(port), "-k", f.path}, options...)
	return &Server{DSN: dsn, stopSignal: syscall.SIGINT, launch: func(ctx context.Context) *process {
		cmd := f.command(context.WithoutCancel(ctx), filepath.Join(bin, "postgres"), args...)
		cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT // to the postmaster, which ends its children
		return f.launch(ctx, cmd, 2*time.Minute, func() error { return execPostgres(ctx, admin, "select 1") })
	}}
}

// newestPostgres returns the folder with the programs of the newest installed version; "" if none is installed.
func newestPostgres() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/??/bin/initdb") // sorted by their versions
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(found[len(found)-1])
}

// Psql runs a script by the program psql on the server of a URL, one statement after the other, and goes on after
// errors. It returns the output of psql with the errors.
func Psql(tb testing.TB, dsn, script string) string {
	tb.Helper()
	bin := Program(tb, "psql", "postgresql-client")
	cmd := exec.CommandContext(context.Background(), bin, "--no-psqlrc", "--quiet", "--tuples-only", "--no-align",
		"--dbname", dsn)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("dbtest: psql: %v\n%s", err, out)
	}
	return string(out)
}
