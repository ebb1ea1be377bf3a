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

// Every statement is a transaction of its own. An ERROR or FATAL that PostgreSQL
// reports has rolled it back: nothing was done. Three kinds of failure can come
// after the commit was written, and leave it unknown: those of codesUnknown, a PANIC,
// whose cause recovery may find committed, and a connection that breaks.

// codes are the classes of single SQLSTATEs.
var codes = map[string]error{
	"40003": store.ErrUnknownOutcome, // statement completion unknown
	"57P01": store.ErrUnknownOutcome, // admin shutdown: also of a session that has committed
	"57P02": store.ErrUnknownOutcome, // crash shutdown

	"25006": store.ErrReadOnly,
	"25P03": store.ErrUnavailable, // idle in transaction for too long, of the caller's
	"25P04": store.ErrUnavailable, // transaction timeout
	"40002": store.ErrSetup,       // a constraint of somebody's
	"53100": store.ErrNoSpace,     // disk full
	"55006": store.ErrConflict,    // object in use
	"55P03": store.ErrConflict,    // lock not available, lock_timeout
}

// codeClasses are the classes of the other SQLSTATEs, by their first two
// characters: those of the manual's appendix A. What is not here is ErrSetup: the
// server is not as it must be, by its schema, a trigger or an extension.
var codeClasses = map[string]error{
	"08": store.ErrUnknownOutcome, // connection exceptions, a pooler's among them
	"22": store.ErrInvalid,        // data exceptions
	"25": store.ErrInvalid,        // the caller's transaction has failed before
	"40": store.ErrConflict,       // transaction rollbacks
	"53": store.ErrUnavailable,    // out of disk, memory or connections
	"54": store.ErrInvalid,        // program limits
	"57": store.ErrUnavailable,    // cancelled, timed out, starting up, idle for too long
	"58": store.ErrUnavailable,    // input and output
	"XX": store.ErrUnavailable,    // internal errors, corrupted data
}

// notSent marks an error from before a statement was sent.
type notSent struct{ error }

func (e *notSent) Unwrap() error { return e.error }

// unreadable marks an error over a statement that was carried out.
type unreadable struct{ error }

func (e *unreadable) Unwrap() error { return e.error }

// class returns which of the store's errors err is.
func class(err error) error {
	for _, c := range []error{
		store.ErrUnknownOutcome, store.ErrInvalid, store.ErrConflict, store.ErrReadOnly,
		store.ErrSetup, store.ErrNoSpace, store.ErrUnavailable,
	} {
		if errors.Is(err, c) {
			return c // it was classified before
		}
	}
	var unsent *notSent
	var connect *pgconn.ConnectError
	before := errors.As(err, &unsent) || errors.As(err, &connect) || pgconn.SafeToRetry(err)
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		c := sqlstate(pg)
		if before && !errors.Is(c, store.ErrSetup) {
			return store.ErrUnavailable
		}
		return c
	}
	switch {
	case tlsconf.Failed(err), connect != nil && strings.Contains(err.Error(), "server refused TLS connection"):
		return store.ErrSetup
	case before:
		return store.ErrUnavailable
	}
	// The statement was sent, and no answer came back or none that can be read.
	return store.ErrUnknownOutcome
}

// sqlstate returns the class of an error that a server has reported.
func sqlstate(pg *pgconn.PgError) error {
	says := func(texts ...string) bool {
		for _, text := range texts {
			if strings.Contains(pg.Message, text) {
				return true
			}
		}
		return false
	}
	switch c := codes[pg.Code]; {
	case pg.SeverityUnlocalized == "PANIC" || len(pg.Code) != 5:
		return store.ErrUnknownOutcome
	case c != nil:
		return c
	// YugabyteDB, whose codes have varied, and whose commit can time out.
	case says("Restart read", "kAborted", "aborted by a conflict", "All transparent retries exhausted"):
		return store.ErrConflict
	case pg.Code[:2] == "XX" && says("Timed out", "timed out", "Network error", "Service unavailable"):
		return store.ErrUnknownOutcome
	}
	if c := codeClasses[pg.Code[:2]]; c != nil {
		return c
	}
	return store.ErrSetup
}

// classify wraps an error with what was being done and its class. The text
// never holds a password.
func classify(doing string, err error) error { return described(doing, class(err), err) }

// classifyRead is classify for what only reads: nothing can have been done.
func classifyRead(doing string, err error) error {
	c := class(err)
	if errors.Is(c, store.ErrUnknownOutcome) {
		c = store.ErrUnavailable
	}
	return described(doing, c, err)
}

// inTheWay reports whether an error says that a transaction holds what is to be locked, and that
// the statement did not wait, or has waited for as long as its setting lock_timeout allows.
func inTheWay(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "55P03"
}

// failed is classify for the ops of a batch. Inside a transaction of the caller's
// nothing is committed yet: what broke it has rolled it back. Only an answer that
// cannot be read leaves something in it.
func (s *Store) failed(ops int, err error) error {
	doing := fmt.Sprintf("apply %d ops", ops)
	// a binary of another layout may have migrated
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42883" {
		s.checked.Store(false)
	}
	var answer *unreadable
	switch {
	case s.pool == nil && !errors.As(err, &answer):
		return classifyRead(doing, err)
	case waited(err):
		return &lockWait{classify(doing, err)}
	}
	return classify(doing, err)
}

func described(doing string, c, err error) error {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("postgres: %s: %w: %w", doing, c, err)
	case errors.As(err, &pg):
		text := fmt.Sprintf("%s (SQLSTATE %s)", hidePassword(pg.Message), pg.Code)
		switch pg.Code {
		case "42P01", "3F000", "42883":
			text += ": run headgate migrate"
		case "42P05", "26000": // there is such a prepared statement, or none
			text += ": clients share a session, as behind pgbouncer or with PGlite; say pooler=transaction in the URL"
		}
		return fmt.Errorf("postgres: %s: %w: %s", doing, c, text)
	}
	return fmt.Errorf("postgres: %s: %w: %s", doing, c, hidePassword(err.Error()))
}

var password = regexp.MustCompile(`(://[^:@/\s]*:|password=)[^@/\s]*`)

func hidePassword(s string) string { return password.ReplaceAllString(s, "${1}xxxxx") }

// lockWait marks an error that came because a lock was waited for long enough: nothing was
// done, and what waited is not repeated as it is. See applyPassing.
type lockWait struct{ error }

func (e *lockWait) Unwrap() error { return e.error }

func waited(err error) bool {
	var e *lockWait
	return errors.As(err, &e)
}

// retry repeats do while it conflicts with other transactions, until the
// deadline. Nothing that may have been done is repeated, and nothing inside a
// transaction of the caller's.
func (s *Store) retry(ctx context.Context, do func() error) error {
	if s.pool == nil {
		return do()
	}
	repeated, err := store.Retry(ctx, s.cfg.RetryFor, do,
		func(err error) bool { return errors.Is(class(err), store.ErrConflict) && !waited(err) })
	s.repeats.Add(int64(repeated))
	store.Observe(s.cfg.Observer, repeated, err)
	return err
}
