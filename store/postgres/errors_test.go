package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/store"
)

// TestErrorClasses checks the class of SQLSTATEs and messages, the hints of some, and that no password is shown.
func TestErrorClasses(t *testing.T) {
	for _, tt := range []struct {
		code, message string
		class         error
	}{
		{"40001", "could not serialize access due to concurrent update", store.ErrConflict},
		{"40P01", "deadlock detected", store.ErrConflict},
		{"XX000", "Restart read required at: { read: 1 }", store.ErrConflict},
		{"XX000", "All transparent retries exhausted. could not serialize access", store.ErrConflict},
		{
			"XX000", "Operation failed. Try again: Value write after transaction start: kConflict, aborted by a conflict",
			store.ErrConflict,
		},
		{"XX000", "Transaction 4a1b expired or aborted by a conflict: 40001 (kAborted)", store.ErrConflict},
		{"25006", "cannot execute INSERT in a read-only transaction", store.ErrReadOnly},
		{"57P03", "the database system is starting up", store.ErrUnavailable},
		{"53300", "too many connections", store.ErrUnavailable},
		{"40003", "result is ambiguous", store.ErrUnknownOutcome},
		{"57P01", "terminating connection due to administrator command", store.ErrUnknownOutcome},
		{"22021", "invalid byte sequence", store.ErrInvalid},
		{"28P01", "password authentication failed", store.ErrSetup},
		{"42501", "permission denied for schema headgate", store.ErrSetup},
		{"42P01", "relation does not exist", store.ErrSetup},
		{"57014", "canceling statement due to statement timeout", store.ErrUnavailable},
		{"53100", "could not extend file: No space left on device", store.ErrNoSpace},
		{"53200", "out of memory", store.ErrUnavailable},
		{"58030", "could not read block 0", store.ErrUnavailable},
		{"57P05", "terminating connection due to idle-session timeout", store.ErrUnavailable},
		{"25P04", "terminating connection due to transaction timeout", store.ErrUnavailable},
		{"25P02", "current transaction is aborted", store.ErrInvalid},
		{"55P03", "canceling statement due to lock timeout", store.ErrConflict},
		{"57P02", "terminating connection because of crash of another server process", store.ErrUnknownOutcome},
		{"08P01", "server conn crashed?", store.ErrUnknownOutcome},
		{"XX000", "unexpected data beyond EOF", store.ErrUnavailable},
		{"XX000", "Timed out waiting for the transaction to commit", store.ErrUnknownOutcome},
		{"P0001", "a trigger of somebody's", store.ErrSetup},
		{"", "a server that names no SQLSTATE", store.ErrUnknownOutcome},
	} {
		err := classify("apply 1 ops", fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: tt.code, Message: tt.message}))
		if !errors.Is(err, tt.class) {
			t.Errorf("%s %s: got %v, want %v", tt.code, tt.message, err, tt.class)
		}
	}
	for code, hint := range map[string]string{
		"42P01": "run headgate migrate", "42P05": "say pooler=transaction", "26000": "say pooler=transaction",
	} {
		err := classify("apply 1 ops", &pgconn.PgError{Code: code, Message: "wrong"})
		if !errors.Is(err, store.ErrSetup) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: got %v, want the hint: %s", code, err, hint)
		}
	}
	if err := classify("apply 1 ops", io.ErrUnexpectedEOF); !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("a lost answer: got %v, want ErrUnknownOutcome", err)
	}
	if err := classify("connect", errors.New("cannot parse postgres://u:secret@h/d password=secret")); strings.Contains(
		err.Error(), "secret") {
		t.Errorf("got %v, want no password", err)
	}
}

// TestEverySQLSTATEHasOneClass checks three codes of each class in appendix A of PostgreSQL's manual. An ERROR has a
// known outcome, except in class 08 and for 57P01. A PANIC has none: it may follow the commit.
func TestEverySQLSTATEHasOneClass(t *testing.T) {
	classes := []error{
		store.ErrInvalid, store.ErrConflict, store.ErrUnavailable, store.ErrUnknownOutcome,
		store.ErrReadOnly, store.ErrSetup,
	}
	countClasses := func(err error) (n int) {
		for _, c := range classes {
			if errors.Is(err, c) {
				n++
			}
		}
		return n
	}
	for _, prefix := range strings.Fields(
		"00 01 02 03 08 09 0A 0B 0F 0L 0P 0Z 10 20 21 22 23 24 25 26 27 28 2B 2D 2F 34 38 39 3B 3D 3F 40 42 44 53 54 55 57 58 72 F0 HV P0 XX 99") {
		for _, suffix := range []string{"000", "001", "P01"} {
			pg := &pgconn.PgError{Code: prefix + suffix, SeverityUnlocalized: "ERROR"}
			err := classify("apply 1 ops", pg)
			isUnknown := prefix == "08" || pg.Code == "57P01"
			if n := countClasses(err); n != 1 || errors.Is(err, store.ErrUnknownOutcome) != isUnknown {
				t.Errorf("%s: got %d classes of %v, want 1, unknown outcome %t", pg.Code, n, err, isUnknown)
			}
			pg.SeverityUnlocalized = "PANIC"
			if err := classify("apply 1 ops", pg); !errors.Is(err, store.ErrUnknownOutcome) || countClasses(err) != 1 {
				t.Errorf("PANIC %s: got %v, want ErrUnknownOutcome alone", pg.Code, err)
			}
		}
	}
}

// TestBatchErrorDependsOnTheTransaction checks classes of errors in a transaction of the store and one of the caller.
func TestBatchErrorDependsOnTheTransaction(t *testing.T) {
	txStore, poolStore := &Store{}, &Store{pool: &pgxpool.Pool{}}
	for _, tt := range []struct {
		name               string
		err                error
		poolClass, txClass error
	}{
		{"no connection is free", &notSentError{context.DeadlineExceeded}, store.ErrUnavailable, store.ErrUnavailable},
		{
			"the pool has met a shutdown", &notSentError{&pgconn.PgError{Code: "57P01"}}, store.ErrUnavailable,
			store.ErrUnavailable,
		},
		{"the password is wrong", &notSentError{&pgconn.PgError{Code: "28P01"}}, store.ErrSetup, store.ErrSetup},
		{"the connection broke", io.ErrUnexpectedEOF, store.ErrUnknownOutcome, store.ErrUnavailable},
		{"the deadline passed", context.DeadlineExceeded, store.ErrUnknownOutcome, store.ErrUnavailable},
		{
			"the answer has a NULL", markUnreadable(pgx.ScanArgError{Err: errors.New("cannot scan NULL")}),
			store.ErrUnknownOutcome, store.ErrUnknownOutcome,
		},
		{"the answer has no row", markUnreadable(pgx.ErrNoRows), store.ErrUnknownOutcome, store.ErrUnknownOutcome},
		{
			"the answer is short", &unreadableError{errors.New("13 numbers")}, store.ErrUnknownOutcome,
			store.ErrUnknownOutcome,
		},
		{"the session was terminated", &pgconn.PgError{Code: "57P01"}, store.ErrUnknownOutcome, store.ErrUnavailable},
	} {
		if err := poolStore.batchError(1, tt.err); !errors.Is(err, tt.poolClass) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.poolClass)
		}
		if err := txStore.batchError(1, tt.err); !errors.Is(err, tt.txClass) {
			t.Errorf("%s, in the caller's transaction: got %v, want %v", tt.name, err, tt.txClass)
		}
	}
	if err := classifyRead("read", io.ErrUnexpectedEOF); !errors.Is(err, store.ErrUnavailable) ||
		errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("a read whose connection broke: got %v, want ErrUnavailable", err)
	}
}

// TestOldServersAreErrSetup checks that checkVersion refuses PostgreSQL before 13, and accepts any YugabyteDB.
func TestOldServersAreErrSetup(t *testing.T) {
	for _, tt := range []struct {
		number, version string
		accepted        bool
	}{
		{"150018", "PostgreSQL 15.18", true},
		{"130000", "PostgreSQL 13.0", true},
		{"120022", "PostgreSQL 12.22", false},
		{"90624", "PostgreSQL 9.6.24", false},
		{"110002", "PostgreSQL 11.2-YB-2.20.1.0-b0", true},
	} {
		if err := checkVersion(tt.number, tt.version); (err == nil) != tt.accepted || err != nil &&
			!errors.Is(err, store.ErrSetup) {
			t.Errorf("%s: got %v, want accepted %t", tt.version, err, tt.accepted)
		}
	}
}
