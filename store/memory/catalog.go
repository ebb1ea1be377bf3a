package memory

import (
	"context"
	"slices"
	"sync"

	"github.com/headgate/headgate/store"
)

// maxVersions is how many versions of the catalog are kept.
const maxVersions = 1000

// catalog implements store.Catalog for a Store, which embeds it.
type catalog struct {
	ready func(context.Context) error
	clock store.Clock

	mu       sync.Mutex
	items    map[store.Item]versionedItem // by ID; removed items stay, so that ReadCatalog can report them
	versions []store.Version              // the newest is the last
	version  int64
	actions  []store.Action // the newest is the last
}

// versionedItem is an item, and the version that wrote it.
type versionedItem struct {
	item    store.Item
	version int64
}

// ReadCatalog implements store.Catalog.
func (c *catalog) ReadCatalog(ctx context.Context, since int64) (changes store.CatalogChanges, err error) {
	if err := c.ready(ctx); err != nil {
		return changes, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	changes.Version, changes.Clock = c.version, c.clock()
	changes.At, changes.SinceAt = c.writtenAt(c.version), c.writtenAt(since)
	for _, e := range c.items {
		if e.version > since && (since > 0 || !e.item.Removed && !e.item.Kind.PerKey()) {
			changes.Items = append(changes.Items, e.item)
		}
	}
	return changes, nil
}

// writtenAt returns when a version was written; 0 if it is not kept. The caller holds mu.
func (c *catalog) writtenAt(version int64) int64 {
	if i := int64(len(c.versions)) - 1 - (c.version - version); version > 0 && i >= 0 && i < int64(len(c.versions)) {
		return c.versions[i].At
	}
	return 0
}

// Items implements store.Catalog.
func (c *catalog) Items(ctx context.Context, list []store.Item) (version int64, found []store.Item, err error) {
	if err := c.ready(ctx); err != nil {
		return 0, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version, c.find(list), nil
}

// ItemsAfter implements store.Catalog. It visits all items.
func (c *catalog) ItemsAfter(ctx context.Context, kind store.Kind, after store.Item, n int) (
	list []store.Item, err error,
) {
	if err := c.ready(ctx); err != nil || n <= 0 {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, e := range c.items {
		if id.Kind == kind && !e.item.Removed && after.Less(id) {
			list = append(list, e.item)
		}
	}
	return store.FirstItems(list, n), nil
}

// find returns the items of a list that exist. The caller holds mu.
func (c *catalog) find(list []store.Item) (found []store.Item) {
	for _, item := range list {
		if e, ok := c.items[item.ID()]; ok && !e.item.Removed {
			found = append(found, e.item)
		}
	}
	return found
}

// WriteCatalog implements store.Catalog.
func (c *catalog) WriteCatalog(ctx context.Context, e store.Edit) (version int64, err error) {
	if err := c.ready(ctx); err != nil {
		return 0, err
	}
	if err := e.Valid(); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version != e.Base {
		return c.version, store.ErrVersion
	}
	changes := e.Changes(c.find(e.Items))
	if len(changes) == 0 {
		return c.version, nil
	}
	c.version++
	for _, change := range changes {
		c.items[change.After.ID()] = versionedItem{change.After, c.version}
	}
	c.versions = append(c.versions, store.Version{
		Number: c.version, At: c.clock(), Author: e.Author, Reason: e.Reason, Changes: changes,
	})
	if surplus := len(c.versions) - maxVersions; surplus > 0 {
		c.versions = append(c.versions[:0:0], c.versions[surplus:]...)
	}
	return c.version, nil
}

// CatalogVersions implements store.Catalog. The newest 1000 are kept.
func (c *catalog) CatalogVersions(ctx context.Context, before int64, n int) (list []store.Version, err error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.versions) - 1; i >= 0 && len(list) < n; i-- {
		if v := c.versions[i]; before == 0 || v.Number < before {
			list = append(list, v)
		}
	}
	return list, nil
}

// RecordAction implements store.Catalog.
func (c *catalog) RecordAction(ctx context.Context, a store.Action) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	if err := a.Valid(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a.Number, a.At = 1, c.clock()
	if n := len(c.actions); n > 0 {
		a.Number = c.actions[n-1].Number + 1
	}
	if len(c.actions) == 2*store.KeptActions {
		c.actions = slices.Delete(c.actions, 0, store.KeptActions)
	}
	c.actions = append(c.actions, a)
	return nil
}

// Actions implements store.Catalog.
func (c *catalog) Actions(ctx context.Context, before int64, n int) (list []store.Action, err error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range slices.Backward(c.actions) {
		if len(list) >= n {
			break
		}
		if before == 0 || a.Number < before {
			list = append(list, a)
		}
	}
	return list, nil
}
