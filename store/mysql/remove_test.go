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

// listObjects lists all tables, views, routines and triggers of a database.
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

// TestRemoveLeavesNothing checks that Removal lists and Remove removes all that migrations have made, and nothing else,
// and that Migrate then makes a usable schema again.
func TestRemoveLeavesNothing(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	db := openPlainDB(t, url)
	conn := openSession(t, url)
	for _, text := range []string{
		"CREATE TABLE mine (x INT)", "CREATE TABLE headgate_mine (x INT)", "CREATE PROCEDURE mine() SELECT 1",
		"CREATE PROCEDURE headgate_mine_1() SELECT 1", "CREATE VIEW my_view AS SELECT x FROM mine",
		"CREATE PROCEDURE Request_Token(b INT) SELECT 'mine'",
	} {
		mustExec(t, conn, text)
	}
	foreignObjects := listObjects(t, db)
	s := openAndMigrate(t, url)
	if _, err := newLimiter(s).Allow(t.Context(), headgate.MustParse("gcra 1/s"), "k"); err != nil {
		t.Fatal(err)
	}
	mustExec(t, conn, "CREATE PROCEDURE headgate_ask_99() SELECT 1") // of a later revision
	lines, err := s.Removal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	removal := strings.Join(lines, "\n") + "\n"
	for _, want := range []string{
		"table headgate_cells, about ", "table headgate_limits, about ", "trigger headgate_limits_after_insert\n",
		"view headgate_levels\n", " procedures whose names begin with headgate_\n",
	} {
		if !strings.Contains(removal, want) {
			t.Errorf("Removal: got %s, want a line with %q", removal, want)
		}
	}
	if strings.Contains(removal, "oken") || strings.Contains(removal, "mine") {
		t.Errorf("Removal: got %s, want no foreign object", removal)
	}
	if err := s.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := listObjects(t, db); !slices.Equal(got, foreignObjects) {
		t.Errorf("after Remove: got %q, want %q", got, foreignObjects)
	}
	if lines, err := s.Removal(t.Context()); err != nil || len(lines) != 0 {
		t.Errorf("Removal after Remove: got %q, %v; want nothing", lines, err)
	}
	if err := s.Remove(t.Context()); err != nil {
		t.Errorf("Remove again: %v", err)
	}
	_, err = newLimiter(s).Allow(t.Context(), headgate.MustParse("gcra 1/s"), "k")
	if !errors.Is(err, store.ErrSetup) {
		t.Errorf("a charge after Remove: got %v, want ErrSetup", err)
	}
	mustExec(t, conn, "DROP PROCEDURE Request_Token")
	expectUsable(t, s, db)
	lines, err = s.Removal(t.Context())
	if err != nil || !slices.Contains(lines, "procedure request_token") ||
		!slices.Contains(lines, "procedure check_velocity") {
		t.Errorf("Removal after Migrate: got %q, %v; want the procedures of the articles", lines, err)
	}
}

// expectUsable migrates, and checks that charges in Go and in SQL then succeed.
func expectUsable(t *testing.T, s *mysql.Store, db *sql.DB) {
	t.Helper()
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	if _, err := newLimiter(s).Allow(t.Context(), headgate.MustParse("gcra 1/s"), "k"); err != nil {
		t.Errorf("a charge after Migrate: %v", err)
	}
	storetest.Define(t, s, store.Item{Name: "api", Text: "gcra 1/s"})
	if d, err := callTake(t, db, "headgate_take", "api", "k", "1"); err != nil || d.allowed != 1 {
		t.Errorf("headgate_take after Migrate: got %+v, %v; want allowed 1", d, err)
	}
}

// TestRemoveCanBeRepeatedAfterAFailure checks that after a Remove that has failed in the middle, Migrate makes the
// schema again, and another Remove completes the removal.
func TestRemoveCanBeRepeatedAfterAFailure(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	url := dbtest.MariaDB(t)
	openAndMigrate(t, url)
	db := openPlainDB(t, url)
	expectUsable(t, interruptRemoval(t, url, db), db)
	if err := interruptRemoval(t, url, db).Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := listObjects(t, db); len(got) > 0 {
		t.Errorf("after the second Remove: got %q, want nothing", got)
	}
}

// interruptRemoval cancels a Remove while it waits for a table, checks that the procedures are gone by then and charges
// return ErrSetup, and returns a store on the database.
func interruptRemoval(t *testing.T, url string, db *sql.DB) *mysql.Store {
	t.Helper()
	tx := beginTx(t, db)
	mustExec(t, tx, "SELECT * FROM headgate_entries")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	removeErr := make(chan error, 1)
	go func() { removeErr <- openStore(t, url).Remove(ctx) }()
	await.Until(t, "the removal to wait for a table", func() (waits bool) {
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) > 0 FROM information_schema.processlist WHERE "+
			"db = DATABASE() AND state = 'Waiting for table metadata lock'").Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
	remaining := listObjects(t, db)
	cancel()
	if err := await.Receive(t, "the error of Remove", removeErr); err == nil {
		t.Fatal("Remove of a table in use: got no error")
	}
	if len(remaining) == 0 || slices.Contains(remaining, "headgate_take()") {
		t.Errorf("during Remove: got %q, want the tables without the procedures", remaining)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, url)
	if _, err := newLimiter(s).Allow(t.Context(), headgate.MustParse("gcra 1/s"), "k"); !errors.Is(err, store.ErrSetup) {
		t.Errorf("a charge after the failed Remove: got %v, want ErrSetup", err)
	}
	return s
}

// TestRemoveRefusesANewerSchema checks that Removal and Remove return ErrSchemaNewer for a schema of a newer binary.
func TestRemoveRefusesANewerSchema(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, conn := openStore(t, url), openSession(t, url)
	mustExec(t, conn, "INSERT INTO headgate_schema_version (version) VALUES (99)")
	defer mustExec(t, conn, "DELETE FROM headgate_schema_version WHERE version = 99")
	if _, err := s.Removal(t.Context()); !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("Removal: got %v, want ErrSchemaNewer", err)
	}
	if err := s.Remove(t.Context()); !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("Remove: got %v, want ErrSchemaNewer", err)
	}
}
