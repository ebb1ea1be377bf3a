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
	// Seen is the version that the author has seen and agreed to change. If the catalog has another
	// one by then the change is store.ErrVersion, and nothing is changed. Nil: whichever is the newest.
	Seen *int64
}

// tries is how many times an edit is made again on a newer version.
const tries = 10

// write makes the edit that items returns for the present version. If another one comes
// first it is asked again.
func (c *Catalog) write(ctx context.Context, by By, items func(now *snapshot) ([]store.Item, error)) (int64, error) {
	for try := 1; ; try++ {
		if err := c.Refresh(ctx); err != nil {
			return 0, err
		}
		now := c.now.Load()
		if by.Seen != nil && now.version != *by.Seen {
			return 0, fmt.Errorf("%w: it had version %d, and has %d now", store.ErrVersion, *by.Seen, now.version)
		}
		list, err := items(now)
		if err != nil || len(list) == 0 {
			return now.version, err
		}
		if err := c.fitting(ctx, now, list); err != nil {
			return 0, err
		}
		version, err := c.keeper().WriteCatalog(ctx, store.Edit{
			Base: now.version, Author: by.Author, Reason: by.Reason, Items: list,
		})
		if errors.Is(err, store.ErrVersion) && try < tries {
			continue
		}
		if err != nil {
			return 0, err
		}
		_ = c.Refresh(ctx) // the change is made; if this fails the next look shows it
		return version, nil
	}
}

// Set defines limits as one version, and returns its number. A limit of the same name is replaced. One
// that would be acquired where a plan or an override in its place is taken, or the other way round, is
// headgate.ErrInvalid, and nothing is changed then.
func (c *Catalog) Set(ctx context.Context, by By, list ...Definition) (version int64, err error) {
	for i := range list {
		if err := definable(&list[i]); err != nil {
			return 0, err
		}
	}
	return c.write(ctx, by, func(now *snapshot) (items []store.Item, err error) {
		for i := range list {
			item := list[i].item()
			if now.items[item.ID()] != item {
				items = append(items, item)
			}
		}
		return items, nil
	})
}

// definable returns why a limit cannot be kept, or nil.
func definable(d *Definition) error {
	if d.IsZero() || !d.Named() || d.Algorithm() == nil {
		return headgate.Invalid("limit", "%q has no name, or nothing but a name", d.Limit)
	}
	return nil
}

// Remove removes limits. What their keys have used is kept until it counts no more. A name
// that is not there is headgate.ErrUnknownLimit, and nothing is removed then.
func (c *Catalog) Remove(ctx context.Context, by By, names ...string) (version int64, err error) {
	return c.write(ctx, by, func(now *snapshot) (items []store.Item, err error) {
		for _, name := range names {
			id := store.Item{Kind: store.KindLimit, Name: name}
			if _, ok := now.items[id]; !ok {
				return nil, now.unknownLimit(name)
			}
			id.Removed = true
			items = append(items, id)
		}
		return items, nil
	})
}

// page is how many versions are read at a time.
const page = 100

// History returns the newest n versions that changed a limit, newest first; of all limits
// if name is empty.
func (c *Catalog) History(ctx context.Context, name string, n int) (list []store.Version, err error) {
	for before := int64(0); len(list) < n; {
		versions, err := c.Versions(ctx, before, page)
		if err != nil {
			return nil, err
		}
		for _, v := range versions {
			if len(list) < n && concerns(&v, name) {
				list = append(list, v)
			}
		}
		if len(versions) < page {
			break
		}
		before = versions[len(versions)-1].Number
	}
	return list, nil
}

// Versions returns the newest n versions that are below before, newest first; before 0: of all.
func (c *Catalog) Versions(ctx context.Context, before int64, n int) ([]store.Version, error) {
	return c.keeper().CatalogVersions(ctx, before, n)
}

// Record keeps what somebody did to a key by hand, with the store's time. It is no version of the catalog.
func (c *Catalog) Record(ctx context.Context, a store.Action) error {
	return c.keeper().RecordAction(ctx, a)
}

// Actions returns the newest n actions whose numbers are below before, newest first; before 0: of all. A store keeps
// [store.KeptActions].
func (c *Catalog) Actions(ctx context.Context, before int64, n int) ([]store.Action, error) {
	return c.keeper().Actions(ctx, before, n)
}

func concerns(v *store.Version, name string) bool {
	return name == "" || slices.ContainsFunc(v.Changes, func(c store.Change) bool { return Concerns(c, name) })
}

// Rollback makes limits, plans and overrides what they were after a version: all of them, or what
// concerns the limits that are named. It is a new version itself. Limits that follow something
// else, as those of zones do in SQL, are left out, and so are ends that are over by now. A version
// that never was, or is not kept any more, is headgate.ErrInvalid, a name that nothing ever had
// headgate.ErrUnknownLimit.
func (c *Catalog) Rollback(ctx context.Context, by By, version int64, names ...string) (int64, error) {
	return c.write(ctx, by, func(now *snapshot) (items []store.Item, err error) {
		changes, err := c.back(ctx, now, version, names)
		for _, change := range changes {
			items = append(items, change.After)
		}
		return items, err
	})
}

// Back returns what Rollback would change.
func (c *Catalog) Back(ctx context.Context, version int64, names ...string) ([]store.Change, error) {
	if err := c.Refresh(ctx); err != nil {
		return nil, err
	}
	return c.back(ctx, c.now.Load(), version, names)
}

func (c *Catalog) back(ctx context.Context, now *snapshot, version int64, names []string) (
	list []store.Change, err error,
) {
	if version < 0 || version > now.version {
		return nil, headgate.Invalid("version", "there is no version %d; the newest is %d", version, now.version)
	}
	was := map[store.Item]store.Item{} // before the first change after version
	err = c.since(ctx, now.version+1, version, func(change store.Change) { was[change.After.ID()] = change.Before })
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		id := store.Item{Kind: store.KindLimit, Name: name}
		if _, changed := was[id]; !changed && now.items[id] == (store.Item{}) {
			return nil, now.unknownLimit(name)
		}
	}
	have, err := c.present(ctx, now, was)
	if err != nil {
		return nil, err
	}
	list = (&store.Edit{Items: slices.Collect(maps.Values(was))}).Changes(have)
	list = slices.DeleteFunc(list, func(change store.Change) bool {
		is, item := &change.Before, &change.After // which was so before the first change after version
		over := item.Until != 0 && item.Until <= now.clock() && is.Removed
		return item.Kind == store.KindFile || follows(item) || follows(is) || over || len(names) > 0 &&
			!slices.ContainsFunc(names, func(name string) bool { return Concerns(change, name) })
	})
	sortChanges(list)
	return list, nil
}

// present returns items as they are now.
func (c *Catalog) present(ctx context.Context, now *snapshot, ids map[store.Item]store.Item) ([]store.Item, error) {
	var have, ask []store.Item
	for id := range ids {
		if id.Kind.PerKey() {
			ask = append(ask, id)
		} else if item, ok := now.items[id]; ok {
			have = append(have, item)
		}
	}
	if ask == nil {
		return have, nil
	}
	_, found, err := c.keeper().Items(ctx, ask)
	return append(have, found...), err
}

// Between returns what was changed from one version to another, which may be the older one: what is as it was is left
// out. A version that never was, or is not kept any more, is headgate.ErrInvalid.
func (c *Catalog) Between(ctx context.Context, from, to int64) ([]store.Change, error) {
	if err := c.Refresh(ctx); err != nil {
		return nil, err
	}
	newest := c.now.Load().version
	for field, version := range map[string]int64{"from": from, "to": to} {
		if version < 0 || version > newest {
			return nil, headgate.Invalid(field, "there is no version %d; the newest is %d", version, newest)
		}
	}
	changes := map[store.Item]store.Change{}
	err := c.since(ctx, max(from, to)+1, min(from, to), func(change store.Change) {
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

// sortChanges orders changes by what they are about.
func sortChanges(list []store.Change) {
	slices.SortFunc(list, func(a, b store.Change) int { return compareIDs(a.After, b.After) })
}

// compareIDs compares items by what they are.
func compareIDs(a, b store.Item) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
}

// since calls f for the changes of the versions from after version to below next, the newest version first.
func (c *Catalog) since(ctx context.Context, next, version int64, f func(store.Change)) error {
	for next > version+1 {
		versions, err := c.Versions(ctx, next, page)
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
