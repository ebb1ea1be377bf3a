package mysql_test

import (
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

// TestDoctor plants what may be wrong with a server of its own, one thing after the other.
func TestDoctor(t *testing.T) {
	t.Parallel()
	server, err := dbtest.StartMariaDB(t.Context(), "--max-connections=100") // never that of the environment
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	url := dbtest.MariaDBAt(t, server.DSN)[0]
	s, err := mysql.Open(t.Context(), url, &mysql.Config{SkipArticles: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	storetest.Finds(t, s, store.Wrong, "schema", "run headgate migrate")
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	db := plain(t, url)
	exec := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
	storetest.FindsNothing(t, s)
	for _, tt := range []struct {
		severity      store.Severity
		check, remedy string
		plant, mend   string
	}{
		{
			store.Wrong, "durability", "innodb_flush_log_at_trx_commit = 1",
			"SET GLOBAL innodb_flush_log_at_trx_commit = 2", "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
		},
		{
			store.Note, "timeouts", "innodb_lock_wait_timeout = 50",
			"SET GLOBAL innodb_lock_wait_timeout = 600", "SET GLOBAL innodb_lock_wait_timeout = 50",
		},
		{
			store.Wrong, "indexes", "DROP INDEX",
			"CREATE INDEX extra ON headgate_cells (empty_at)", "DROP INDEX extra ON headgate_cells",
		},
		{
			store.Wrong, "sweeper", "headgate sweep", `INSERT INTO headgate_cells (limit_name, cell_key, law, unit, step, empty_at)
				SELECT 'dead', seq, 1, 1, 1, 1 FROM seq_1_to_10001`, "DELETE FROM headgate_cells WHERE limit_name = 'dead'",
		},
		{store.Wrong, "primary", "read_only = OFF", "SET GLOBAL read_only = ON", "SET GLOBAL read_only = OFF"},
	} {
		exec(tt.plant)
		storetest.Finds(t, s, tt.severity, tt.check, tt.remedy)
		exec(tt.mend)
	}
	storetest.FindsNothing(t, s)
}
