package mysql_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/mysql"
)

// TestMigrateSucceedsDuringKillQuery checks that Migrate succeeds while KILL QUERY ends statements in another database
// of the server. On MariaDB that interrupts reads of information_schema.triggers in any database.
func TestMigrateSucceedsDuringKillQuery(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	busyStore, db := openKillable(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	for range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				_, _ = takeSingle(ctx, busyStore) // TestSingleChargesKilledAtAnyTime checks such charges
			}
		}()
	}
	go func() {
		defer func() { done <- struct{}{} }()
		for ctx.Err() == nil {
			killStatements(ctx, db)
		}
	}()
	for range 8 {
		s, err := mysql.Open(t.Context(), dbtest.MariaDBAt(t, packageServer(t))[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		// The report of an attempt includes what an interrupted attempt before it has made.
		report, err := s.Migrate(t.Context())
		if text := strings.Join(report, "; "); err != nil || !strings.Contains(text, "applied tables/001_cells.sql") ||
			!strings.Contains(text, "installed the procedures") {
			t.Errorf("got report %q, %v; want tables and procedures", report, err)
		}
	}
	cancel()
	for range 5 {
		<-done
	}
}

// TestMigrateContinuesAfterAnInterruption checks that Migrate continues where the server has interrupted a statement.
func TestMigrateContinuesAfterAnInterruption(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	f := &failingConnector{
		Connector: newConnector(t, url), prefix: "INSERT IGNORE INTO headgate_schema_version",
		err: &driver.MySQLError{Number: 1317, Message: "Query execution was interrupted"},
	}
	db := sql.OpenDB(f)
	t.Cleanup(func() { db.Close() })
	report, err := mysql.New(db, nil).Migrate(t.Context())
	if text := strings.Join(report, "; "); err != nil || f.prefix != "" ||
		!strings.Contains(text, "applied tables/001_cells.sql") || !strings.Contains(text, "installed the procedures") {
		t.Errorf("got report %q, %v; want tables and procedures", report, err)
	}
	s := mysql.New(openMultiDB(t, url), nil)
	if report, err := s.Migrate(t.Context()); err != nil || !strings.Contains(report[0], "nothing to do") {
		t.Errorf("Migrate again: got %q, %v; want nothing to do", report, err)
	}
}
