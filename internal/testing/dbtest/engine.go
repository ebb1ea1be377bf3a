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

// Engine is the environment variable that names the server to test with, in place
// of the distribution's own of its kind. `make engines` sets it to one after the
// other. Tests of other kinds of servers do not notice.
const Engine = "HEADGATE_TEST_ENGINE"

// kind is a protocol, with the server that speaks it unless another is named.
type kind int

const (
	postgresKind kind = iota
	mysqlKind
	redisKind
	anyKind // none of those that can be chosen
)

// engine is a server that can be tested with.
type engine struct {
	kind     kind
	is       string // how its version begins
	major    int    // of PostgreSQL; 0 for one that comes from
	suite    string // of Debian, whose newest is taken, with
	packages []string
	programs map[string]string // paths below the tree, by the names that the harness knows
}

// What takes longer than the tests of one server may: clusters of MySQL, MariaDB and Redis, and the suite behind a
// pooler.
const (
	GroupReplication = "group-replication"
	GaleraEngine     = "galera"
	PgBouncerEngine  = "pgbouncer"
	ClusterEngine    = "redis-cluster"
)

var engines = map[string]engine{
	"postgres-13": {kind: postgresKind, is: "PostgreSQL 13.", major: 13},
	"postgres-14": {kind: postgresKind, is: "PostgreSQL 14.", major: 14},
	"postgres-15": {kind: postgresKind, is: "PostgreSQL 15.", major: 15},
	"postgres-16": {kind: postgresKind, is: "PostgreSQL 16.", major: 16},
	"postgres-17": {kind: postgresKind, is: "PostgreSQL 17.", major: 17},
	"postgres-18": {kind: postgresKind, is: "PostgreSQL 18.", major: 18},
	"mariadb-11.8": {
		kind: mysqlKind, is: "MariaDB 11.8.", suite: "trixie", packages: []string{"mariadb-server-core"},
		programs: map[string]string{"mariadbd": "usr/sbin/mariadbd"},
	},
	"mysql":          mysqlEngine,
	GroupReplication: mysqlEngine,
	GaleraEngine:     {kind: anyKind},
	PgBouncerEngine:  {kind: anyKind},
	ClusterEngine:    {kind: anyKind},
	TiDBEngine:       {kind: anyKind},
	"valkey":         redisEngine("Valkey ", "valkey-server", "valkey-tools", "usr/bin/valkey-"),
	"redis-8":        redisEngine("Redis 8.", "redis-server", "redis-tools", "usr/bin/redis-"),
}

var mysqlEngine = engine{
	kind: mysqlKind, is: "MySQL ", suite: "sid", packages: []string{"mysql-server-core"},
	programs: map[string]string{"mysqld": "usr/sbin/mysqld", "mysql_tzinfo_to_sql": "usr/bin/mysql_tzinfo_to_sql"},
}

func redisEngine(is, server, tools, prefix string) engine {
	return engine{
		kind: redisKind, is: is, suite: "sid", packages: []string{server, tools},
		programs: map[string]string{"redis-server": prefix + "server", "redis-cli": prefix + "cli"},
	}
}

// chosen returns the engine that the environment names, if it is of a kind.
func chosen(k kind) (e engine, mine bool) {
	name := os.Getenv(Engine)
	if name == "" {
		return engine{}, false
	}
	e, known := engines[name]
	if !known {
		do(fmt.Errorf("%s: no engine %q is known, only %s", Engine, name,
			strings.Join(slices.Sorted(maps.Keys(engines)), ", ")))
	}
	return e, e.kind == k
}

var trees sync.Map // of a function for each first package

func (e *engine) tree() *tree {
	once, _ := trees.LoadOrStore(e.suite+e.packages[0],
		sync.OnceValue(func() *tree { return unpackSuite(e.suite, e.packages...) }))
	return once.(func() *tree)()
}

func (e *engine) program(name string) string { return e.tree().program(name, e.programs[name]) }

// NeedEngine skips a test of an engine that is not the one to test with.
func NeedEngine(tb testing.TB, name string) {
	tb.Helper()
	if os.Getenv(Engine) != name {
		tb.Skipf("a test of %s, which is not the engine to test with: make engines runs it, or %s=%s", name,
			Engine, name)
	}
}

// given returns the server that an environment variable names, unless there are options for one, or starts one.
func given(ctx context.Context, env string, start func(context.Context) (*Server, error), options ...string) (
	*Server, error,
) {
	if dsn := os.Getenv(env); dsn != "" && len(options) == 0 {
		return &Server{DSN: dsn}, nil
	}
	return start(ctx)
}

// use returns the DSN of a server that tests share, and says once what it is.
func use(tb testing.TB, shared func() (*Server, error), k kind, version func(string) (string, error)) string {
	tb.Helper()
	defer fatal(tb)
	s := get(shared())
	say(tb, k, s.DSN, "", version)
	return s.DSN
}

var said sync.Map

// say writes to the test log once what the tests run against: of which version the
// server is, which has to be the engine to test with if that is of its kind, and
// more.
func say(tb testing.TB, k kind, server, more string, version func(string) (string, error)) {
	tb.Helper()
	if _, again := said.LoadOrStore(server+more, true); again {
		return
	}
	defer fatal(tb)
	v := get(version(server))
	if e, mine := chosen(k); mine && !strings.HasPrefix(v, e.is) {
		tb.Fatalf("dbtest: %s=%s, but the server is %s", Engine, os.Getenv(Engine), v)
	}
	tb.Logf("engine: %s%s", v, more)
}
