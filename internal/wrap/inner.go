package wrap

import (
	"context"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Inner is the store behind a wrapper, which embeds it: calls that the wrapper does not handle go to Store.
type Inner struct {
	store.Store
	oneTaker store.OneTaker // Store as a OneTaker; nil if it is none
}

// Around returns the Inner of a store.
func Around(s store.Store) Inner {
	oneTaker, _ := s.(store.OneTaker)
	return Inner{s, oneTaker}
}

// Unwrap implements store.Unwrapper.
func (i *Inner) Unwrap() store.Store { return i.Store }

// TakeOne implements store.OneTaker. It decides nothing if Store is no OneTaker.
func (i *Inner) TakeOne(ctx context.Context, cell law.Cell, p *law.Params, cost int64) (b store.Brief, decided bool) {
	if i.oneTaker == nil {
		return b, false
	}
	return i.oneTaker.TakeOne(ctx, cell, p, cost)
}
