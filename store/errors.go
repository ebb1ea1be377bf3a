package store

import (
	"errors"
	"fmt"

	"github.com/headgate/headgate/law"
)

// The classes of failure, for errors.Is. Every error of a driver wraps one of them, or a context error. None of them is
// ever an admission.
var (
	// ErrInvalid: the caller's fault. Nothing was done.
	ErrInvalid = law.ErrInvalid
	// ErrConflict: other transactions were in the way until the deadline. Nothing was done; a retry is safe.
	ErrConflict = errors.New("conflict with other transactions")
	// ErrHeld: another transaction holds a row. It is ErrConflict too. A batch with PassHeld returns it, and package
	// coalesce passes it on to a caller whose other groups were decided.
	ErrHeld = fmt.Errorf("%w: a row is held", ErrConflict)
	// ErrVersion: the catalog was changed since it was read. It is ErrConflict too. Nothing was changed; read it and
	// decide again.
	ErrVersion = fmt.Errorf("%w: the catalog was changed since it was read", ErrConflict)
	// ErrUnavailable: the store could not be reached, or it could not do what was asked, for lack of disk or memory,
	// say. Nothing was done; a retry is safe.
	ErrUnavailable = errors.New("store unavailable")
	// ErrBusy: too many callers wait for the store. It is ErrUnavailable too.
	ErrBusy = fmt.Errorf("%w: too many callers are waiting", ErrUnavailable)
	// ErrNoSpace: the disk of the store is full. It is ErrUnavailable too.
	ErrNoSpace = fmt.Errorf("%w: its disk is full", ErrUnavailable)
	// ErrReadOnly: this node of the store takes no writes.
	ErrReadOnly = errors.New("store is read-only")
	// ErrUnknownOutcome: the ops were sent, and no answer came back or none that can be read. They may have been
	// charged; a retry may charge twice. It is the only class under which something may have been done.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrSetup: schema, rights or credentials are not as they must be.
	ErrSetup = errors.New("store is not set up")
	// ErrSchemaNewer: the schema was migrated by a newer binary.
	ErrSchemaNewer = errors.New("schema is newer than this binary")
	// ErrFull: the store holds as many keys as it may, and each could still refuse a request. Nothing was admitted.
	ErrFull = errors.New("store is full")
	// ErrUnsupported: the store cannot do this, for example reserve for a later start in several slots of a Redis
	// Cluster. Nothing was sent, and nothing was done.
	ErrUnsupported = errors.New("not supported by this store")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
)

// classes are what Class returns: the first that matches. An unknown outcome outweighs everything else; ErrBusy and
// ErrNoSpace are ErrUnavailable too; ErrHeld and ErrVersion count as ErrConflict.
var classes = []error{
	ErrUnknownOutcome, ErrInvalid, ErrUnsupported, ErrConflict, ErrBusy, ErrNoSpace, ErrFull, ErrReadOnly,
	ErrSchemaNewer, ErrSetup, ErrClosed, ErrUnavailable,
}

// NothingDone reports whether an error says that nothing was done: it has a class other than ErrUnknownOutcome.
func NothingDone(err error) bool {
	class := Class(err)
	return class != nil && !errors.Is(class, ErrUnknownOutcome)
}

// Class returns the class of an error, or nil if it has none.
func Class(err error) error {
	for _, c := range classes {
		if errors.Is(err, c) {
			return c
		}
	}
	return nil
}
