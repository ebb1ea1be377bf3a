package headgate

import (
	"errors"
	"fmt"

	"github.com/headgate/headgate/law"
)

// Errors, for errors.Is. The classes of a store's failures are in package
// store. A refusal is not an error, it is a [Decision].
var (
	// ErrInvalid: the request itself is wrong; the message names the field.
	// Nothing was asked of the store and nothing was charged.
	ErrInvalid = law.ErrInvalid
	// ErrUnknownLimit: no limit of that name is known. It is an ErrInvalid.
	ErrUnknownLimit = fmt.Errorf("%w: unknown limit", law.ErrInvalid)
	// ErrUnsupported: the store cannot do this, for example list its cells.
	ErrUnsupported = errors.New("not supported by this store")
)

// invalid returns an ErrInvalid about a field.
func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrInvalid, field, fmt.Sprintf(format, args...))
}
