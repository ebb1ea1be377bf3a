package headgate

import (
	"context"
	"errors"
	"fmt"
)

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
