package dbtest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// EngineEnv is the environment variable that replaces the distribution's server of one kind by another. `make engines`
// tests with one after the other. The variable does not affect tests of other kinds of servers.
const EngineEnv = "HEADGATE_TEST_ENGINE"

// kind is a protocol, with its default server.
type kind int

const (
	postgresKind kind = iota
	mysqlKind
	redisKind
	anyKind // replaces no default server
)

// engine is a server to test with.
type engine struct {
	kind     kind
	version  string            // prefix of the version that the server reports
	major    int               // version of PostgreSQL; 0: the programs are from packages
	suite    string            // the Debian suite of packages
	packages []string          // packages of the server
	programs map[string]string // paths in the tree of the packages, by their usual names
}

// Engines that take too long for the tests of a single server: clusters, and the suite behind a pooler.
const (
	GroupReplication = "group-replication"
	GaleraEngine     = "galera"
	PgBouncerEngine  = "pgbouncer"
	ClusterEngine    = "redis-cluster"
)

var engines = map[string]engine{
	"postgres-13": {kind: postgresKind, version: "PostgreSQL 13.", major: 13},
	"postgres-14": {kind: postgresKind, version: "PostgreSQL 14.", major: 14},
	"postgres-15": {kind: postgresKind, version: "PostgreSQL 15.", major: 15},
	"postgres-16": {kind: postgresKind, version: "PostgreSQL 16.", major: 16},
	"postgres-17": {kind: postgresKind, version: "PostgreSQL 17.", major: 17},
	"postgres-18": {kind: postgresKind, version: "PostgreSQL 18.", major: 18},
	"mariadb-11.8": {
		kind: mysqlKind, version: "MariaDB 11.8.", suite: "trixie", packages: []string{"mariadb-server-core"},
		programs: map[string]string{"mariadbd": "usr/sbin/mariadbd"},
	},
	"mysql": mysqlEngine, GroupReplication: mysqlEngine,
	GaleraEngine: {kind: anyKind}, PgBouncerEngine: {kind: anyKind}, ClusterEngine: {kind: anyKind},
	TiDBEngine: {kind: anyKind},
	"valkey":   redisEngine("Valkey ", "valkey-server", "valkey-tools", "usr/bin/valkey-"),
	"redis-8":  redisEngine("Redis 8.", "redis-server", "redis-tools", "usr/bin/redis-"),
}

var mysqlEngine = engine{
	kind: mysqlKind, version: "MySQL ", suite: "sid", packages: []string{"mysql-server-core"},
	programs: map[string]string{"mysqld": "usr/sbin/mysqld", "mysql_tzinfo_to_sql": "usr/bin/mysql_tzinfo_to_sql"},
}

func redisEngine(version, server, tools, prefix string) engine {
	return engine{
		kind: redisKind, version: version, suite: "sid", packages: []string{server, tools},
		programs: map[string]string{"redis-server": prefix + "server", "redis-cli": prefix + "cli"},
	}
}

// engineFor returns the engine that the environment names; ok is false if it names none of this kind.
func engineFor(k kind) (e engine, ok bool) {
	name := os.Getenv(EngineEnv)
	if name == "" {
		return engine{}, false
	}
	e, ok = engines[name]
	if !ok {
		check(fmt.Errorf("%s: no engine %q is known, only %s", EngineEnv, name,
			strings.Join(slices.Sorted(maps.Keys(engines)), ", ")))
	}
	return e, e.kind == k
}

var trees sync.Map // suite and first package -> func() *tree

func (e *engine) tree() *tree {
	once, _ := trees.LoadOrStore(e.suite+e.packages[0],
		sync.OnceValue(func() *tree { return unpackSuite(e.suite, e.packages...) }))
	return once.(func() *tree)()
}

func (e *engine) program(name string) string { return e.tree().program(name, e.programs[name]) }

// NeedEngine skips a test unless EngineEnv names the engine that it needs.
func NeedEngine(tb testing.TB, name string) {
	tb.Helper()
	if os.Getenv(EngineEnv) != name {
		tb.Skipf("a test of %s, which is not the engine to test with: make engines runs it, or %s=%s", name,
			EngineEnv, name)
	}
}

// serverFrom returns the server that an environment variable names, or starts one.
func serverFrom(ctx context.Context, env string, start func(context.Context) (*Server, error)) (*Server, error) {
	if dsn := os.Getenv(env); dsn != "" {
		return &Server{DSN: dsn}, nil
	}
	return start(ctx)
}

// sharedDSN returns the DSN of a server that tests share, and logs its version once.
func sharedDSN(tb testing.TB, shared func() (*Server, error), k kind, version func(string) (string, error)) string {
	tb.Helper()
	defer failTest(tb)
	s := must(shared())
	logVersion(tb, k, s.DSN, "", version)
	return s.DSN
}

var loggedVersions sync.Map

// logVersion logs the server's version, with a suffix, once in a process. If EngineEnv names one of the same kind, the
// server has to be that engine.
func logVersion(tb testing.TB, k kind, server, suffix string, version func(string) (string, error)) {
	tb.Helper()
	if _, isLogged := loggedVersions.LoadOrStore(server+suffix, true); isLogged {
		return
	}
	defer failTest(tb)
	v := must(version(server))
	if e, ok := engineFor(k); ok && !strings.HasPrefix(v, e.version) {
		tb.Fatalf("dbtest: %s=%s, but the server is %s", EngineEnv, os.Getenv(EngineEnv), v)
	}
	tb.Logf("engine: %s%s", v, suffix)
}
