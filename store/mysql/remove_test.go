package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

// listObjects lists all objects of a database.
func listObjects(t *testing.T, db *sql.DB) (list []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `
		SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()
		UNION ALL SELECT CONCAT(routine_name, '()') FROM information_schema.routines WHERE routine_schema = DATABASE()
		UNION ALL SELECT CONCAT('trigger ', trigger_name) FROM information_schema.triggers
			WHERE trigger_schema = DATABASE()
		ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		list = append(list, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestRemoveLeavesNothing removes all that a migration has made, and nothing else.
func TestRemoveLeavesNothing(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	db := plainDB(t, url)
	conn := openSession(t, url)
	for _, text := range []string{
		"CREATE TABLE mine (x INT)", "CREATE TABLE headgate_mine (x INT)", "CREATE PROCEDURE mine() SELECT 1",
		"CREATE PROCEDURE headgate_mine_1() SELECT 1", "CREATE VIEW my_view AS SELECT x FROM mine",
		"CREATE PROCEDURE Request_Token(b INT) SELECT 'mine'",
	} {
		execute(t, conn, text)
	}
	others := listObjects(t, db)
	s := openAt(t, url)
	if _, err := limiter(s).Allow(t.Context(), headgate.MustParse("gcra 1/s"), "k"); err != nil {
		t.Fatal(err)
	}
	execute(t, conn, "CREATE PROCEDURE headgate_ask_99() SELECT 1") // of a later revision
	lines, err := s.Removal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := strings.Join(lines, "\n") + "\n"
	for _, want := range []string{
		"table headgate_cells, about ", "table headgate_limits, about ", "trigger headgate_limits_after_insert\n",
		"view headgate_levels\n", " procedures whose names begin with headgate_\n",
	} {
		if !strings.Contains(told, want) {
			t.Errorf("%s does not have %q", told, want)
		}
	}
	if strings.Contains(told, "oken") || strings.Contains(told, "mine") {
		t.Errorf("%s has what is not ours", told)
	}
	if err := s.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := listObjects(t, db); !slices.Equal(left, others) {
		t.Errorf("left are %q, want %q", left, others)
	}
	if lines, err := s.Removal(t.Context()); err != nil || len(lines) != 0 {
		t.Errorf("after that there is %q, %v", lines, err)
	}
	if err := s.Remove(t.Context()); err != nil {
		t.Errorf("removed again: %v", err)
	}
	_, err = limiter(s).Allow(t.Context(), headgate.MustParse("gcra 1/s"), "k")
	if !errors.Is(err, store.ErrSetup) {
		t.Errorf("a charge after that: %v", err)
	}
	execute(t, conn, "DROP PROCEDURE Request_Token")
	expectUsable(t, s, db)
	lines, err = s.Removal(t.Context())
	if err != nil || !slices.Contains(lines, "procedure request_token") ||
		!slices.Contains(lines, "procedure check_velocity") {
		t.Errorf("the articles' procedures: %q, %v", lines, err)
	}
}

// expectUsable migrates, and charges in Go and in SQL.
func expectUsable(t *testing.T, s *mysql.Store, db *sql.DB) {
	t.Helper()
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatalf("migrated again: %v", err)
	}
	if _, err := limiter(s).Allow(t.Context(), headgate.MustParse("gcra 1/s"), "k"); err != nil {
		t.Errorf("a charge after that: %v", err)
	}
	storetest.Define(t, s, store.Item{Name: "api", Text: "gcra 1/s"})
	if d, err := callTake(t, db, "headgate_take", "api", "k", "1"); err != nil || d.allowed != 1 {
		t.Errorf("a call after that: %+v, %v", d, err)
	}
}

// TestARemovalThatIsCutOff lets a removal fail at a lock: then the schema can be made again, or the removal completed.
func TestARemovalThatIsCutOff(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	url := dbtest.MariaDB(t)
	openAt(t, url)
	db := plainDB(t, url)
	expectUsable(t, cutOff(t, url, db), db)
	if err := cutOff(t, url, db).Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := listObjects(t, db); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

// cutOff lets a removal fail while it waits for a table, and returns another store over the rest.
func cutOff(t *testing.T, url string, db *sql.DB) *mysql.Store {
	t.Helper()
	tx := beginTx(t, db)
	run(t, tx, "SELECT * FROM headgate_entries")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	removed := make(chan error, 1)
	go func() { removed <- openUnmigrated(t, url).Remove(ctx) }()
	await.Until(t, "the removal to wait for a table", func() (waits bool) {
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) > 0 FROM information_schema.processlist WHERE "+
			"db = DATABASE() AND state = 'Waiting for table metadata lock'").Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
	left := listObjects(t, db)
	cancel()
	if err := await.Receive(t, "the removal", removed); err == nil {
		t.Fatal("a table that is in use was removed")
	}
	if len(left) == 0 || slices.Contains(left, "headgate_take()") {
		t.Errorf("left are %q", left)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	again := openUnmigrated(t, url)
	if _, err := limiter(again).Allow(t.Context(), headgate.MustParse("gcra 1/s"), "k"); !errors.Is(err, store.ErrSetup) {
		t.Errorf("a charge after it: %v", err)
	}
	return again
}

// TestAnOlderBinaryRemovesNothing uses tables of a newer binary, which this one does not know.
func TestAnOlderBinaryRemovesNothing(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, conn := openUnmigrated(t, url), openSession(t, url)
	execute(t, conn, "INSERT INTO headgate_schema_version (version) VALUES (99)")
	defer execute(t, conn, "DELETE FROM headgate_schema_version WHERE version = 99")
	if _, err := s.Removal(t.Context()); !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("to list: %v", err)
	}
	if err := s.Remove(t.Context()); !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("to remove: %v", err)
	}
}
