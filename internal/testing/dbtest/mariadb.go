package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MySQLDSNEnv is the environment variable that names a MariaDB or MySQL to use, by a URL
// mysql://user:password@host:port/ of a user who may create databases.
const MySQLDSNEnv = "HEADGATE_TEST_MYSQL_DSN"

var sharedMariaDB = sync.OnceValues(func() (*Server, error) { return StartSharedMariaDB(context.Background()) })

// StartSharedMariaDB returns the server that MySQLDSNEnv names, or starts one for many tests. The latter knows the time
// zones, and does not sync its files.
func StartSharedMariaDB(ctx context.Context) (*Server, error) {
	return serverFrom(ctx, MySQLDSNEnv, func(ctx context.Context) (s *Server, err error) {
		defer returnFailure(&err)
		fl := newFlavour()
		s = fl.start(ctx, &Config{Args: noSyncOptions})
		defer onFailure(s.Stop)
		fl.loadZones(s.DSN)
		return s, nil
	})
}

// noSyncOptions are the options of a server that waits for no disk: its commits outlive the server, not the machine.
// They save a third of the time of a migration.
var noSyncOptions = []string{"--innodb-flush-method=nosync", "--loose-sync-frm=OFF", "--sync-binlog=0"}

// MariaDB returns the URL of a new, empty database of the shared server: see StartSharedMariaDB.
func MariaDB(tb testing.TB) string {
	tb.Helper()
	return MariaDBAt(tb, sharedDSN(tb, sharedMariaDB, mysqlKind, mariadbVersion))[0]
}

func mariadbVersion(server string) (version string, err error) {
	if err := queryMariaDB(server, "select version()", &version); err != nil {
		return "", err
	}
	if number, _, found := strings.Cut(version, "-MariaDB"); found {
		return "MariaDB " + number, nil
	}
	if _, number, found := strings.Cut(version, "-TiDB-"); found {
		return "TiDB " + number, nil
	}
	return "MySQL " + version, nil
}

// KeptMariaDB returns the URL of a database that outlives the test and ends with the server.
func KeptMariaDB(tb testing.TB) string {
	tb.Helper()
	defer failTest(tb)
	dsn, _ := newDatabase(context.Background(), sharedDSN(tb, sharedMariaDB, mysqlKind, mariadbVersion))
	return dsn
}

// MariaDBAt returns the URLs of a new, empty database on a server or on the nodes of one cluster.
func MariaDBAt(tb testing.TB, servers ...string) []string {
	tb.Helper()
	defer failTest(tb)
	ctx := context.Background()
	firstURL, drop := newDatabase(ctx, servers[0])
	tb.Cleanup(func() { _ = drop() })
	urls := []string{firstURL}
	for _, s := range servers[1:] {
		url := strings.TrimSuffix(s, "/") + firstURL[strings.LastIndexByte(firstURL, '/'):]
		check(waitFor(ctx, time.Minute, func() error { return execMariaDB(url, "do 1") })) // until it is replicated
		urls = append(urls, url)
	}
	return urls
}

// OpenMariaDB opens the database of a URL, or its server if the URL names no database. Each query may have several
// statements, and is one round trip.
func OpenMariaDB(server string) (*sql.DB, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("%s is not a URL of the form mysql://user@host:port/", MySQLDSNEnv) // err has a password
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr = u.User.Username(), "tcp", u.Host
	cfg.Passwd, _ = u.User.Password()
	cfg.DBName = strings.Trim(u.Path, "/")
	cfg.MultiStatements, cfg.InterpolateParams = true, true
	cfg.Timeout, cfg.Logger = 10*time.Second, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func execMariaDB(server, statements string) error {
	db, err := OpenMariaDB(server)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(context.Background(), statements)
	return err
}

// MariaDBCount returns the number in the second column of the only row of a query with two columns, such as SHOW GLOBAL
// STATUS LIKE 'Threads_connected'.
func MariaDBCount(server, query string) (n int, err error) {
	err = queryMariaDB(server, query, new(string), &n)
	return n, err
}

// queryMariaDB scans the columns of the only row of a query.
func queryMariaDB(server, query string, columns ...any) error {
	db, err := OpenMariaDB(server)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.QueryRowContext(context.Background(), query).Scan(columns...)
}

func (fl *flavour) start(ctx context.Context, c *Config) *Server {
	args := c.Args
	if testing.Testing() && !c.Faults { // a test kills servers, never the machine
		args = append(slices.Clone(noSyncOptions), args...)
	}
	return c.start(ctx, "mariadb", "mysql", func(f *folder, port int) *Server {
		fl.copyTemplate(ctx, f)
		dsn := fmt.Sprintf("mysql://root@127.0.0.1:%d/", port)
		ping := func() error { return execMariaDB(dsn, "do 1") }
		return &Server{DSN: dsn, stopSignal: syscall.SIGTERM, launch: func(ctx context.Context) *process {
			return fl.launch(ctx, f, "data", loopback, port, ping, args...)
		}}
	})
}

func (fl *flavour) loadZones(dsn string) {
	defer wrapFailure("load time zones")
	const zones = "/usr/share/zoneinfo"
	findOrInstall(pathFinder(filepath.Join(zones, "Europe")), "the time zones", MySQLDSNEnv, "tzdata")
	out := must(exec.CommandContext(context.Background(), fl.zonesProgram(), zones).Output())
	check(execMariaDB(dsn, "use mysql; "+string(out)))
}
