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

// mark adds to the class of an error.
type mark int

const (
	// notSent is an error that came before anything was sent.
	notSent mark = iota
	// undone is an error of the server after which nothing of the batch is left: its COMMIT had not begun, and the
	// rest was rolled back.
	undone
	// unsure is an error of a COMMIT that may have been done, whatever the error says.
	unsure
	// lockWait is an error that came because a lock was waited for long enough. What waited is not repeated as it
	// is: see store.PassHeld.
	lockWait
	// raced is an error that came because others have made a cell since it was found missing. Nothing of the batch
	// is left.
	raced
)

// marked is an error with a mark.
type marked struct {
	error
	mark
}

func (e *marked) Unwrap() error { return e.error }

func (m mark) of(err error) error { return &marked{err, m} }

// on reports whether an error has the mark.
func (m mark) on(err error) bool {
	e, ok := errors.AsType[*marked](err)
	return ok && (e.mark == m || m.on(e.error))
}

// nothingDone marks an error after which nothing is done, whether it is one of the server
// or of the way to it. It leaves what else has a class as it is.
func nothingDone(err error) error {
	if err == nil || store.Class(err) != nil {
		return err
	}
	if number, _ := numberOf(err); number != 0 {
		return undone.of(err)
	}
	return notSent.of(err)
}

// The numbers of some errors.
const (
	errLockWait       = 1205
	errTableFull      = 1114 // no error of a COMMIT
	errDiskFull       = 1021
	errNotImplemented = 1235
	errNotPrepared    = 1243
	errDuplicate      = 1062
	errNoTable        = 1146
	errNoProcedure    = 1305
	errNoRight        = 1370 // to call it
	errInterrupted    = 1317
	errSignalled      = 1644 // by headgate_fail
	errOutOfRange     = 1690 // BIGINT value: see guard, and needsLongText
	errUnknown        = 1105
	errNoCall         = 8108 // TiDB, which has no procedures
	errWriteConflict  = 9007 // TiDB
)

// numberOf returns the number of an error of the server, and its text. TiDB gives some errors of its storage a number
// that says nothing.
func numberOf(err error) (number uint16, text string) {
	var my *driver1.MySQLError
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

// needsLongText reports whether a text failed that is short for the usual case, an existing key.
func needsLongText(err error) bool {
	number, _ := numberOf(err)
	return number == errOutOfRange
}

// numbers are the classes of errors of the server that mean the same wherever they
// come from. COMMIT too gives those of the first two, and has rolled back then.
var numbers = func() map[uint16]error {
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

// known returns the class of an error by its number and text; nil for an error of
// the server that has none by these alone.
func known(my *driver1.MySQLError) error {
	switch {
	case my.Number == 1305 && strings.HasPrefix(my.Message, "SAVEPOINT"):
		return store.ErrConflict // see Store.begin
	case my.Number == 1180 && strings.HasPrefix(my.Message, "Got error 149 "):
		return store.ErrConflict // Group Replication: a deadlock during COMMIT, rolled back
	}
	number, _ := numberOf(my)
	return numbers[number]
}

// class returns which of the store's errors err is. An error of the server that is
// not listed, such as that a disk is full or that the statement was killed, says
// nothing of its own about what was done: it is ErrUnavailable if that is known to
// be nothing, else ErrUnknownOutcome.
func class(err error) error {
	switch {
	case errors.Is(err, store.ErrSetup):
		return store.ErrSetup // a session that will not do
	case unsure.on(err):
		return store.ErrUnknownOutcome
	case raced.on(err):
		return store.ErrConflict
	}
	if my, ok := errors.AsType[*driver1.MySQLError](err); ok {
		if c := known(my); c != nil {
			return c
		}
		switch {
		case !undone.on(err) && !notSent.on(err):
			return store.ErrUnknownOutcome
		case my.Number == errTableFull, my.Number == errDiskFull, strings.Contains(my.Message, "No space left"):
			return store.ErrNoSpace
		}
		return store.ErrUnavailable
	}
	if tlsFailed(err) {
		return store.ErrSetup
	}
	if notSent.on(err) || errors.Is(err, driver.ErrBadConn) {
		return store.ErrUnavailable
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return store.ErrUnavailable
	}
	// The text was sent, and no answer came back.
	return store.ErrUnknownOutcome
}

// classify wraps an error with what was being done and its class; nil stays nil.
func classify(doing string, err error) error {
	if err == nil {
		return nil
	}
	c := class(err)
	if errors.Is(err, c) {
		return fmt.Errorf("mysql: %s: %w", doing, err)
	}
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
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("mysql: %s: %w: %w", doing, c, err)
	}
	return fmt.Errorf("mysql: %s: %w: %s", doing, c, text)
}

// classifyRead classifies an error of a read.
func classifyRead(doing string, err error) error { return classify(doing, nothingDone(err)) }

// again reports whether an error of do may be met by a retry.
func again(err error) bool {
	return !lockWait.on(err) && errors.Is(class(err), store.ErrConflict)
}
