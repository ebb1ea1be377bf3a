// Package dbtest starts real database servers for tests and benchmarks.
//
// A server is taken from the environment when a DSN is given there; else a
// throwaway one is started from installed binaries, on loopback, as an
// unprivileged user; else the distribution's package is installed, where that
// is allowed; else the test fails with what is missing. Nothing is
// ever skipped in silence. [Engine] chooses another server of the same kind, which
// is fetched and not installed. Each dies with this process.
//
// A server that is not asked for by Config or Start is shared by all tests of the process.
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

// PostgresDSN is the environment variable that names a PostgreSQL to use: a
// role that may create databases.
const PostgresDSN = "HEADGATE_TEST_POSTGRES_DSN"

var sharedPostgres = sync.OnceValues(func() (*Server, error) { return StartSharedPostgres(context.Background()) })

var databases atomic.Int64

// thisRun is in all names of this process. Process ids alone repeat, in
// containers above all, and a server from the environment outlives them.
var thisRun = fmt.Sprintf("%d_%x", os.Getpid(), rand.Uint32())

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
	defer fatal(tb)
	dsn, drop := newDatabase(context.Background(), server)
	tb.Cleanup(func() { _ = drop() })
	return dsn
}

// KeptPostgres returns the URL of a database that outlives the test and ends with the server, or by drop.
func KeptPostgres(tb testing.TB) (dsn string, drop func() error) {
	tb.Helper()
	defer fatal(tb)
	return newDatabase(context.Background(), sharedDSN(tb, sharedPostgres, postgresKind, postgresVersion))
}

// Database creates an empty database on a PostgreSQL, a MariaDB or a MySQL. drop removes it, on a PostgreSQL with
// clients that are still connected.
func (s *Server) Database(ctx context.Context) (dsn string, drop func(), err error) {
	defer rescue(&err)
	dsn, remove := newDatabase(ctx, s.DSN)
	return dsn, func() { _ = remove() }, nil
}

func newDatabase(ctx context.Context, server string) (dsn string, drop func() error) {
	name := fmt.Sprintf("headgate_test_%s_%d", thisRun, databases.Add(1))
	defer about("create database %s", name)
	if strings.HasPrefix(server, "mysql:") {
		do(execMariaDB(server, "create database "+name))
		// A session left in a transaction would hold it up for a day.
		return strings.TrimSuffix(server, "/") + "/" + name, func() error {
			return execMariaDB(server, "set lock_wait_timeout = 5; drop database "+name)
		}
	}
	do(execPostgres(ctx, server, "create database "+name))
	cfg := get(pgx.ParseConfig(server))
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

// StartSharedPostgres returns a running server for many tests, which does not sync its files.
func StartSharedPostgres(ctx context.Context) (*Server, error) {
	return serverFrom(ctx, PostgresDSN, (&Config{Args: []string{"-c", "fsync=off"}}).Postgres)
}

// postgresPrograms returns the folder of the programs to test with.
func postgresPrograms() string {
	if e, mine := chosen(postgresKind); mine {
		return postgresOf(e.major)
	}
	return orInstall(newestPostgres, "PostgreSQL", PostgresDSN, "postgresql")
}

// startPostgres starts a server from a folder of binaries. t is nil for one that
// lets everyone in.
func (c *Config) startPostgres(ctx context.Context, bin string, t *TLS) *Server {
	make := func(f *folder, data string) {
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
			make(f, data)
		} else {
			f.fill(ctx, bin, data, make)
		}
		options := []string{
			"-c", "max_connections=600", "-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB",
			"-c", "jit=off", // which costs the tests of store/postgres a twentieth of the CPU
		}
		if testing.Testing() && !c.Faults { // a test ends servers, never the machine: what the kernel has is not lost
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
		return f.postgres(bin, data, dsn, admin, port, options...)
	})
	defer undo(s.Stop)
	if t != nil {
		do(execPostgres(ctx, admin, "alter role "+TLSUser+" password '"+TLSPassword+"'"))
	}
	return s
}

// postgres returns a server over the files in data, which answers at admin once it has started.
func (f *folder) postgres(bin, data, dsn, admin string, port int, options ...string) *Server {
	args := append([]string{"-D", data, "-h", loopback, "-p", strconv.Itoa(port), "-k", f.path}, options...)
	return &Server{DSN: dsn, polite: syscall.SIGINT, launch: func(ctx context.Context) *process {
		cmd := f.command(context.WithoutCancel(ctx), filepath.Join(bin, "postgres"), args...)
		cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT // to the postmaster, which ends its children
		return f.launch(ctx, cmd, 2*time.Minute, func() error { return execPostgres(ctx, admin, "select 1") })
	}}
}

// newestPostgres returns the folder of the programs of the newest version that is installed; "" if none is.
func newestPostgres() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/??/bin/initdb") // by their versions
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(found[len(found)-1])
}

// Psql lets the program psql run a script, one statement after the other and on
// after errors, on the server of a URL. It returns what psql has printed, errors
// among it.
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
