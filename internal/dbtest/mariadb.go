package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MySQLDSN is the environment variable that names a MariaDB or MySQL to use: a
// URL mysql://user:password@host:port/ of a user who may create databases.
const MySQLDSN = "HEADGATE_TEST_MYSQL_DSN"

var sharedMariaDB = sync.OnceValues(func() (*Server, error) {
	s, err := StartMariaDB(context.Background())
	if err == nil && os.Getenv(MySQLDSN) == "" {
		if err = loadZones(s.DSN); err != nil {
			s.Stop()
		}
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
	for _, s := range servers[1:] {
		// A node hears of it before it has it: to read waits for what it has heard of.
		if err := execMariaDB(s, "set wsrep_sync_wait = 15; select 1; use "+name); err != nil {
			tb.Fatalf("dbtest: database %s: %v", name, err)
		}
	}
	tb.Cleanup(func() {
		// A session left in a transaction would hold it up for a day.
		_ = execMariaDB(servers[0], "set lock_wait_timeout = 5; drop database "+name)
	})
	urls := make([]string, len(servers))
	for i, s := range servers {
		urls[i] = strings.TrimSuffix(s, "/") + "/" + name
	}
	return urls
}

// openMariaDB opens the server of a URL, and no database of it.
func openMariaDB(server string) (*sql.DB, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("%s is not a URL of the form mysql://user@host:port/", MySQLDSN) // err has the password
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr = u.User.Username(), "tcp", u.Host
	cfg.Passwd, _ = u.User.Password()
	cfg.MultiStatements, cfg.Timeout, cfg.Logger = true, 2*time.Second, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// execMariaDB executes statements at the server of a URL.
func execMariaDB(server, statements string) error {
	db, err := openMariaDB(server)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(context.Background(), statements)
	return err
}

// MariaDBCount returns the number in the second of the two columns of the one
// row that a statement returns: one such as SHOW GLOBAL STATUS LIKE 'Threads_connected'.
func MariaDBCount(server, query string) (n int, err error) {
	db, err := openMariaDB(server)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	var name string
	err = db.QueryRowContext(context.Background(), query).Scan(&name, &n)
	return n, err
}

// StartMariaDB returns a running server, with more options for mariadbd if
// wanted; see the package comment for where it comes from. It flushes at each
// commit. The server dies with this process.
func StartMariaDB(ctx context.Context, args ...string) (*Server, error) {
	if dsn := os.Getenv(MySQLDSN); dsn != "" && len(args) == 0 {
		return &Server{DSN: dsn}, nil
	}
	f, err := mariadbFolder(ctx)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*Server, error) {
		f.remove()
		return nil, err
	}
	port, err := freePort("127.0.0.1")
	if err != nil {
		return fail(err)
	}
	dsn := fmt.Sprintf("mysql://root@127.0.0.1:%d/", port)
	p, err := launchMariaDB(ctx, f, "data", "127.0.0.1", port, func() error { return execMariaDB(dsn, "do 1") }, args...)
	if err != nil {
		return fail(err)
	}
	return &Server{DSN: dsn, stop: stopper(func() {
		p.end(syscall.SIGTERM)
		f.remove()
	})}, nil
}

// mariadbFolder makes a folder with the files of an empty server in data.
func mariadbFolder(ctx context.Context) (*folder, error) {
	install, err := program("mariadb-install-db", MySQLDSN, "mariadb-server")
	if err != nil {
		return nil, err
	}
	f, err := newFolder("mariadb", "mysql")
	if err != nil {
		return nil, err
	}
	if err := f.run(ctx, install, "--no-defaults", "--datadir="+filepath.Join(f.path, "data"),
		"--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=64M"); err != nil {
		f.remove()
		return nil, err
	}
	return f, nil
}

// launchMariaDB starts a server over files in a folder.
func launchMariaDB(ctx context.Context, f *folder, data, host string, port int, ping func() error, args ...string) (*process, error) {
	server, err := program("mariadbd", MySQLDSN, "mariadb-server")
	if err != nil {
		return nil, err
	}
	data = filepath.Join(f.path, data)
	return f.launch(ctx, f.command(context.WithoutCancel(ctx), server, append([]string{
		"--no-defaults", "--datadir=" + data, "--bind-address=" + host, "--port=" + strconv.Itoa(port),
		"--socket=" + data + ".sock", "--pid-file=" + data + ".pid", "--tmpdir=" + f.path,
		"--skip-name-resolve", "--max-connections=400", "--innodb-buffer-pool-size=256M", "--innodb-log-file-size=64M",
		"--innodb-flush-log-at-trx-commit=1", "--character-set-server=utf8mb4", "--log-warnings=1",
	}, args...)...), time.Minute, ping)
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
