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

// startOwn starts a server for this package alone, which ends with the tests.
var startOwn = sync.OnceValues(func() (*dbtest.Server, error) {
	c := &dbtest.Config{Args: []string{"--log-bin", "--server-id=1", "--event-scheduler=ON"}}
	return c.MariaDB(context.Background())
})

// ownServer returns the URL of a server of this package alone, for tests that may disturb others, for example by KILL
// or events. It has a binary log and no time zones.
func ownServer(tb testing.TB) string {
	tb.Helper()
	server, err := startOwn()
	if err != nil {
		tb.Fatal(err)
	}
	return server.DSN
}

// TestSettingsOfTheServer runs tests that change the settings of one server, one after the other.
func TestSettingsOfTheServer(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	server := serverOfSettings(t)
	for _, tt := range []struct {
		name string
		test func(t *testing.T, server string)
	}{
		{"every connection is UTF-8", expectUTF8},
		{"a SQL mode with another meaning", modeIsRefused},
		{"read-only", saysItIsReadOnly},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, server) })
	}
}

// serverOfSettings returns a server whose settings the test may change; it is never the server of the environment.
func serverOfSettings(t *testing.T) string {
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

func TestDoctor(t *testing.T) {
	tier.Engines(t)
	findsWhatIsWrong(t, serverOfSettings(t))
}

// setGlobal sets a global variable until the end of the test.
func setGlobal(t *testing.T, db *sql.DB, name, value string) {
	t.Helper()
	var old string
	if err := db.QueryRowContext(t.Context(), "SELECT @@GLOBAL."+name).Scan(&old); err != nil {
		t.Fatal(err)
	}
	run(t, db, "SET GLOBAL "+name+" = "+value)
	if _, err := strconv.Atoi(old); err != nil {
		old = "'" + old + "'"
	}
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), "SET GLOBAL "+name+" = "+old); err != nil {
			t.Error(err)
		}
	})
}
