package postgres

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/store"
)

func TestErrorClasses(t *testing.T) {
	for _, tt := range []struct {
		code, message string
		is            error
	}{
		{"40001", "could not serialize access due to concurrent update", store.ErrConflict},
		{"40P01", "deadlock detected", store.ErrConflict},
		{"XX000", "Restart read required at: { read: 1 }", store.ErrConflict},
		{"XX000", "All transparent retries exhausted. could not serialize access", store.ErrConflict},
		{"XX000", "Operation failed. Try again: Value write after transaction start: kConflict, aborted by a conflict", store.ErrConflict},
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
	} {
		err := classify("ask", fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: tt.code, Message: tt.message}))
		if !errors.Is(err, tt.is) {
			t.Errorf("%s %s: %v, want %v", tt.code, tt.message, err, tt.is)
		}
	}
	if err := classify("ask", io.ErrUnexpectedEOF); !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("a lost answer: %v", err)
	}
	if err := classify("connect", errors.New("cannot parse postgres://u:secret@h/d password=secret")); strings.Contains(err.Error(), "secret") {
		t.Errorf("a password is shown: %v", err)
	}
}

func TestServersThatAreTooOldAreNamed(t *testing.T) {
	for _, tt := range []struct {
		number, version string
		ok              bool
	}{
		{"150018", "PostgreSQL 15.18", true},
		{"130000", "PostgreSQL 13.0", true},
		{"120022", "PostgreSQL 12.22", false},
		{"90624", "PostgreSQL 9.6.24", false},
		{"110002", "PostgreSQL 11.2-YB-2.20.1.0-b0", true},
		{"130000", "CockroachDB CCL v24.1", true},
	} {
		if err := checkVersion(tt.number, tt.version); (err == nil) != tt.ok || err != nil && !errors.Is(err, store.ErrSetup) {
			t.Errorf("%s: %v", tt.version, err)
		}
	}
}
