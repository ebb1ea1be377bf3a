package headgate

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Errors, for errors.Is. The classes of a store's failures are in package
// store. A refusal is not an error, it is a [Decision].
var (
	// ErrInvalid: the request itself is wrong; the message names the field.
	// Nothing was asked of the store and nothing was charged.
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

// ErrDenied is what every [DeniedError] is, for errors.Is.
var ErrDenied = errors.New("denied")

// ErrDeadline: the charges could start only after the context's deadline. Nothing
// was charged. It is also [context.DeadlineExceeded], as the error of a context that
// has ended is.
var ErrDeadline error = deadlineError{}

type deadlineError struct{}

func (deadlineError) Error() string { return "the deadline comes before the start" }

// Is makes the error a context.DeadlineExceeded.
func (deadlineError) Is(target error) bool { return target == context.DeadlineExceeded }

// DeniedError is a refusal, for those verbs that have no other way to tell it:
// [Limiter.Wait], [Limiter.Await] and [Limiter.WithLease], [Reservation.Sleep], [Limited],
// [TokenRequester] and [Pace], and package httplimit.
type DeniedError struct {
	Decision Decision
}

// Error says which limit refused, and when it will not.
func (e *DeniedError) Error() string {
	d := &e.Decision
	if d.RetryAfter == Never {
		return fmt.Sprintf("limit %s refuses %q: the cost is more than can ever pass at once", d.LimitName, d.Key)
	}
	return fmt.Sprintf("limit %s refuses %q: try again in %s", d.LimitName, d.Key, d.RetryAfter)
}

// Is reports whether target is ErrDenied.
func (*DeniedError) Is(target error) bool { return target == ErrDenied }
