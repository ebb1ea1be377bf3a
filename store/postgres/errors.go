package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/store"
)

// class returns which of the store's errors err is; nil if none.
func class(err error) error {
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg):
		switch pg.Code {
		case "40001", "40P01", "55P03":
			return store.ErrConflict
		case "25006":
			return store.ErrReadOnly
		case "57P03", "53300": // starting up or shutting down; too many connections
			return store.ErrUnavailable
		case "40003", "57P01", "57P02":
			return store.ErrUnknownOutcome
		case "22021", "22001", "22003", "22023", "54000":
			return store.ErrInvalid
		}
		switch {
		case strings.Contains(pg.Message, "Restart read"), strings.Contains(pg.Message, "kAborted"),
			strings.Contains(pg.Message, "aborted by a conflict"), strings.Contains(pg.Message, "All transparent retries exhausted"):
			return store.ErrConflict // YugabyteDB, whose codes have varied
		}
		switch pg.Code[:2] {
		case "42", "3F", "28", "3D", "0A": // no such object, no right to it, no such database
			return store.ErrSetup
		case "08":
			return store.ErrUnknownOutcome
		}
		return nil
	case pgconn.SafeToRetry(err):
		return store.ErrUnavailable
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return store.ErrUnavailable
	}
	// The statement was sent, and no answer came back.
	return store.ErrUnknownOutcome
}

// classify wraps an error with what was being done and its class. The text
// never holds a password.
func classify(doing string, err error) error {
	c := class(err)
	text := hidePassword(err.Error())
	var pg *pgconn.PgError
	if errors.As(err, &pg) && c != nil {
		text = pg.Message
		if pg.Code == "42P01" || pg.Code == "3F000" || pg.Code == "42883" {
			text += ": run headgate migrate"
		}
	}
	switch {
	case c == nil:
		return fmt.Errorf("postgres: %s: %w", doing, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("postgres: %s: %w: %w", doing, c, err)
	}
	return fmt.Errorf("postgres: %s: %w: %s", doing, c, text)
}

var password = regexp.MustCompile(`(://[^:@/\s]*:|password=)[^@/\s]*`)

func hidePassword(s string) string { return password.ReplaceAllString(s, "${1}xxxxx") }

// retry repeats do while it conflicts with other transactions, until the
// deadline. Nothing that may have been done is repeated, and nothing inside a
// transaction of the caller's.
func (s *Store) retry(ctx context.Context, do func() error) error {
	if s.pool == nil {
		return do()
	}
	repeated, err := store.Retry(ctx, s.cfg.RetryFor, do, func(err error) bool { return errors.Is(class(err), store.ErrConflict) })
	s.repeats.Add(int64(repeated))
	return err
}
