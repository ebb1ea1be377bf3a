package mysql_test

import (
	"bytes"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// TestABackupUnderLoad checks that a dump of mariadb-dump, taken under load, restores a consistent store in another
// database.
func TestABackupUnderLoad(t *testing.T) {
	t.Parallel()
	dsn := migrated.MariaDB(t)
	runClient := func(program, dsn string, stdin []byte, options ...string) []byte {
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		host, port, err := net.SplitHostPort(u.Host)
		if err != nil {
			t.Fatal(err)
		}
		options = append(options, "--host="+host, "--port="+port, "--user="+u.User.Username(), "--protocol=tcp",
			strings.TrimPrefix(u.Path, "/"))
		cmd := exec.CommandContext(t.Context(), dbtest.Program(t, program, "mariadb-client"), options...)
		var stderr bytes.Buffer
		cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", program, err, &stderr)
		}
		return out
	}
	var dump []byte
	storetest.Backup(t, openStore(t, dsn), func() {
		dump = runClient("mariadb-dump", dsn, nil, "--single-transaction", "--routines", "--triggers")
	}, func() store.Store {
		restored := dbtest.MariaDB(t)
		runClient("mariadb", restored, dump)
		return openStore(t, restored)
	})
}
