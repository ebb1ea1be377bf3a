package wrap

import (
	"context"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Inner is the store behind a wrapper. It passes on what the wrapper does not do itself.
type Inner struct {
	store.Store
	one store.OneTaker // Store, if it is one
}

// Around returns the Inner of a store.
func Around(s store.Store) Inner {
	one, _ := s.(store.OneTaker)
	return Inner{s, one}
}

// Unwrap implements store.Unwrapper.
func (i *Inner) Unwrap() store.Store { return i.Store }

// TakeOne implements store.OneTaker. A store that is not a OneTaker decides nothing here.
func (i *Inner) TakeOne(ctx context.Context, cell law.Cell, p *law.Params, cost int64) (b store.Brief, decided bool) {
	if i.one == nil {
		return b, false
	}
	return i.one.TakeOne(ctx, cell, p, cost)
}
