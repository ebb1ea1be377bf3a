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

// earlyNames finds limits in the catalog of a server, or in the config file until the store was reached for the first
// time, so that each limit's policy for an outage counts.
type earlyNames struct {
	*catalog.Catalog
	file          *config.Config
	opened        <-chan struct{} // closed when the store was reached
	hasLostLimits func() bool     // reports whether the store has lost the limits of the file
}

// Find implements headgate.Names.
func (n *earlyNames) Find(ctx context.Context, name, key string) (headgate.Limit, error) {
	l, err := n.Catalog.Find(ctx, name, key)
	limit, nameErr := headgate.Named(name)
	if err == nil || nameErr != nil {
		return l, err
	}
	charges := []headgate.Charge{{Limit: limit, Key: key}}
	err = n.fallBack(ctx, err, charges)
	return charges[0].Limit, err
}

// FindAll implements headgate.Names.
func (n *earlyNames) FindAll(ctx context.Context, charges []headgate.Charge) error {
	return n.fallBack(ctx, n.Catalog.FindAll(ctx, charges), charges)
}

// fallBack finds limits in the file if the catalog failed and the store was never reached. It replaces
// headgate.ErrUnknownLimit by store.ErrUnavailable if the file has the limits and the store has lost them, since the
// file is applied again within a second.
func (n *earlyNames) fallBack(ctx context.Context, err error, charges []headgate.Charge) error {
	switch {
	case errors.Is(err, store.ErrUnavailable):
		select {
		case <-n.opened:
		default:
			if _, read := n.Version(); read.IsZero() && n.file.FindAll(ctx, charges) == nil {
				return nil
			}
		}
	case errors.Is(err, headgate.ErrUnknownLimit) && n.file.FindAll(ctx, slices.Clone(charges)) == nil &&
		n.hasLostLimits():
		return fmt.Errorf("%w: it has lost its limits; the config file is applied again", store.ErrUnavailable)
	}
	return err
}

// StoreCatalog implements service.CatalogHolder.
func (n *earlyNames) StoreCatalog() (*catalog.Catalog, error) { return n.Catalog, nil }
