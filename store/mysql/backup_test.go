package mysql_test

import (
	"bytes"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

// TestABackupUnderLoad dumps a database with mariadb-dump, and restores it into another one.
func TestABackupUnderLoad(t *testing.T) {
	t.Parallel()
	dsn := dbtest.MariaDB(t)
	open := func(dsn string) *mysql.Store {
		s, err := mysql.Open(t.Context(), dsn, &mysql.Config{SkipArticles: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	run := func(program, dsn string, stdin []byte, options ...string) []byte {
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
	s := open(dsn)
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var dump []byte
	storetest.Backup(t, s, func() {
		dump = run("mariadb-dump", dsn, nil, "--single-transaction", "--routines", "--triggers")
	}, func() store.Store {
		other := dbtest.MariaDB(t)
		run("mariadb", other, dump)
		return open(other)
	})
}
