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

// TestEveryErrorOfTheServerHasAClass checks the class of every error number that the protocol can carry. If COMMIT may
// have failed, only the errors listed here may say that nothing was done.
func TestEveryErrorOfTheServerHasAClass(t *testing.T) {
	t.Parallel()
	classes := []error{
		store.ErrConflict, store.ErrUnavailable, store.ErrUnknownOutcome, store.ErrReadOnly,
		store.ErrSetup, store.ErrInvalid,
	}
	atCommit := []uint16{
		1213, 1205, 1020, 3572, 3101, 9007, 8002, 8022, 8028, // rolled back
		1290, 1792, 1836, 1047, // refused by a server that is read-only, or has no quorum
		1040, 1129, 1203, 1226, 1461, 1044, 1045, 1049, 1130, 1698, 3159, // refused before any statement
		1054, 1064, 1142, 1143, 1146, 1227, 1305, 1370, 1419, 1449, 1665, 4151, // no error of a COMMIT
		1153, 1264, 1366, 1406, 1644, 1690,
	}
	for n := range 1 << 16 {
		err := &driver.MySQLError{Number: uint16(n), Message: "text"}
		for _, classified := range []error{mysql.Classify(err), mysql.Undone(err)} {
			found := 0
			for _, class := range classes {
				if errors.Is(classified, class) {
					found++
				}
			}
			if found != 1 {
				t.Fatalf("%d: %v has %d classes", n, classified, found)
			}
		}
		if got := errors.Is(mysql.Classify(err), store.ErrUnknownOutcome); got == slices.Contains(atCommit, uint16(n)) {
			t.Errorf("%d while it is not known whether COMMIT began: unknown outcome is %v", n, got)
		}
		if errors.Is(mysql.Undone(err), store.ErrUnknownOutcome) {
			t.Errorf("%d before COMMIT: %v", n, mysql.Undone(err))
		}
	}
}

func TestErrorsOfCommitAndBefore(t *testing.T) {
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
			t.Errorf("maybe of COMMIT: %v, want %v", got, tt.commit)
		}
		if got := mysql.Undone(err); !errors.Is(got, tt.before) {
			t.Errorf("before COMMIT: %v, want %v", got, tt.before)
		}
	}
	for _, err := range []error{
		driver.ErrInvalidConn, driver.ErrMalformPkt, context.Canceled,
		errors.New("read tcp: connection reset by peer"),
	} {
		if got := mysql.Classify(err); !errors.Is(got, store.ErrUnknownOutcome) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestAKilledStatementChargesNothing kills a charge that waits for a lock: its COMMIT has not begun, so the error must
// say that nothing was done.
func TestAKilledStatementChargesNothing(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDBAt(t, ownServer(t))[0]
	openAt(t, url)
	db := pool(t, url)
	l := limiter(mysql.New(db, nil))
	charge := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/1h burst 5"), Key: "k"}
	if _, err := l.Take(t.Context(), charge); err != nil {
		t.Fatal(err)
	}
	tx := beginTx(t, plainDB(t, url))
	run(t, tx, "UPDATE headgate_cells SET reason = reason")
	failed := make(chan error, 1)
	go func() {
		_, err := l.Take(context.Background(), charge)
		failed <- err
	}()
	killWaiting(t, db, "FOR UPDATE", failed)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if d, err := l.Check(t.Context(), charge); err != nil || d.Remaining != 4 {
		t.Errorf("then: %+v, %v; want one charge", d, err)
	}
}

// TestModesThatChangeTheTextAreRefused uses servers with such sql_modes, and sets one later: nothing may be charged.
func TestModesThatChangeTheTextAreRefused(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	charge := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/1h burst 5"), Key: "k"}
	if _, err := plainDB(t, url).ExecContext(t.Context(), "SET sql_mode = 'ORACLE'"); err != nil {
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
			t.Errorf("%s: open: %v", mode, err)
		}
		s := mysql.New(pool(t, url, "sql_mode=%27"+mode+"%27"), nil)
		if d, err := limiter(s).Take(t.Context(), charge); !errors.Is(err, store.ErrSetup) ||
			!strings.Contains(err.Error(), "sql_mode has ") || d.Allowed {
			t.Errorf("%s: %+v, %v", mode, d, err)
		}
		if _, err := s.Migrate(t.Context()); !errors.Is(err, store.ErrSetup) {
			t.Errorf("%s: migrate: %v", mode, err)
		}
	}

	db := pool(t, url)
	db.SetMaxOpenConns(1)
	l := limiter(mysql.New(db, nil))
	if _, err := l.Take(t.Context(), charge); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "SET SESSION sql_mode = 'ORACLE'"); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]taker{"plain": l, "with an id": l.Once("id", time.Hour)} {
		if _, err := l.Take(t.Context(), charge); !errors.Is(err, store.ErrSetup) ||
			!strings.Contains(err.Error(), "sql_mode has ORACLE") {
			t.Errorf("set later, %s: %v", name, err)
		}
	}
	if _, err := db.ExecContext(t.Context(), "SET SESSION sql_mode = ''"); err != nil {
		t.Fatal(err)
	}
	if d, err := l.Check(t.Context(), charge); err != nil || d.Remaining != 4 {
		t.Errorf("then: %+v, %v; want one charge", d, err)
	}
}
