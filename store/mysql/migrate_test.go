package mysql_test

import (
	"context"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store/mysql"
)

// TestMigrationsBesideKills migrates databases while KILL QUERY ends statements in another
// one. On MariaDB that interrupts what reads information_schema.triggers in any database.
func TestMigrationsBesideKills(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	busy, db := openAt(t, url), plain(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	for range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				_, _ = takeLone(ctx, busy) // TestLoneChargesKilledAtAnyTime counts these
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
		s, err := mysql.Open(t.Context(), dbtest.MariaDB(t), nil)
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
