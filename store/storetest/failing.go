package storetest

import (
	"context"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Failing is a store that answers every batch with an error, and does nothing. It is safe for concurrent use.
type Failing struct {
	store.Store
	Err error
}

// Apply returns the error, or that of a context that has ended.
func (f Failing) Apply(ctx context.Context, _ []law.Op, outs []law.Outcome) error {
	store.Void(outs)
	if err := ctx.Err(); err != nil {
		return err
	}
	return f.Err
}
