package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
)

// MySQLDSN is the environment variable that names a MariaDB or MySQL to use: a
// URL mysql://user:password@host:port/ of a user who may create databases.
const MySQLDSN = "HEADGATE_TEST_MYSQL_DSN"

var sharedMariaDB = sync.OnceValues(func() (*Server, error) {
	s, err := StartMariaDB(context.Background())
	if err == nil && os.Getenv(MySQLDSN) == "" {
		err = loadZones(s.DSN)
	}
	return s, err
})

// MariaDB returns the URL of a new, empty database. The server is shared by
// the tests of the process, and ends with it. It knows the time zones.
func MariaDB(tb testing.TB) string {
	tb.Helper()
	s, err := sharedMariaDB()
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	return MariaDBAt(tb, s.DSN)[0]
}

// MariaDBAt returns the URLs of a new, empty database on a server, or on the
// nodes of one cluster.
func MariaDBAt(tb testing.TB, servers ...string) []string {
	tb.Helper()
	name := databaseName()
	if err := execMariaDB(servers[0], "create database "+name); err != nil {
		tb.Fatalf("dbtest: create database %s: %v", name, err)
	}
	tb.Cleanup(func() { _ = execMariaDB(servers[0], "drop database "+name) })
	urls := make([]string, len(servers))
	for i, s := range servers {
		urls[i] = strings.TrimSuffix(s, "/") + "/" + name
	}
	return urls
}

// execMariaDB executes a statement at the server of a URL.
func execMariaDB(url, statement string) error {
	rest := strings.TrimPrefix(url, "mysql://")
	user, host := "", rest
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		user, host = rest[:i+1], rest[i+1:]
	}
	host, _, _ = strings.Cut(host, "/")
	db, err := sql.Open("mysql", user+"tcp("+host+")/?multiStatements=true&timeout=2s")
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(context.Background(), statement)
	return err
}

// mariadbBinaries are the server and the program that makes its files.
func mariadbBinaries() (server, install string, err error) {
	if server, err = program("mariadbd", MySQLDSN, "mariadb-server", "galera-4", "rsync"); err != nil {
		return "", "", err
	}
	install, err = program("mariadb-install-db", MySQLDSN, "mariadb-server")
	return server, install, err
}

// StartMariaDB returns a running server, with more options for mariadbd if
// wanted; see the package comment for where it comes from. It flushes at each
// commit. The server dies with this process.
func StartMariaDB(ctx context.Context, args ...string) (*Server, error) {
	if dsn := os.Getenv(MySQLDSN); dsn != "" && len(args) == 0 {
		return &Server{DSN: dsn}, nil
	}
	_, _, owner, dir, err := mariadbFiles(ctx)
	if err != nil {
		return nil, err
	}
	port, err := freePort("127.0.0.1")
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	p, err := launchMariaDB(ctx, dir, "data", owner, "127.0.0.1", port, args...)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return &Server{DSN: fmt.Sprintf("mysql://root@127.0.0.1:%d/", port), stop: stopper(func() {
		p.end(syscall.SIGTERM)
		os.RemoveAll(dir)
	})}, nil
}

// mariadbFiles makes a folder with the files of an empty server in data.
func mariadbFiles(ctx context.Context) (server, install string, owner *syscall.Credential, dir string, err error) {
	if server, install, err = mariadbBinaries(); err != nil {
		return "", "", nil, "", err
	}
	if owner, err = unprivileged("mysql"); err != nil {
		return "", "", nil, "", err
	}
	if dir, err = folder("mariadb", owner); err != nil {
		return "", "", nil, "", err
	}
	make := command(ctx, dir, owner, install, "--no-defaults", "--datadir="+filepath.Join(dir, "data"),
		"--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=64M")
	if out, err := make.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", "", nil, "", fmt.Errorf("mariadb-install-db: %w\n%s", err, tail(string(out), 20))
	}
	return server, install, owner, dir, nil
}

// launchMariaDB starts a server over the files in dir/data.
func launchMariaDB(ctx context.Context, dir, data string, owner *syscall.Credential, host string, port int, args ...string) (*process, error) {
	server, _, err := mariadbBinaries()
	if err != nil {
		return nil, err
	}
	cmd := command(ctx, dir, owner, server, append([]string{
		"--no-defaults", "--datadir=" + filepath.Join(dir, data), "--bind-address=" + host, "--port=" + strconv.Itoa(port),
		"--socket=" + filepath.Join(dir, data+".sock"), "--pid-file=" + filepath.Join(dir, data+".pid"), "--tmpdir=" + dir,
		"--skip-name-resolve", "--max-connections=400", "--innodb-buffer-pool-size=256M", "--innodb-log-file-size=64M",
		"--innodb-flush-log-at-trx-commit=1", "--character-set-server=utf8mb4", "--log-warnings=1",
	}, args...)...)
	url := fmt.Sprintf("mysql://root@%s:%d/", host, port)
	return launch(cmd, time.Minute, func() error { return execMariaDB(url, "do 1") })
}

// loadZones loads the time zones of this machine into a server.
func loadZones(dsn string) error {
	path, err := program("mariadb-tzinfo-to-sql", MySQLDSN, "mariadb-server", "tzdata")
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(context.Background(), path, "/usr/share/zoneinfo").Output()
	if err != nil {
		return fmt.Errorf("mariadb-tzinfo-to-sql: %w", err)
	}
	client, err := program("mariadb", MySQLDSN, "mariadb-client")
	if err != nil {
		return err
	}
	host := strings.TrimSuffix(strings.TrimPrefix(dsn, "mysql://root@"), "/")
	addr, port, _ := strings.Cut(host, ":")
	load := exec.CommandContext(context.Background(), client, "--no-defaults", "-uroot", "-h"+addr, "-P"+port, "mysql")
	load.Stdin = strings.NewReader(string(out))
	if out, err := load.CombinedOutput(); err != nil {
		return fmt.Errorf("load time zones: %w\n%s", err, tail(string(out), 5))
	}
	return nil
}

// MariaDBCount returns the number in the last column of the one row that a
// statement selects.
func MariaDBCount(url, query string) (n int, err error) {
	host := strings.TrimSuffix(strings.TrimPrefix(url, "mysql://root@"), "/")
	db, err := sql.Open("mysql", "root@tcp("+host+")/")
	if err != nil {
		return 0, err
	}
	defer db.Close()
	var name string
	err = db.QueryRowContext(context.Background(), query).Scan(&name, &n)
	return n, err
}
