package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	lost   func() bool     // whether the store had what the file says, and has it no more
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

// again returns store.ErrUnavailable in the place of an error which says that a limit is not known, if the file has the
// limit and the store has lost it: within a second the file is applied again. It returns all other errors as they are.
func (n *earlyNames) again(ctx context.Context, err error, charges ...headgate.Charge) error {
	if errors.Is(err, headgate.ErrUnknownLimit) && n.file.FindAll(ctx, slices.Clone(charges)) == nil && n.lost() {
		return fmt.Errorf("%w: it has lost its limits; the config file is applied again", store.ErrUnavailable)
	}
	return err
}

// Find implements headgate.Names.
func (n *earlyNames) Find(ctx context.Context, name, key string) (headgate.Limit, error) {
	l, err := n.Catalog.Find(ctx, name, key)
	if n.early(err) {
		if ours, missing := n.file.Find(ctx, name, key); missing == nil {
			return ours, nil
		}
	}
	if err == nil {
		return l, nil
	}
	named, wrong := headgate.Named(name)
	if wrong != nil {
		return l, err
	}
	return l, n.again(ctx, err, headgate.Charge{Limit: named, Key: key})
}

// FindAll implements headgate.Names.
func (n *earlyNames) FindAll(ctx context.Context, charges []headgate.Charge) error {
	err := n.Catalog.FindAll(ctx, charges)
	if n.early(err) && n.file.FindAll(ctx, charges) == nil {
		return nil
	}
	return n.again(ctx, err, charges...)
}

// Kept implements service.Keeper.
func (e *earlyNames) Kept() (*catalog.Catalog, error) { return e.Catalog, nil }
