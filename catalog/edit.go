package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// By is the author of a change, and the reason. A database adds its user.
type By struct {
	Author string // at most 1000 bytes, as the reason
	Reason string
	// Seen is the version that the author has seen and wants to change. If the catalog has another
	// version by then, the error is store.ErrVersion, and nothing is changed. Nil: any version.
	Seen *int64
}

// maxTries is how many times an edit is tried, each time on a newer version.
const maxTries = 10

// write writes the items that edit returns for the current version, and returns the version. If another writer comes
// first, it calls edit again with the newer version. If there are no items, it returns the current version.
func (c *Catalog) write(ctx context.Context, by By, edit func(current *snapshot) ([]store.Item, error)) (int64, error) {
	for try := 1; ; try++ {
		if err := c.Refresh(ctx); err != nil {
			return 0, err
		}
		current := c.current.Load()
		if by.Seen != nil && current.version != *by.Seen {
			return 0, fmt.Errorf("%w: it had version %d, and has %d now", store.ErrVersion, *by.Seen, current.version)
		}
		list, err := edit(current)
		if err != nil || len(list) == 0 {
			return current.version, err
		}
		if err := c.checkAcquisition(ctx, current, list); err != nil {
			return 0, err
		}
		version, err := c.backend().WriteCatalog(ctx, store.Edit{
			Base: current.version, Author: by.Author, Reason: by.Reason, Items: list,
		})
		if errors.Is(err, store.ErrVersion) && try < maxTries {
			continue
		}
		if err != nil {
			return 0, err
		}
		_ = c.Refresh(ctx) // the change is made; if this fails, the next read shows it
		return version, nil
	}
}

// Set defines limits as one version, and returns its number. A limit of the same name is replaced. The
// error is headgate.ErrInvalid, and nothing is changed, if a limit would be acquired while a plan or an
// override in its place is taken, or vice versa, and for the former name of a limit that was renamed.
func (c *Catalog) Set(ctx context.Context, by By, list ...Definition) (version int64, err error) {
	return c.write(ctx, by, func(current *snapshot) ([]store.Item, error) {
		changes, err := current.difference(list)
		return changedItems(changes), err
	})
}

// checkDefinable returns why the catalog cannot keep a limit, or nil.
func checkDefinable(d *Definition) error {
	if d.IsZero() || !d.Named() || d.Algorithm() == nil {
		return headgate.Invalid("limit", "%q has no name, or nothing but a name", d.Limit)
	}
	return nil
}

// Remove removes limits, with all names that they have. What their keys have used is kept until it no longer counts. If
// there is no limit of one of the names, the error is headgate.ErrUnknownLimit, and nothing is removed.
func (c *Catalog) Remove(ctx context.Context, by By, names ...string) (version int64, err error) {
	return c.write(ctx, by, func(current *snapshot) (items []store.Item, err error) {
		for _, name := range names {
			id := store.Item{Kind: store.KindLimit, Name: name}
			if _, ok := current.items[id]; !ok {
				return nil, current.unknownLimit(name)
			}
			cells := current.aliases.cells(name)
			for _, id.Name = range append(current.aliases.of(cells), cells) {
				if item := removed(id); !slices.Contains(items, item) { // else two names are of one limit
					items = append(items, item)
				}
			}
		}
		return items, nil
	})
}

// versionsPerPage is how many versions are read at a time.
const versionsPerPage = 100

// History returns the newest n versions with a change that [Concerns] a limit, newest first. An empty name: of all.
func (c *Catalog) History(ctx context.Context, name string, n int) (list []store.Version, err error) {
	concerns := func(change store.Change) bool { return c.Concerns(change, name) }
	for before := int64(0); len(list) < n; {
		versions, err := c.Versions(ctx, before, versionsPerPage)
		if err != nil {
			return nil, err
		}
		for _, v := range versions {
			if len(list) < n && (name == "" || slices.ContainsFunc(v.Changes, concerns)) {
				list = append(list, v)
			}
		}
		if len(versions) < versionsPerPage {
			break
		}
		before = versions[len(versions)-1].Number
	}
	return list, nil
}

// Versions returns the newest n versions with a number below before, newest first. Before 0 is no bound.
func (c *Catalog) Versions(ctx context.Context, before int64, n int) ([]store.Version, error) {
	return c.backend().CatalogVersions(ctx, before, n)
}

// Record keeps an action that somebody did to a key by hand, with the store's time. It makes no version.
func (c *Catalog) Record(ctx context.Context, a store.Action) error {
	return c.backend().RecordAction(ctx, a)
}

// Actions returns the newest n actions with a number below before, newest first. Before 0 is no bound. A store keeps
// [store.KeptActions].
func (c *Catalog) Actions(ctx context.Context, before int64, n int) ([]store.Action, error) {
	return c.backend().Actions(ctx, before, n)
}

// Rollback makes limits, plans, overrides and assignments what they were after a version. With names it does so only
// for these limits, with their plans and overrides. It makes a new version. It leaves out limits that copy a table in
// SQL, such as zones, and does not bring back items whose end is over. The error is headgate.ErrInvalid for a version
// that never existed or is no longer kept, and headgate.ErrUnknownLimit for a name that no limit had since then.
func (c *Catalog) Rollback(ctx context.Context, by By, version int64, names ...string) (int64, error) {
	return c.write(ctx, by, func(current *snapshot) (items []store.Item, err error) {
		changes, err := c.rollbackChanges(ctx, current, version, names)
		for _, change := range changes {
			items = append(items, change.After)
		}
		return items, err
	})
}

// PreviewRollback reads the catalog, and returns what Rollback would change.
func (c *Catalog) PreviewRollback(ctx context.Context, version int64, names ...string) ([]store.Change, error) {
	if err := c.Refresh(ctx); err != nil {
		return nil, err
	}
	return c.rollbackChanges(ctx, c.current.Load(), version, names)
}

// rollbackChanges returns the changes of a Rollback, made to the current version.
func (c *Catalog) rollbackChanges(ctx context.Context, current *snapshot, version int64, names []string) (
	list []store.Change, err error,
) {
	if version < 0 || version > current.version {
		return nil, headgate.Invalid("version", "there is no version %d; the newest is %d", version, current.version)
	}
	oldItems := map[store.Item]store.Item{} // by ID, before the first change after version, the last one of eachChange
	setBefore := func(change store.Change) { oldItems[change.After.ID()] = change.Before }
	if err = c.eachChange(ctx, current.version+1, version, setBefore); err != nil {
		return nil, err
	}
	for _, name := range names {
		id := store.Item{Kind: store.KindLimit, Name: name}
		if _, changed := oldItems[id]; !changed && current.items[id] == (store.Item{}) {
			return nil, current.unknownLimit(name)
		}
	}
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	current.addOtherNames(wanted, oldItems)
	items, err := c.currentItems(ctx, current, oldItems)
	if err != nil {
		return nil, err
	}
	list = (&store.Edit{Items: slices.Collect(maps.Values(oldItems))}).Changes(items)
	list = slices.DeleteFunc(list, func(change store.Change) bool {
		is, old := &change.Before, &change.After
		ended := old.Until != 0 && old.Until <= current.clock() && is.Removed
		return old.Kind == store.KindFile || followsTable(old) || followsTable(is) || ended ||
			len(names) > 0 && !wanted[concerned(change)]
	})
	sortChanges(list)
	return list, nil
}

// currentItems returns those of the items with these ids that exist, as they are now.
func (c *Catalog) currentItems(ctx context.Context, s *snapshot, ids map[store.Item]store.Item) ([]store.Item, error) {
	var items, perKey []store.Item
	for id := range ids {
		if id.Kind.PerKey() {
			perKey = append(perKey, id)
		} else if item, ok := s.items[id]; ok {
			items = append(items, item)
		}
	}
	if perKey == nil {
		return items, nil
	}
	_, found, err := c.backend().Items(ctx, perKey)
	return append(items, found...), err
}

// Between returns the net changes from one version to another, which may be the older one. The error is
// headgate.ErrInvalid for a version that never existed or is no longer kept.
func (c *Catalog) Between(ctx context.Context, from, to int64) ([]store.Change, error) {
	if err := c.Refresh(ctx); err != nil {
		return nil, err
	}
	newest := c.current.Load().version
	for field, version := range map[string]int64{"from": from, "to": to} {
		if version < 0 || version > newest {
			return nil, headgate.Invalid(field, "there is no version %d; the newest is %d", version, newest)
		}
	}
	changes := map[store.Item]store.Change{}
	err := c.eachChange(ctx, max(from, to)+1, min(from, to), func(change store.Change) {
		id := change.After.ID()
		if newer, ok := changes[id]; ok {
			change.After = newer.After
		}
		changes[id] = change
	})
	if err != nil {
		return nil, err
	}
	var list []store.Change
	for _, change := range changes {
		if from > to {
			change.Before, change.After = change.After, change.Before
		}
		if change.Before != change.After {
			list = append(list, change)
		}
	}
	sortChanges(list)
	return list, nil
}

// sortChanges orders changes by the kind, name and key of their items.
func sortChanges(list []store.Change) {
	slices.SortFunc(list, func(a, b store.Change) int { return compareIDs(a.After, b.After) })
}

// compareIDs compares items by kind, name and key.
func compareIDs(a, b store.Item) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
}

// eachChange calls f for the changes of the versions after version and before next, the newest version first. The error
// is headgate.ErrInvalid if one of them is no longer kept.
func (c *Catalog) eachChange(ctx context.Context, next, version int64, f func(store.Change)) error {
	for next > version+1 {
		versions, err := c.Versions(ctx, next, versionsPerPage)
		if err != nil {
			return err
		}
		if len(versions) == 0 {
			return headgate.Invalid("version", "what was changed after version %d is not kept any more", version)
		}
		for i := range versions {
			if versions[i].Number <= version {
				return nil
			}
			if versions[i].Number != next-1 {
				return headgate.Invalid("version", "what version %d has changed is not kept any more", next-1)
			}
			next--
			for _, change := range versions[i].Changes {
				f(change)
			}
		}
	}
	return nil
}
