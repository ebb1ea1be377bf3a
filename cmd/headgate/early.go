package main

import (
	"context"
	"errors"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/server/config"
	"github.com/headgate/headgate/store"
)

// earlyNames finds limits in the catalogue of a server. Until the store was reached for the first
// time it finds those of the config file, so that each answers as it says while the store is away.
type earlyNames struct {
	*catalog.Catalog
	file   *config.Config
	opened <-chan struct{} // closed when the store was reached
}

// early reports whether an error of the catalogue says that the store was never reached.
func (n *earlyNames) early(err error) bool {
	if !errors.Is(err, store.ErrUnavailable) {
		return false
	}
	select {
	case <-n.opened:
		return false
	default:
		_, at := n.Version()
		return at.IsZero()
	}
}

// Find implements headgate.Names.
func (n *earlyNames) Find(ctx context.Context, name, key string) (headgate.Limit, error) {
	l, err := n.Catalog.Find(ctx, name, key)
	if n.early(err) {
		if ours, missing := n.file.Find(ctx, name, key); missing == nil {
			return ours, nil
		}
	}
	return l, err
}

// FindAll implements headgate.Names.
func (n *earlyNames) FindAll(ctx context.Context, charges []headgate.Charge) error {
	err := n.Catalog.FindAll(ctx, charges)
	if n.early(err) && n.file.FindAll(ctx, charges) == nil {
		return nil
	}
	return err
}

// Kept implements service.Keeper.
func (e *earlyNames) Kept() (*catalog.Catalog, error) { return e.Catalog, nil }
