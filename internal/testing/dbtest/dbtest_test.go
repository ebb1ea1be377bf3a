package dbtest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/tier"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// hostOf returns the host and port of a URL.
func hostOf(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func isListening(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// folders returns the folders of servers of a kind, whether the servers still run or not.
func folders(t *testing.T, kind string) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), "headgate-"+kind+"-*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func TestStopRemovesServersAndFolders(t *testing.T) {
	t.Setenv("TMPDIR", shortTempDir(t))
	for _, tt := range []struct {
		name  string
		start func(*Config, context.Context) (*Server, error)
		query func(dsn string) error
	}{
		{"postgres", (*Config).Postgres, func(dsn string) error {
			return execPostgres(context.Background(), dsn, "select 1")
		}},
		{"mariadb", (*Config).MariaDB, func(dsn string) error { return execMariaDB(dsn, "select 1") }},
		{"redis", (*Config).Redis, func(dsn string) error {
			_, err := callRedis(hostOf(t, dsn), "PING")
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			begin := time.Now()
			s, err := tt.start(new(Config), ctx)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s after %v", s.DSN, time.Since(begin).Round(time.Millisecond))
			cancel() // ends the context of the start, which the server outlives
			if err := tt.query(s.DSN); err != nil {
				t.Error(err)
			}
			if len(folders(t, tt.name)) != 1 {
				t.Errorf("folders %v, want one", folders(t, tt.name))
			}
			s.Stop()
			s.Stop()
			if err := tt.query(s.DSN); err == nil {
				t.Error("the stopped server answers, want an error")
			}
			if leftovers := folders(t, tt.name); len(leftovers) != 0 {
				t.Errorf("left behind: %v", leftovers)
			}
		})
	}
}

// shortTempDir returns a folder that all users can enter, with a path short enough for sockets (some 100 bytes).
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	t.Setenv("TMPDIR", shortTempDir(t))
	_, err := (&Config{Args: []string{"--no-such-option", "1"}}).Redis(context.Background())
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("got %v, want the message of the server", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := new(Config).Redis(ctx); err == nil {
		t.Error("a server started with a context that had ended, want an error")
	}
	if leftovers := folders(t, "redis"); len(leftovers) != 0 {
		t.Errorf("left behind: %v", leftovers)
	}
}

func TestSharedServersGiveEachTestADatabase(t *testing.T) {
	seen := map[string]bool{}
	for _, open := range []func(testing.TB) string{Postgres, MariaDB, Redis} {
		for range 2 {
			begin := time.Now()
			dsn := open(t)
			t.Logf("%s after %v", dsn, time.Since(begin).Round(time.Millisecond))
			if seen[dsn] {
				t.Errorf("got %s twice, want another database", dsn)
			}
			seen[dsn] = true
		}
	}
	if os.Getenv(MySQLDSNEnv) == "" {
		rightTimes, err := MariaDBCount(MariaDB(t),
			"select '', convert_tz('2026-07-01 12:00:00', 'UTC', 'Europe/Berlin') = '2026-07-01 14:00:00'")
		if err != nil || rightTimes != 1 {
			t.Errorf("time zones: got %d right conversions, error %v; want 1, nil", rightTimes, err)
		}
	}
}

func TestDatabasesAreDroppedWithTheirTest(t *testing.T) {
	var postgresDSN, mariadbDSN string
	t.Run("inner", func(t *testing.T) { postgresDSN, mariadbDSN = Postgres(t), MariaDB(t) })
	if err := execPostgres(context.Background(), postgresDSN, "select 1"); err == nil ||
		!strings.Contains(err.Error(), "3D000") {
		t.Errorf("PostgreSQL: got %v, want error 3D000, no such database", err)
	}
	if err := execMariaDB(mariadbDSN, "use "+mariadbDSN[strings.LastIndex(mariadbDSN, "/")+1:]); err == nil ||
		!strings.Contains(err.Error(), "1049") {
		t.Errorf("MariaDB: got %v, want error 1049, no such database", err)
	}
}

func TestFreePortReturnsEachPortOnce(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		port := FreePort(t)
		if seen[port] || port < firstPort || port > lastPort {
			t.Errorf("got port %d, want a new one from %d to %d", port, firstPort, lastPort)
		}
		seen[port] = true
		if claim("127.0.0.1", port) || claim("127.0.0.2", port) {
			t.Errorf("port %d can be claimed again", port)
		}
	}
}

func TestPoolerHasFourConnections(t *testing.T) {
	begin := time.Now()
	dsn := PgBouncer(t, Postgres(t))
	t.Logf("%s after %v", dsn, time.Since(begin).Round(time.Millisecond))
	connect := func() *pgx.Conn {
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
		conn, err := pgx.ConnectConfig(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.Background()) })
		return conn
	}
	backends := map[uint32]bool{}
	for range 4 {
		tx, err := connect().Begin(context.Background()) // keeps its connection to the server
		if err != nil {
			t.Fatal(err)
		}
		var pid uint32
		if err := tx.QueryRow(context.Background(), "select pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		backends[pid] = true
	}
	if len(backends) != 4 {
		t.Errorf("four transactions have %d connections, want 4", len(backends))
	}
	fifth := connect()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := fifth.Exec(ctx, "select 1"); err == nil {
		t.Error("a fifth transaction got a connection, want a timeout")
	}
}

// childEnv is set in the process that TestServersDieWithTheirProcess starts, and that starts servers.
const childEnv = "HEADGATE_DBTEST_CHILD"

func TestServersDieWithTheirProcess(t *testing.T) {
	tier.Engines(t)
	if os.Getenv(childEnv) != "" {
		for _, start := range []func(*Config, context.Context) (*Server, error){
			(*Config).Redis, (*Config).MariaDB, (*Config).Postgres,
		} {
			s, err := start(new(Config), context.Background())
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println("server", s.DSN)
		}
		select {} // until killed
	}
	dir := shortTempDir(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestServersDieWithTheirProcess$")
	child.Env = append(os.Environ(), childEnv+"=1", "TMPDIR="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for lines := bufio.NewScanner(out); len(addrs) < 3; {
		if !lines.Scan() {
			t.Fatalf("the child has ended after %v", addrs)
		}
		if dsn, ok := strings.CutPrefix(lines.Text(), "server "); ok {
			addrs = append(addrs, hostOf(t, dsn))
		}
	}
	t.Setenv("TMPDIR", dir)
	makeLocksOld := func() { // sweepLeftovers skips locks of the last minute
		locks, _ := filepath.Glob(filepath.Join(dir, "headgate-*", lockFile))
		for _, path := range locks {
			if err := os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	makeLocksOld()
	sweepLeftovers()
	if n := len(folders(t, "*")); n != 5 {
		t.Errorf("got %d folders of a living process, want 5: of three servers and of two templates", n)
	}
	if err := child.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	for _, addr := range addrs {
		await.Until(t, addr+" to end with its process", func() bool { return !isListening(addr) })
	}
	await.Until(t, "the folders to be removed", func() bool {
		sweepLeftovers()
		return len(folders(t, "*")) == 0
	})
}

// TestListenWaitsForTheAddress checks that Listen waits until another listener has closed the address. If the first
// listener is closed before the second call of Listen, the call need not wait, and the test passes without a check.
func TestListenWaitsForTheAddress(t *testing.T) {
	listener := Listen(t, fmt.Sprintf("127.0.0.1:%d", FreePort(t)))
	go listener.Close()
	if got, want := Listen(t, listener.Addr().String()).Addr().String(), listener.Addr().String(); got != want {
		t.Errorf("listens at %s, want %s", got, want)
	}
}
