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

// TestMigrationsBesideKills migrates databases while KILL QUERY ends statements in another one. On MariaDB that
// interrupts reads of information_schema.triggers in any database.
func TestMigrationsBesideKills(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	busy, db := openKillable(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	for range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				_, _ = takeSingle(ctx, busy) // TestSingleChargesKilledAtAnyTime counts these
			}
		}()
	}
	go func() {
		defer func() { done <- struct{}{} }()
		for ctx.Err() == nil {
			killAll(ctx, db)
		}
	}()
	for range 8 {
		s, err := mysql.Open(t.Context(), dbtest.MariaDBAt(t, ownServer(t))[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		// What an attempt has made that was interrupted is in the report of the next one.
		report, err := s.Migrate(t.Context())
		if all := strings.Join(report, "; "); err != nil || !strings.Contains(all, "applied tables/001_cells.sql") ||
			!strings.Contains(all, "installed the procedures") {
			t.Errorf("%q, %v", report, err)
		}
	}
	cancel()
	for range 5 {
		<-done
	}
}

// TestAMigrationThatIsInterrupted interrupts a migration, which must continue where it was interrupted.
func TestAMigrationThatIsInterrupted(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	b := &breaker{
		Connector: connector(t, url), like: "INSERT IGNORE INTO headgate_schema_version",
		err: &driver.MySQLError{Number: 1317, Message: "Query execution was interrupted"},
	}
	db := sql.OpenDB(b)
	t.Cleanup(func() { db.Close() })
	report, err := mysql.New(db, nil).Migrate(t.Context())
	if all := strings.Join(report, "; "); err != nil || b.like != "" ||
		!strings.Contains(all, "applied tables/001_cells.sql") || !strings.Contains(all, "installed the procedures") {
		t.Errorf("%q, %v", report, err)
	}
	s := mysql.New(pool(t, url), nil)
	if report, err := s.Migrate(t.Context()); err != nil || !strings.Contains(report[0], "nothing to do") {
		t.Errorf("again: %q, %v", report, err)
	}
}
