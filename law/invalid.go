package law

import (
	"errors"
	"fmt"
)

// ErrInvalid is the class, for errors.Is, of all errors of malformed requests and settings. Nothing was charged.
var ErrInvalid = errors.New("invalid request")

// InvalidError is an error in a request or setting. It is an ErrInvalid.
type InvalidError struct {
	Field   string // the wrong part of the request, such as cost, key or limit; "": not known
	Problem string // what is wrong with the field
}

// Invalid returns an [*InvalidError].
func Invalid(field, format string, args ...any) error {
	return &InvalidError{field, fmt.Sprintf(format, args...)}
}

// Error returns the field and the problem, without the class.
func (e *InvalidError) Error() string {
	if e.Field == "" {
		return e.Problem
	}
	return e.Field + ": " + e.Problem
}

// Is makes the error an ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }
