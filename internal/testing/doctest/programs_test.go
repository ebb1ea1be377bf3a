package doctest

import (
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
)

// linkPrograms puts links into the folder programs, which comes first in the PATH of pages, to the distribution's
// programs by the names that pages use. redis-cli is that of the engine to test with.
func linkPrograms(t *testing.T, programs string) {
	t.Helper()
	link(t, programs, "curl", dbtest.Program(t, "curl", "curl"))
	link(t, programs, "jq", dbtest.Program(t, "jq", "jq"))
	link(t, programs, "psql", dbtest.Program(t, "psql", "postgresql-client"))
	link(t, programs, "pg_dump", dbtest.Program(t, "pg_dump", "postgresql-client"))
	link(t, programs, "mysql", dbtest.Program(t, "mariadb", "mariadb-client"))
	link(t, programs, "nginx", dbtest.Program(t, "nginx", "nginx-light"))
	link(t, programs, "caddy", dbtest.Program(t, "caddy", "caddy"))
	link(t, programs, "haproxy", dbtest.Program(t, "haproxy", "haproxy"))
	redis, err := dbtest.RedisProgram("redis-cli")
	if err != nil {
		t.Fatal(err)
	}
	link(t, programs, "redis-cli", redis)
	installRuntimes(t)
	link(t, programs, "python3", "/usr/bin/python3")
}

// installRuntimes installs the languages and drivers of the programs in examples/sql, if they are missing.
func installRuntimes(t *testing.T) {
	t.Helper()
	// Another python3 of the PATH would not find the drivers that are installed below.
	dbtest.Program(t, "/usr/bin/python3", "python3")
	dbtest.InstalledPath(t, "/usr/lib/python3/dist-packages/psycopg", "python3-psycopg")
	dbtest.InstalledPath(t, "/usr/lib/python3/dist-packages/pymysql", "python3-pymysql")
	dbtest.Program(t, "javac", "default-jdk-headless")
	dbtest.InstalledPath(t, "/usr/share/java/postgresql.jar", "libpostgresql-jdbc-java")
	dbtest.InstalledPath(t, "/usr/share/java/mariadb-java-client.jar", "libmariadb-java")
	dbtest.Program(t, "node", "nodejs")
}
