// Package dbtest starts real database servers for tests and benchmarks.
//
// A server is taken from the environment when a DSN is given there; else a
// throwaway one is started from installed binaries, on loopback, as an
// unprivileged user; else the distribution's package is installed, where that
// is allowed; else the caller is told what is missing, and fails. Nothing is
// ever skipped in silence.
package dbtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
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

// Server is a running PostgreSQL.
type Server struct {
	DSN  string // of its database postgres
	stop func()
}

// Stop ends a server that StartPostgres started and removes its files.
func (s *Server) Stop() {
	if s.stop != nil {
		s.stop()
	}
}

var shared = sync.OnceValues(func() (*Server, error) { return StartPostgres(context.Background()) })

var databases atomic.Int64

// Postgres returns the DSN of a new, empty database. The server is shared by
// the tests of the process, and ends with it.
func Postgres(tb testing.TB) string {
	tb.Helper()
	s, err := shared()
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	dsn, drop, err := s.Database(context.Background())
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	tb.Cleanup(drop)
	return dsn
}

// Database creates an empty database. drop removes it, with whoever is still
// connected.
func (s *Server) Database(ctx context.Context) (dsn string, drop func(), err error) {
	name := fmt.Sprintf("headgate_test_%d_%d", os.Getpid(), databases.Add(1))
	if err := s.exec(ctx, "create database "+name); err != nil {
		return "", nil, fmt.Errorf("create database %s: %w", name, err)
	}
	cfg, err := pgx.ParseConfig(s.DSN)
	if err != nil {
		return "", nil, err
	}
	dsn = fmt.Sprintf("postgres://%s:%s@%s/%s", cfg.User, cfg.Password, net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))), name)
	return dsn, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = s.exec(ctx, "drop database if exists "+name+" with (force)")
	}, nil
}

func (s *Server) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.DSN)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// StartPostgres returns a running server; see the package comment for where
// it comes from. It keeps fsync on. The server dies with this process.
func StartPostgres(ctx context.Context) (*Server, error) {
	if dsn := os.Getenv(PostgresDSN); dsn != "" {
		return &Server{DSN: dsn}, nil
	}
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	owner, err := unprivileged()
	if err != nil {
		return nil, err
	}
	sweepLeftovers()
	dir, err := os.MkdirTemp("", "headgate-postgres-")
	if err != nil {
		return nil, err
	}
	remove := func() { os.RemoveAll(dir) }
	if owner != nil {
		if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
			remove()
			return nil, err
		}
	}
	data := filepath.Join(dir, "data")
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Pdeathsig: syscall.SIGQUIT}
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TZ=UTC")
		return cmd
	}
	if out, err := run("initdb", "-D", data, "-U", "headgate", "-A", "trust", "-E", "UTF8", "--no-sync").CombinedOutput(); err != nil {
		remove()
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	port, err := freePort()
	if err != nil {
		remove()
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		remove()
		return nil, err
	}
	cmd := run("postgres", "-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-k", dir,
		"-c", "max_connections=200", "-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB")
	cmd.Stdout, cmd.Stderr = log, log
	// The death signal of a child follows the thread that started it: keep
	// that thread for as long as the server runs.
	started, ended := make(chan error), make(chan struct{})
	go keep(cmd, started, ended)
	if err := <-started; err != nil {
		remove()
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	s := &Server{
		DSN: fmt.Sprintf("postgres://headgate:@127.0.0.1:%d/postgres", port),
		stop: sync.OnceFunc(func() {
			_ = cmd.Process.Signal(syscall.SIGINT)
			<-ended
			remove()
		}),
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err = s.exec(ctx, "select 1"); err == nil {
			reap(s)
			return s, nil
		}
		select {
		case <-ended:
		default:
			if time.Now().Before(deadline) {
				continue
			}
		}
		text, _ := os.ReadFile(log.Name())
		s.Stop()
		return nil, fmt.Errorf("postgres does not answer: %w\n%s", err, text)
	}
}

// binaries returns the folder of the newest PostgreSQL server installed, after
// installing one if need be.
func binaries() (string, error) {
	find := func() string {
		dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
		version := func(dir string) int {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
			return n
		}
		slices.SortFunc(dirs, func(a, b string) int { return version(b) - version(a) })
		for _, dir := range dirs {
			if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
				return dir
			}
		}
		if path, err := exec.LookPath("initdb"); err == nil {
			return filepath.Dir(path)
		}
		return ""
	}
	if dir := find(); dir != "" {
		return dir, nil
	}
	missing := "no PostgreSQL server is installed (initdb, postgres): install it (Debian: apt-get install postgresql) or set " + PostgresDSN
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Getuid() != 0 {
		return "", errors.New(missing)
	}
	// Several test processes want it at once: one installs, the others wait
	// for it. The distribution's own cluster is not made, ours is private.
	const script = `ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && exit 0
mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf
"$0" update -q && "$0" -o DPkg::Lock::Timeout=300 install -yq --no-install-recommends postgresql`
	lock := filepath.Join(os.TempDir(), "headgate-dbtest.lock")
	cmd := exec.CommandContext(context.Background(), "flock", lock, "sh", "-c", script, apt)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s; installing it failed: %w\n%s", missing, err, tail(string(out), 20))
	}
	if dir := find(); dir != "" {
		return dir, nil
	}
	return "", errors.New(missing)
}

// unprivileged returns whom to run a server as: nil for the present user, who
// must not be root.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")
}

func freePort() (int, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
