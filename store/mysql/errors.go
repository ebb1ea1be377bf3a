package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/store"
)

var errBadConn = driver.ErrBadConn

// mark is what this package knows about an error beyond its number and text.
type mark int

const (
	// notSent marks an error that came before anything was sent.
	notSent mark = iota
	// undone marks an error of the server after which nothing of the batch remains: its COMMIT had not begun, and the
	// rest was rolled back.
	undone
	// unsure marks an error of a COMMIT that may have succeeded, whatever the error says.
	unsure
	// lockWait marks the error of a batch that has waited for a lock for too long. The batch is not repeated unchanged:
	// see store.PassHeld.
	lockWait
	// raced marks the error of a batch because others have made a cell after the batch had found it missing. Nothing of
	// the batch remains.
	raced
)

// markedError is an error with a mark.
type markedError struct {
	error
	mark
}

func (e *markedError) Unwrap() error { return e.error }

func (m mark) wrap(err error) error { return &markedError{err, m} }

// in reports whether an error has the mark.
func (m mark) in(err error) bool {
	e, ok := errors.AsType[*markedError](err)
	return ok && (e.mark == m || m.in(e.error))
}

// markNothingDone marks an error of the server as undone, and any other error as notSent, for calls that cannot have
// charged anything. It returns nil, and an error that has a class of package store, as it is.
func markNothingDone(err error) error {
	if err == nil || store.Class(err) != nil {
		return err
	}
	if number, _ := numberOf(err); number != 0 {
		return undone.wrap(err)
	}
	return notSent.wrap(err)
}

// The numbers of some errors.
const (
	errLockWait       = 1205
	errTableFull      = 1114 // a COMMIT never returns it
	errDiskFull       = 1021
	errNotImplemented = 1235
	errNotPrepared    = 1243
	errDuplicate      = 1062
	errNoTable        = 1146
	errNoProcedure    = 1305
	errNoRight        = 1370 // to call a procedure
	errInterrupted    = 1317
	errSignalled      = 1644 // by headgate_fail
	errOutOfRange     = 1690 // BIGINT value: see guard and isOverflow
	errUnknown        = 1105
	errNoCall         = 8108 // TiDB, which has no procedures
	errWriteConflict  = 9007 // TiDB
)

// numberOf returns the number and the text of an error of the server; 0 for other errors. TiDB gives some errors of its
// storage a number that says nothing, which numberOf replaces.
func numberOf(err error) (number uint16, text string) {
	var my *mysqldriver.MySQLError
	switch {
	case !errors.As(err, &my):
		return 0, ""
	case my.Number == errUnknown && my.Message == "lock wait timeout":
		return errLockWait, my.Message
	case my.Number == errUnknown && my.Message == "pessimistic lock retry limit reached":
		return errWriteConflict, my.Message
	}
	return my.Number, my.Message
}

// isOverflow reports whether a statement of sums failed by the overflow that it provokes: see sums_text.go.
func isOverflow(err error) bool {
	number, _ := numberOf(err)
	return number == errOutOfRange
}

// classes are the classes of the server's errors, by number, that mean the same for every statement. A COMMIT can
// return errors of ErrConflict and ErrReadOnly, and has rolled back then.
var classes = func() map[uint16]error {
	m := make(map[uint16]error)
	for class, list := range map[error][]uint16{
		// Deadlock, lock wait, record changed, nowait; Group Replication: rolled back by
		// the plugin; TiDB: write conflict, and errors of a transaction that may be repeated.
		store.ErrConflict: {1213, errLockWait, 1020, 3572, 3101, errWriteConflict, 8002, 8022, 8028},
		// Read-only server, transaction, mode.
		store.ErrReadOnly: {1290, 1792, 1836},
		// A node without quorum; too many connections, or prepared statements; a host that is blocked.
		store.ErrUnavailable: {1047, 1040, 1129, 1203, 1226, 1461},
		store.ErrInvalid:     {1406, 1366, 1264, 1690, 1153, 1644},
		store.ErrSetup: {
			1044, 1045, 1049, 1054, 1064, 1130, 1142, 1143, 1146, 1227, 1305, 1370, 1419, 1449, 1665, 1698,
			3159, 4151,
		},
	} {
		for _, n := range list {
			m[n] = class
		}
	}
	return m
}()

// classByNumber returns the class of an error of the server by its number and text; nil if these do not tell.
func classByNumber(my *mysqldriver.MySQLError) error {
	switch {
	case my.Number == 1305 && strings.HasPrefix(my.Message, "SAVEPOINT"):
		return store.ErrConflict // the transaction was rolled back, and its savepoint with it
	case my.Number == 1180 && strings.HasPrefix(my.Message, "Got error 149 "):
		return store.ErrConflict // Group Replication: a deadlock during COMMIT, rolled back
	}
	number, _ := numberOf(my)
	return classes[number]
}

// class returns the class of an error. An error of the server that has none by its number, such as a killed statement
// or a full disk, does not say what was done: marked as undone or notSent it is ErrUnavailable or ErrNoSpace, else
// ErrUnknownOutcome.
func class(err error) error {
	switch {
	case errors.Is(err, store.ErrSetup):
		return store.ErrSetup // a wrong session
	case unsure.in(err):
		return store.ErrUnknownOutcome
	case raced.in(err):
		return store.ErrConflict
	}
	if my, ok := errors.AsType[*mysqldriver.MySQLError](err); ok {
		if c := classByNumber(my); c != nil {
			return c
		}
		switch {
		case !undone.in(err) && !notSent.in(err):
			return store.ErrUnknownOutcome
		case my.Number == errTableFull, my.Number == errDiskFull, strings.Contains(my.Message, "No space left"):
			return store.ErrNoSpace
		}
		return store.ErrUnavailable
	}
	if tlsFailed(err) {
		return store.ErrSetup
	}
	if notSent.in(err) || errors.Is(err, driver.ErrBadConn) {
		return store.ErrUnavailable
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return store.ErrUnavailable
	}
	// The text was sent, and no answer came back.
	return store.ErrUnknownOutcome
}

// classify wraps an error with its class, the action that has failed, and for some errors a remedy; nil stays nil.
func classify(action string, err error) error {
	if err == nil {
		return nil
	}
	c := class(err)
	if errors.Is(err, c) {
		return fmt.Errorf("mysql: %s: %w", action, err)
	}
	text := err.Error()
	if my, ok := errors.AsType[*mysqldriver.MySQLError](err); ok {
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
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("mysql: %s: %w: %w", action, c, err)
	}
	return fmt.Errorf("mysql: %s: %w: %s", action, c, text)
}

// classifyRead classifies an error of a read, whose outcome is never unknown.
func classifyRead(action string, err error) error { return classify(action, markNothingDone(err)) }

// isRetryable reports whether an error is a conflict, which left nothing done, and not marked as lockWait.
func isRetryable(err error) bool {
	return !lockWait.in(err) && errors.Is(class(err), store.ErrConflict)
}
