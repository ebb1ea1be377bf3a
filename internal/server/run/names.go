package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/store"
)

// earlyNames finds limits in the catalog of a server. Until the store was reached for the first
// time it finds those of the config file, so that each answers as it says while the store is away.
type earlyNames struct {
	*catalog.Catalog
	file   *config.Config
	opened <-chan struct{} // closed when the store was reached
	lost   func() bool     // whether the store had what the file says, and has it no more
}

// Find implements headgate.Names.
func (n *earlyNames) Find(ctx context.Context, name, key string) (headgate.Limit, error) {
	l, err := n.Catalog.Find(ctx, name, key)
	named, wrong := headgate.Named(name)
	if err == nil || wrong != nil {
		return l, err
	}
	one := []headgate.Charge{{Limit: named, Key: key}}
	err = n.instead(ctx, err, one)
	return one[0].Limit, err
}

// FindAll implements headgate.Names.
func (n *earlyNames) FindAll(ctx context.Context, charges []headgate.Charge) error {
	return n.instead(ctx, n.Catalog.FindAll(ctx, charges), charges)
}

// instead goes by the file where the store was never reached. An error which says that a limit is not known becomes
// store.ErrUnavailable if the file has the limit and the store has lost it: within a second the file is applied again.
func (n *earlyNames) instead(ctx context.Context, err error, charges []headgate.Charge) error {
	switch {
	case errors.Is(err, store.ErrUnavailable):
		select {
		case <-n.opened:
		default:
			if _, read := n.Version(); read.IsZero() && n.file.FindAll(ctx, charges) == nil {
				return nil
			}
		}
	case errors.Is(err, headgate.ErrUnknownLimit) && n.file.FindAll(ctx, slices.Clone(charges)) == nil && n.lost():
		return fmt.Errorf("%w: it has lost its limits; the config file is applied again", store.ErrUnavailable)
	}
	return err
}

// Kept implements service.Keeper.
func (e *earlyNames) Kept() (*catalog.Catalog, error) { return e.Catalog, nil }
