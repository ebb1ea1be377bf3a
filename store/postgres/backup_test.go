package postgres_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/storetest"
)

// needPgDump skips a test where the distribution's pg_dump is older than the server, which it then refuses to dump.
func needPgDump(t *testing.T, server string) {
	t.Helper()
	pgDump := dbtest.Program(t, "pg_dump", "postgresql-client")
	version, err := exec.CommandContext(t.Context(), pgDump, "--version").Output()
	var major, serverMajor int
	if err == nil {
		_, err = fmt.Sscanf(string(version), "pg_dump (PostgreSQL) %d", &major)
	}
	if err == nil {
		err = connect(t, server).QueryRow(t.Context(), `select current_setting('server_version_num')::int / 10000`).Scan(
			&serverMajor)
	}
	if err != nil {
		t.Fatal(err)
	}
	if major < serverMajor {
		t.Skipf("pg_dump %d does not dump PostgreSQL %d; make test runs this on the server of its version", major, serverMajor)
	}
}

// TestABackupUnderLoad runs storetest.Backup: pg_dump dumps a database while callers charge it, and psql restores it.
func TestABackupUnderLoad(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	openStore := func(dsn string) *postgres.Store {
		s, err := postgres.Open(t.Context(), dsn, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	needPgDump(t, dsn)
	s := openStore(dsn)
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var dump []byte
	storetest.Backup(t, s, func() {
		cmd := exec.CommandContext(t.Context(), dbtest.Program(t, "pg_dump", "postgresql-client"), "--no-owner", dsn)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		var err error
		if dump, err = cmd.Output(); err != nil {
			t.Fatalf("pg_dump: %v: %s", err, &stderr)
		}
	}, func() store.Store {
		restored := dbtest.Postgres(t)
		if out := dbtest.Psql(t, restored, "\\set ON_ERROR_STOP on\n"+string(dump)); bytes.Contains([]byte(out),
			[]byte("ERROR")) {
			t.Fatalf("psql reports errors: %s", out)
		}
		return openStore(restored)
	})
}
