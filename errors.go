package headgate

import (
	"context"
	"errors"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Errors, for errors.Is. Package store has the classes of a store's failures. A refusal is not an error but a
// [Decision].
var (
	// ErrInvalid: the request itself is wrong; the message names the field. Nothing was charged.
	ErrInvalid = law.ErrInvalid
	// ErrUnknownLimit: no limit of that name is known. It is an ErrInvalid.
	ErrUnknownLimit error = &InvalidError{Field: "limit", Problem: "unknown"}
	// ErrUnsupported: the store cannot do this, for example list its cells.
	ErrUnsupported = store.ErrUnsupported
)

// InvalidError says which field of a request is wrong, and why. It is an [ErrInvalid]; most errors of that class
// contain one, for errors.As.
type InvalidError = law.InvalidError

// Invalid returns an [*InvalidError].
func Invalid(field, format string, args ...any) error { return law.Invalid(field, format, args...) }

// ErrDenied is the class of every [DeniedError].
var ErrDenied = errors.New("denied")

// ErrDeadline: the charges could start only after the context's deadline, or after the longest wait that the caller
// allows. Nothing was charged. errors.Is also finds [context.DeadlineExceeded] in it.
var ErrDeadline error = deadlineError{}

type deadlineError struct{}

func (deadlineError) Error() string { return "the deadline comes before the start" }

// Is makes the error a context.DeadlineExceeded.
func (deadlineError) Is(target error) bool { return target == context.DeadlineExceeded }

// Errors about an id, for errors.Is. With each of them, nothing was charged or corrected.
var (
	// ErrReused: the id was admitted before, with other charges or for a start that lies ahead: see [Once].
	ErrReused = law.ErrReused
	// ErrUnknownID: nothing was admitted under this id, or so long ago that the id was forgotten.
	ErrUnknownID = law.ErrUnknownID
	// ErrSettled: the charge was settled or cancelled before.
	ErrSettled = law.ErrSettled
)
