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

// hostOf returns host:port of a URL.
func hostOf(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func listens(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// folders returns the folders that servers of a kind have left or still use.
func folders(t *testing.T, kind string) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), "headgate-"+kind+"-*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func TestServersAnswerAndAreGoneAfterStop(t *testing.T) {
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
			cancel() // of the start, not of the server
			if err := tt.query(s.DSN); err != nil {
				t.Error(err)
			}
			if len(folders(t, tt.name)) != 1 {
				t.Errorf("folders %v, want one", folders(t, tt.name))
			}
			s.Stop()
			s.Stop()
			if err := tt.query(s.DSN); err == nil {
				t.Error("it still answers")
			}
			if left := folders(t, tt.name); len(left) != 0 {
				t.Errorf("left behind: %v", left)
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
		t.Errorf("got %v, want what the server says", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := new(Config).Redis(ctx); err == nil {
		t.Error("started after its context had ended")
	}
	if left := folders(t, "redis"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestSharedServersGiveEachTestItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, open := range []func(testing.TB) string{Postgres, MariaDB, Redis} {
		for range 2 {
			begin := time.Now()
			dsn := open(t)
			t.Logf("%s after %v", dsn, time.Since(begin).Round(time.Millisecond))
			if seen[dsn] {
				t.Errorf("%s twice", dsn)
			}
			seen[dsn] = true
		}
	}
	if os.Getenv(MySQLDSN) == "" {
		zones, err := MariaDBCount(MariaDB(t),
			"select '', convert_tz('2026-07-01 12:00:00', 'UTC', 'Europe/Berlin') = '2026-07-01 14:00:00'")
		if err != nil || zones != 1 {
			t.Errorf("time zones: %d, %v", zones, err)
		}
	}
}

func TestDatabasesAreDroppedWithTheirTest(t *testing.T) {
	var pg, my string
	t.Run("inner", func(t *testing.T) { pg, my = Postgres(t), MariaDB(t) })
	if err := execPostgres(context.Background(), pg, "select 1"); err == nil ||
		!strings.Contains(err.Error(), "3D000") {
		t.Errorf("PostgreSQL: %v, want that there is no such database", err)
	}
	if err := execMariaDB(my, "use "+my[strings.LastIndex(my, "/")+1:]); err == nil ||
		!strings.Contains(err.Error(), "1049") {
		t.Errorf("MariaDB: %v, want that there is no such database", err)
	}
}

func TestPortsAreClaimed(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		port := FreePort(t)
		if seen[port] || port < firstPort || port > lastPort {
			t.Errorf("port %d", port)
		}
		seen[port] = true
		if claim("127.0.0.1", port) || claim("127.0.0.2", port) {
			t.Errorf("port %d was given to another", port)
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
		t.Errorf("transactions at %d connections, want 4", len(backends))
	}
	fifth := connect()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := fifth.Exec(ctx, "select 1"); err == nil {
		t.Error("a fifth did not have to wait")
	}
}

// childEnv is set in the process that the test below starts, which starts servers.
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
	age := func() { // as if it had been a while
		locks, _ := filepath.Glob(filepath.Join(dir, "headgate-*", lockFile))
		for _, path := range locks {
			if err := os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	age()
	sweepLeftovers()
	if n := len(folders(t, "*")); n != 5 {
		t.Errorf("%d folders of a living process, want those of three servers, and of two that are copied", n)
	}
	if err := child.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	for _, addr := range addrs {
		await.Until(t, addr+" to end with its process", func() bool { return !listens(addr) })
	}
	await.Until(t, "the folders to be removed", func() bool {
		sweepLeftovers()
		return len(folders(t, "*")) == 0
	})
}

// TestListenWaitsForTheAddress that another listener, or a program that is about to start, still has. The listener is
// closed after Listen was called, or before: that it waits is then not seen, but it does not fail either.
func TestListenWaitsForTheAddress(t *testing.T) {
	first := Listen(t, fmt.Sprintf("127.0.0.1:%d", FreePort(t)))
	go first.Close()
	if again := Listen(t, first.Addr().String()); again.Addr().String() != first.Addr().String() {
		t.Errorf("listens at %v", again.Addr())
	}
}
