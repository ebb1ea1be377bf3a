package wrap

import (
	"context"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

var (
	_ store.Store     = Failing{}
	_ store.Inspector = Failing{}
	_ store.Catalog   = Failing{}
)

// Failing is a store that cannot be used: every method but Close returns Err.
type Failing struct{ Err error }

// Apply implements store.Store.
func (f Failing) Apply(context.Context, []law.Op, []law.Outcome) error { return f.Err }

// Sweep implements store.Store.
func (f Failing) Sweep(context.Context, int) (int, error) { return 0, f.Err }

// Close implements store.Store.
func (f Failing) Close() error { return nil }

// Cells implements store.Inspector.
func (f Failing) Cells(context.Context, store.Query) ([]store.Cell, int64, error) {
	return nil, 0, f.Err
}

// Entries implements store.Inspector.
func (f Failing) Entries(context.Context, law.Cell, int) ([]law.Entry, error) { return nil, f.Err }

// KeyCounts implements store.Inspector.
func (f Failing) KeyCounts(context.Context) ([]store.KeyCount, error) { return nil, f.Err }

// ReadCatalog implements store.Catalog.
func (f Failing) ReadCatalog(context.Context, int64) (c store.CatalogChanges, err error) {
	return c, f.Err
}

// Items implements store.Catalog.
func (f Failing) Items(context.Context, []store.Item) (int64, []store.Item, error) {
	return 0, nil, f.Err
}

// ItemsAfter implements store.Catalog.
func (f Failing) ItemsAfter(context.Context, store.Kind, store.Item, int) ([]store.Item, error) {
	return nil, f.Err
}

// WriteCatalog implements store.Catalog.
func (f Failing) WriteCatalog(context.Context, store.Edit) (int64, error) { return 0, f.Err }

// CatalogVersions implements store.Catalog.
func (f Failing) CatalogVersions(context.Context, int64, int) ([]store.Version, error) {
	return nil, f.Err
}

// RecordAction implements store.Catalog.
func (f Failing) RecordAction(context.Context, store.Action) error { return f.Err }

// Actions implements store.Catalog.
func (f Failing) Actions(context.Context, int64, int) ([]store.Action, error) { return nil, f.Err }
