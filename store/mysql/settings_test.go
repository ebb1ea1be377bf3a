package mysql_test

import (
	"context"
	"database/sql"
	"strconv"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// startPackageServer starts a server for the tests of this package alone, which stops after them.
var startPackageServer = sync.OnceValues(func() (*dbtest.Server, error) {
	c := &dbtest.Config{Args: []string{"--log-bin", "--server-id=1", "--event-scheduler=ON"}}
	return c.MariaDB(context.Background())
})

// packageServer returns the URL of a server for this package alone, where tests may disturb other sessions, for example
// by KILL or events. It has a binary log and no time zones.
func packageServer(tb testing.TB) string {
	tb.Helper()
	server, err := startPackageServer()
	if err != nil {
		tb.Fatal(err)
	}
	return server.DSN
}

// TestSettingsOfTheServer runs the tests that change the settings of a server, one after the other on one server.
func TestSettingsOfTheServer(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	server := startSettingsServer(t)
	for _, tt := range []struct {
		name string
		test func(t *testing.T, server string)
	}{
		{"every connection is UTF-8", expectUTF8},
		{"a SQL mode with another meaning", expectModeRefused},
		{"read-only", expectReadOnly},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, server) })
	}
}

// startSettingsServer starts a server whose settings a test may change, and returns its URL. It is never the server
// that the environment names.
func startSettingsServer(t *testing.T) string {
	t.Helper()
	c := &dbtest.Config{Args: []string{
		"--max-connections=100", "--log-bin=log", "--server-id=1", "--loose-skip-character-set-client-handshake",
	}}
	server, err := c.MariaDB(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server.DSN
}

// TestDoctor checks what Examine finds on one server.
func TestDoctor(t *testing.T) {
	tier.Engines(t)
	expectFindings(t, startSettingsServer(t))
}

// setGlobal sets a global variable until the end of the test.
func setGlobal(t *testing.T, db *sql.DB, name, value string) {
	t.Helper()
	var oldValue string
	if err := db.QueryRowContext(t.Context(), "SELECT @@GLOBAL."+name).Scan(&oldValue); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, "SET GLOBAL "+name+" = "+value)
	if _, err := strconv.Atoi(oldValue); err != nil {
		oldValue = "'" + oldValue + "'"
	}
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), "SET GLOBAL "+name+" = "+oldValue); err != nil {
			t.Error(err)
		}
	})
}
