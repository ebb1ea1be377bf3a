package headgate

import (
	"context"
	"errors"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Errors, for errors.Is. The classes of a store's failures are in package
// store. A refusal is not an error, it is a [Decision].
var (
	// ErrInvalid: the request itself is wrong; the message names the field.
	// The store was not called and nothing was charged.
	ErrInvalid = law.ErrInvalid
	// ErrUnknownLimit: no limit of that name is known. It is an ErrInvalid.
	ErrUnknownLimit error = &InvalidError{Field: "limit", Problem: "unknown"}
	// ErrUnsupported: the store cannot do this, for example list its cells.
	ErrUnsupported = store.ErrUnsupported
)

// InvalidError says which field of a request is wrong, and why. It is an [ErrInvalid];
// errors.As finds it in most errors that are.
type InvalidError = law.InvalidError

// Invalid returns an [*InvalidError].
func Invalid(field, format string, args ...any) error { return law.Invalid(field, format, args...) }

// ErrDenied is the class of every [DeniedError].
var ErrDenied = errors.New("denied")

// ErrDeadline: the charges could start only after the context's deadline. Nothing
// was charged. It is also [context.DeadlineExceeded], as the error of a context that
// has ended is.
var ErrDeadline error = deadlineError{}

type deadlineError struct{}

func (deadlineError) Error() string { return "the deadline comes before the start" }

// Is makes the error a context.DeadlineExceeded.
func (deadlineError) Is(target error) bool { return target == context.DeadlineExceeded }

// What can be wrong with an id, for errors.Is. Nothing was done then.
var (
	// ErrReused: the id was admitted before, with other charges.
	ErrReused = law.ErrReused
	// ErrUnknownID: nothing of this id was admitted, or so long ago that it was
	// forgotten.
	ErrUnknownID = law.ErrUnknownID
	// ErrSettled: it was settled or cancelled before.
	ErrSettled = law.ErrSettled
)
