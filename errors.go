package headgate

import (
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
