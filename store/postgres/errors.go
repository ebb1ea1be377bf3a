package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/internal/tlsconf"
	"github.com/headgate/headgate/store"
)

// Every statement is a transaction of its own. If PostgreSQL reports an ERROR or FATAL, the transaction was rolled
// back: nothing was done. Three kinds of failure can follow a written commit, and leave the outcome unknown: an
// SQLSTATE with ErrUnknownOutcome below, a PANIC, after which recovery may find the commit, and a broken connection.

// stateClasses are the classes of single SQLSTATEs.
var stateClasses = map[string]error{
	"40003": store.ErrUnknownOutcome, // statement completion unknown
	"57P01": store.ErrUnknownOutcome, // admin shutdown: may also end a session that has committed
	"57P02": store.ErrUnknownOutcome, // crash shutdown

	"25006": store.ErrReadOnly,
	"25P03": store.ErrUnavailable, // the caller's transaction was idle for too long
	"25P04": store.ErrUnavailable, // transaction timeout
	"40002": store.ErrSetup,       // a constraint that somebody has added
	"53100": store.ErrNoSpace,     // disk full
	"55006": store.ErrConflict,    // object in use
	"55P03": store.ErrConflict,    // lock not available, lock_timeout
}

// prefixClasses are the classes of the other SQLSTATEs, by their first two characters as in the manual's appendix A.
// Any other SQLSTATE is ErrSetup: the schema, a trigger or an extension is wrong.
var prefixClasses = map[string]error{
	"08": store.ErrUnknownOutcome, // connection exceptions, also from a pooler
	"22": store.ErrInvalid,        // data exceptions
	"25": store.ErrInvalid,        // the caller's transaction has failed before
	"40": store.ErrConflict,       // transaction rollbacks
	"53": store.ErrUnavailable,    // out of disk, memory or connections
	"54": store.ErrInvalid,        // program limits
	"57": store.ErrUnavailable,    // cancelled, timed out, starting up, idle for too long
	"58": store.ErrUnavailable,    // input and output
	"XX": store.ErrUnavailable,    // internal errors, corrupted data
}

// notSentError marks an error from before a statement was sent.
type notSentError struct{ error }

func (e *notSentError) Unwrap() error { return e.error }

// unreadableError marks an error about the answer of a statement that was executed.
type unreadableError struct{ error }

func (e *unreadableError) Unwrap() error { return e.error }

// class returns the error of package store that classifies err.
func class(err error) error {
	for _, c := range []error{
		store.ErrUnknownOutcome, store.ErrInvalid, store.ErrConflict, store.ErrReadOnly,
		store.ErrSetup, store.ErrNoSpace, store.ErrUnavailable,
	} {
		if errors.Is(err, c) {
			return c // err was classified before
		}
	}
	var unsent *notSentError
	var connect *pgconn.ConnectError
	isUnsent := errors.As(err, &unsent) || errors.As(err, &connect) || pgconn.SafeToRetry(err)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		c := stateClass(pg)
		if isUnsent && !errors.Is(c, store.ErrSetup) {
			return store.ErrUnavailable
		}
		return c
	}
	switch {
	case tlsconf.IsHandshakeError(err),
		connect != nil && strings.Contains(err.Error(), "server refused TLS connection"):
		return store.ErrSetup
	case isUnsent:
		return store.ErrUnavailable
	}
	// The statement was sent, and no readable answer came back.
	return store.ErrUnknownOutcome
}

// stateClass returns the class of an error that a server has reported.
func stateClass(pg *pgconn.PgError) error {
	hasText := func(texts ...string) bool {
		for _, text := range texts {
			if strings.Contains(pg.Message, text) {
				return true
			}
		}
		return false
	}
	switch c := stateClasses[pg.Code]; {
	case pg.SeverityUnlocalized == "PANIC" || len(pg.Code) != 5:
		return store.ErrUnknownOutcome
	case c != nil:
		return c
	// YugabyteDB's codes vary between versions, and its commit can time out.
	case hasText("Restart read", "kAborted", "aborted by a conflict", "All transparent retries exhausted"):
		return store.ErrConflict
	case pg.Code[:2] == "XX" && hasText("Timed out", "timed out", "Network error", "Service unavailable"):
		return store.ErrUnknownOutcome
	}
	if c := prefixClasses[pg.Code[:2]]; c != nil {
		return c
	}
	return store.ErrSetup
}

// classify wraps an error with its class and the operation that failed. The text never contains a password.
func classify(operation string, err error) error { return wrapError(operation, class(err), err) }

// classifyRead classifies an error of a read, whose outcome is never unknown: a lost answer is ErrUnavailable.
func classifyRead(operation string, err error) error {
	c := class(err)
	if errors.Is(c, store.ErrUnknownOutcome) {
		c = store.ErrUnavailable
	}
	return wrapError(operation, c, err)
}

// isLockTimeout reports whether a statement failed because it waited for a lock for longer than lock_timeout.
func isLockTimeout(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "55P03"
}

// batchError classifies an error of a batch; after one about a missing function, ready checks the schema again. Inside
// the caller's transaction nothing is committed yet, and an error has rolled back the statement. Only after an
// unreadable answer may the transaction contain a charge.
func (s *Store) batchError(ops int, err error) error {
	operation := fmt.Sprintf("apply %d ops", ops)
	// A function is missing: a binary of another layout may have migrated.
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42883" {
		s.checked.Store(false)
	}
	var answer *unreadableError
	switch {
	case s.pool == nil && !errors.As(err, &answer):
		return classifyRead(operation, err)
	case isLockWait(err):
		return &lockWaitError{classify(operation, err)}
	}
	return classify(operation, err)
}

// wrapError wraps an error with its class c and the operation, hides passwords, and adds a remedy for some errors.
func wrapError(operation string, c, err error) error {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("postgres: %s: %w: %w", operation, c, err)
	case errors.As(err, &pg):
		text := fmt.Sprintf("%s (SQLSTATE %s)", hidePassword(pg.Message), pg.Code)
		switch pg.Code {
		case "42P01", "3F000", "42883":
			text += ": run headgate migrate"
		case "42P05", "26000": // a prepared statement exists already, or does not exist
			text += ": clients share a session, as behind pgbouncer or with PGlite; say pooler=transaction in the URL"
		}
		return fmt.Errorf("postgres: %s: %w: %s", operation, c, text)
	}
	return fmt.Errorf("postgres: %s: %w: %s", operation, c, hidePassword(err.Error()))
}

var passwordPattern = regexp.MustCompile(`(://[^:@/\s]*:|password=)[^@/\s]*`)

func hidePassword(s string) string { return passwordPattern.ReplaceAllString(s, "${1}xxxxx") }

// lockWaitError marks an error of a batch that waited too long for a lock and did nothing. retry does not repeat it.
type lockWaitError struct{ error }

func (e *lockWaitError) Unwrap() error { return e.error }

func isLockWait(err error) bool {
	_, ok := errors.AsType[*lockWaitError](err)
	return ok
}

// retry repeats do while it conflicts with other transactions, until the deadline. It repeats nothing that may have
// been done, and nothing inside the caller's transaction.
func (s *Store) retry(ctx context.Context, do func() error) error {
	if s.pool == nil {
		return do()
	}
	retries, err := store.Retry(ctx, s.cfg.RetryFor, do,
		func(err error) bool { return errors.Is(class(err), store.ErrConflict) && !isLockWait(err) })
	s.retries.Add(int64(retries))
	store.Observe(s.cfg.Observer, retries, err)
	return err
}
