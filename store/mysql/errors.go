package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"

	driver1 "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/store"
)

var errBadConn = driver.ErrBadConn

// notSent marks an error that came before anything was sent.
type notSent struct{ err error }

func (e *notSent) Error() string { return e.err.Error() }
func (e *notSent) Unwrap() error { return e.err }

// class returns which of the store's errors err is; nil if none.
func class(err error) error {
	var my *driver1.MySQLError
	if errors.As(err, &my) {
		switch my.Number {
		case 1180:
			if strings.HasPrefix(my.Message, "Got error 149 ") { // Group Replication: rolled back
				return store.ErrConflict
			}
			return store.ErrUnknownOutcome // failed while committing
		case 1305:
			if strings.HasPrefix(my.Message, "SAVEPOINT") {
				return store.ErrConflict // see plan.text
			}
			return store.ErrSetup
		case 1213, 1205, 1020, 3572, 3101, // deadlock, lock wait, record changed, nowait, overtaken by another node of a group
			9007, 8002, 8022, 8028: // TiDB: write conflict, and errors of a transaction that may be repeated
			return store.ErrConflict
		case 1290, 1792, 1836: // read-only server, transaction, mode
			return store.ErrReadOnly
		case 1047, 1040, 1203, 1226, 1461: // node without quorum; too many connections, or prepared statements
			return store.ErrUnavailable
		case 1053, 1317, 1927, 3024, 1969, 3169: // shutting down; the statement was killed, or ran out of time
			return store.ErrUnknownOutcome
		case 1406, 1366, 1264, 1690, 1153:
			return store.ErrInvalid
		case 1044, 1045, 1049, 1142, 1143, 1146, 1227, 1370, 1419, 1054, 1064, 1665, 1698, 4151:
			return store.ErrSetup
		}
		return nil
	}
	var refused *notSent
	if errors.As(err, &refused) || errors.Is(err, driver.ErrBadConn) {
		return store.ErrUnavailable
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return store.ErrUnavailable
	}
	// The text was sent, and no answer came back.
	return store.ErrUnknownOutcome
}

// classify wraps an error with what was being done and its class.
func classify(doing string, err error) error {
	c := class(err)
	text := err.Error()
	var my *driver1.MySQLError
	if errors.As(err, &my) {
		text = my.Message
		switch my.Number {
		case 1146, 1305, 1054:
			if errors.Is(c, store.ErrSetup) {
				text += ": run headgate migrate"
			}
		case 1665:
			text += ": set binlog_format to ROW or MIXED"
		case 1419:
			text += ": migrate as a user with the right, or set log_bin_trust_function_creators"
		}
	}
	switch {
	case c == nil:
		return fmt.Errorf("mysql: %s: %w", doing, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("mysql: %s: %w: %w", doing, c, err)
	}
	return fmt.Errorf("mysql: %s: %w: %s", doing, c, text)
}

// again tells whether an error of do may be met by asking again.
func again(err error) bool { return errors.Is(class(err), store.ErrConflict) }
