package mysql_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// TestEveryErrorNumberHasOneClass checks that every error number of the protocol has exactly one class. After a text
// with a COMMIT, only the numbers in knownAtCommit have a known outcome; before a COMMIT, all have.
func TestEveryErrorNumberHasOneClass(t *testing.T) {
	t.Parallel()
	classes := []error{
		store.ErrConflict, store.ErrUnavailable, store.ErrUnknownOutcome, store.ErrReadOnly,
		store.ErrSetup, store.ErrInvalid,
	}
	knownAtCommit := []uint16{
		1213, 1205, 1020, 3572, 3101, 9007, 8002, 8022, 8028, // rolled back
		1290, 1792, 1836, 1047, // refused by a server that is read-only, or has no quorum
		1040, 1129, 1203, 1226, 1461, 1044, 1045, 1049, 1130, 1698, 3159, // refused before any statement
		1054, 1064, 1142, 1143, 1146, 1227, 1305, 1370, 1419, 1449, 1665, 4151, // no error of a COMMIT
		1153, 1264, 1366, 1406, 1644, 1690,
	}
	for n := range 1 << 16 {
		err := &driver.MySQLError{Number: uint16(n), Message: "text"}
		for _, classified := range []error{mysql.Classify(err), mysql.Undone(err)} {
			count := 0
			for _, class := range classes {
				if errors.Is(classified, class) {
					count++
				}
			}
			if count != 1 {
				t.Fatalf("%d: got %d classes of %v, want 1", n, count, classified)
			}
		}
		want := !slices.Contains(knownAtCommit, uint16(n))
		if got := errors.Is(mysql.Classify(err), store.ErrUnknownOutcome); got != want {
			t.Errorf("%d, maybe of a COMMIT: got unknown outcome %v, want %v", n, got, want)
		}
		if errors.Is(mysql.Undone(err), store.ErrUnknownOutcome) {
			t.Errorf("%d before COMMIT: got %v, want a known outcome", n, mysql.Undone(err))
		}
	}
}

// TestErrorClassesAtAndBeforeCommit checks the classes of errors that may be a COMMIT's, and of errors before a COMMIT.
func TestErrorClassesAtAndBeforeCommit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		number         uint16
		message        string
		commit, before error
	}{
		{
			3101, "Plugin instructed the server to rollback the current transaction.", store.ErrConflict,
			store.ErrConflict,
		},
		{
			1180, "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT", store.ErrConflict,
			store.ErrConflict,
		},
		{1180, "Got error 1490 during COMMIT", store.ErrUnknownOutcome, store.ErrUnavailable},
		{1180, "Got error 28 \"No space left on device\" during COMMIT", store.ErrUnknownOutcome, store.ErrNoSpace},
		{1020, "Record has changed since last read in table 'headgate_cells'", store.ErrConflict, store.ErrConflict},
		{1213, "Deadlock found", store.ErrConflict, store.ErrConflict},
		{1047, "WSREP has not yet prepared node", store.ErrUnavailable, store.ErrUnavailable},
		{1021, "Disk full", store.ErrUnknownOutcome, store.ErrNoSpace},
		{1114, "The table is full", store.ErrUnknownOutcome, store.ErrNoSpace},
		{1041, "Out of memory", store.ErrUnknownOutcome, store.ErrUnavailable},
		{1317, "Query execution was interrupted", store.ErrUnknownOutcome, store.ErrUnavailable},
		{1927, "Connection was killed", store.ErrUnknownOutcome, store.ErrUnavailable},
		{1969, "max_statement_time exceeded", store.ErrUnknownOutcome, store.ErrUnavailable},
		{3024, "maximum statement execution time exceeded", store.ErrUnknownOutcome, store.ErrUnavailable},
		{1053, "Server shutdown in progress", store.ErrUnknownOutcome, store.ErrUnavailable},
		{1267, "Illegal mix of collations", store.ErrUnknownOutcome, store.ErrUnavailable},
		{1644, "transaction: innodb_snapshot_isolation is on", store.ErrInvalid, store.ErrInvalid},
	} {
		err := &driver.MySQLError{Number: tt.number, Message: tt.message}
		if got := mysql.Classify(err); !errors.Is(got, tt.commit) {
			t.Errorf("%s, maybe of a COMMIT: got %v, want %v", tt.message, got, tt.commit)
		}
		if got := mysql.Undone(err); !errors.Is(got, tt.before) {
			t.Errorf("%s, before COMMIT: got %v, want %v", tt.message, got, tt.before)
		}
	}
	for _, err := range []error{
		driver.ErrInvalidConn, driver.ErrMalformPkt, context.Canceled,
		errors.New("read tcp: connection reset by peer"),
	} {
		if got := mysql.Classify(err); !errors.Is(got, store.ErrUnknownOutcome) {
			t.Errorf("%v: got %v, want ErrUnknownOutcome", err, got)
		}
	}
}

// TestAKilledStatementChargesNothing checks that a charge that is killed while it waits for a lock, before its COMMIT,
// charges nothing and returns an error that says so.
func TestAKilledStatementChargesNothing(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDBAt(t, packageServer(t))[0]
	openAndMigrate(t, url)
	db := openMultiDB(t, url)
	l := newLimiter(mysql.New(db, nil))
	charge := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/1h burst 5"), Key: "k"}
	if _, err := l.Take(t.Context(), charge); err != nil {
		t.Fatal(err)
	}
	tx := beginTx(t, openPlainDB(t, url))
	mustExec(t, tx, "UPDATE headgate_cells SET reason = reason")
	failed := make(chan error, 1)
	go func() {
		_, err := l.Take(context.Background(), charge)
		failed <- err
	}()
	killWaitingStatement(t, db, "FOR UPDATE", failed)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if d, err := l.Check(t.Context(), charge); err != nil || d.Remaining != 4 {
		t.Errorf("after the kill: got %+v, %v; want one charge", d, err)
	}
}

// TestSQLModesThatChangeTheTextAreRefused checks that stores whose sessions have such an SQL mode, from the beginning
// or later, return ErrSetup and charge nothing.
func TestSQLModesThatChangeTheTextAreRefused(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	charge := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/1h burst 5"), Key: "k"}
	if _, err := openPlainDB(t, url).ExecContext(t.Context(), "SET sql_mode = 'ORACLE'"); err != nil {
		var my *driver.MySQLError
		if !errors.As(err, &my) || my.Number != 1231 {
			t.Fatal(err)
		}
		t.Skipf("this server has no such modes: %v", err)
	}
	for _, mode := range []string{
		"ORACLE", "EMPTY_STRING_IS_NULL", "SIMULTANEOUS_ASSIGNMENT",
		"ANSI_QUOTES,SIMULTANEOUS_ASSIGNMENT",
	} {
		if _, err := mysql.Open(t.Context(), url+"?sql_mode=%27"+mode+"%27", nil); !errors.Is(err, store.ErrSetup) ||
			!strings.Contains(err.Error(), "sql_mode has ") {
			t.Errorf("%s: Open: got %v, want ErrSetup with sql_mode", mode, err)
		}
		s := mysql.New(openMultiDB(t, url, "sql_mode=%27"+mode+"%27"), nil)
		if d, err := newLimiter(s).Take(t.Context(), charge); !errors.Is(err, store.ErrSetup) ||
			!strings.Contains(err.Error(), "sql_mode has ") || d.Allowed {
			t.Errorf("%s: Take: got %+v, %v; want ErrSetup with sql_mode", mode, d, err)
		}
		if _, err := s.Migrate(t.Context()); !errors.Is(err, store.ErrSetup) {
			t.Errorf("%s: Migrate: got %v, want ErrSetup", mode, err)
		}
	}

	db := openMultiDB(t, url)
	db.SetMaxOpenConns(1)
	l := newLimiter(mysql.New(db, nil))
	if _, err := l.Take(t.Context(), charge); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, "SET SESSION sql_mode = 'ORACLE'")
	for name, limiter := range map[string]taker{"plain": l, "with an id": l.Once("id", time.Hour)} {
		if _, err := limiter.Take(t.Context(), charge); !errors.Is(err, store.ErrSetup) ||
			!strings.Contains(err.Error(), "sql_mode has ORACLE") {
			t.Errorf("set later, %s: got %v, want ErrSetup with ORACLE", name, err)
		}
	}
	mustExec(t, db, "SET SESSION sql_mode = ''")
	if d, err := l.Check(t.Context(), charge); err != nil || d.Remaining != 4 {
		t.Errorf("without the mode: got %+v, %v; want one charge", d, err)
	}
}
