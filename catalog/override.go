package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Override is a limit for one key, or for all keys with a prefix, in the place of the limit of the same name.
type Override struct {
	Limit  headgate.Limit // has the name of the limit that it replaces
	Key    string         // at most 512 bytes
	Prefix bool           // Key is a prefix: the override applies to all keys that begin with it
	Until  time.Time      // by the store's clock, to the microsecond; zero: without an end
	Reason string         // at most 1000 bytes
}

// maxPrefixes bounds the items of prefixes, all of which each process keeps in memory.
const maxPrefixes = 10_000

func (o *Override) item() store.Item {
	return store.Item{
		Kind: kindOf(store.KindOverride, o.Prefix), Name: o.Limit.Name(), Key: o.Key, Text: o.Limit.String(),
		Note: o.Reason, Until: micros(o.Until),
	}
}

// kindOf returns keyKind, a kind of items of single keys, or with prefix the same kind for prefixes.
func kindOf(keyKind store.Kind, prefix bool) store.Kind {
	switch {
	case !prefix:
		return keyKind
	case keyKind == store.KindOverride:
		return store.KindPrefixOverride
	}
	return store.KindPrefixAssignment
}

func overridesOf(items []store.Item) (list []Override, err error) {
	for _, i := range items {
		o := Override{Key: i.Key, Prefix: i.Kind == store.KindPrefixOverride, Until: timeOf(i.Until), Reason: i.Note}
		if o.Limit, err = headgate.ParseNamed(i.Name, i.Text); err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, nil
}

// timeOf converts a time that the catalog keeps; 0 becomes the zero time.
func timeOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// micros converts a time into what the catalog keeps; the zero time becomes 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Override makes overrides, as one version, and returns its number. It replaces an override of the same limit and key
// or prefix. What the key has used of the limit stays. The error is headgate.ErrUnknownLimit if there is no limit of
// that name. It is headgate.ErrInvalid for an empty prefix, an end that is over or after 2255, a limit that is acquired
// in the place of one that is taken, or vice versa, and if the catalog would have more than 10,000 items of prefixes.
func (c *Catalog) Override(ctx context.Context, by By, list ...Override) (version int64, err error) {
	return c.write(ctx, by, func(current *snapshot) (items []store.Item, err error) {
		for i := range list {
			o := list[i]
			o.Limit = current.aliases.limit(o.Limit)
			if err := checkDefinable(&Definition{Limit: o.Limit}); err != nil {
				return nil, err
			}
			if err := current.checkReplacement("override", o.Limit); err != nil {
				return nil, err
			}
			if err := current.checkKeyAndEnd(o.Key, o.Prefix, o.Until); err != nil {
				return nil, err
			}
			items = append(items, o.item())
		}
		return items, current.checkPrefixCount(items)
	})
}

// RemoveOverride removes the override of a key or prefix. The error is headgate.ErrInvalid if there is none.
func (c *Catalog) RemoveOverride(ctx context.Context, by By, limit, key string, prefix bool) (
	version int64, err error,
) {
	id := store.Item{Kind: kindOf(store.KindOverride, prefix), Name: limit, Key: key}
	return c.remove(ctx, by, id, "override", fmt.Sprintf("%s has none for %q", limit, key))
}

// Overrides reads the first n overrides of single keys that follow a limit and key, ordered by the name of the limit
// and the key. It fails if this program cannot read one. PrefixOverrides returns the overrides of prefixes.
func (c *Catalog) Overrides(ctx context.Context, afterLimit, afterKey string, n int) (list []Override, err error) {
	items, err := c.itemsPage(ctx, store.KindOverride, afterLimit, afterKey, n)
	if err != nil {
		return nil, err
	}
	return overridesOf(items)
}

// PrefixOverrides returns the overrides of prefixes, ordered by limit and prefix, by the version that was read last.
func (c *Catalog) PrefixOverrides() (list []Override, err error) {
	return overridesOf(c.current.Load().itemsOfKind(store.KindPrefixOverride))
}

// checkReplacement returns why a limit cannot stand in the place of the limit of its name, or nil.
func (s *snapshot) checkReplacement(field string, l headgate.Limit) error {
	base, err := s.find(l.Name())
	if err != nil {
		return err
	}
	if base.Concurrency() != l.Concurrency() {
		return headgate.Invalid(field, "%s is taken or acquired as its limit is: %s stands in the place of %s",
			l.Name(), l, base)
	}
	return nil
}

// checkKeyAndEnd returns what is wrong with a prefix or an end that a caller gives, or nil. The store checks keys.
func (s *snapshot) checkKeyAndEnd(key string, prefix bool, until time.Time) error {
	if prefix && key == "" {
		return headgate.Invalid("key", "is empty: each key begins so; change the limit itself")
	}
	if until.After(time.UnixMicro(lastEnd)) {
		return headgate.Invalid("until", "%s is after the year 2255; leave it out for what has no end",
			until.UTC().Format(time.RFC3339))
	}
	if now := s.clock(); !until.IsZero() && until.UnixMicro() <= now {
		return headgate.Invalid("until", "%s is over by the store's clock, which stands at %s",
			until.UTC().Format(time.RFC3339), time.UnixMicro(now).UTC().Format(time.RFC3339))
	}
	return nil
}

// checkPrefixCount refuses items with which the catalog would have more than maxPrefixes.
func (s *snapshot) checkPrefixCount(items []store.Item) error {
	n := len(s.itemsOfKind(store.KindPrefixOverride)) + len(s.itemsOfKind(store.KindPrefixAssignment))
	for _, i := range items {
		if _, exists := s.items[i.ID()]; !exists && !i.Kind.PerKey() {
			n++
		}
	}
	if n > maxPrefixes {
		return headgate.Invalid("prefix", "the catalog may have %d", maxPrefixes)
	}
	return nil
}

// itemsOfKind returns the items of a kind, ordered by name and key; none for a nil snapshot.
func (s *snapshot) itemsOfKind(kind store.Kind) (list []store.Item) {
	if s == nil {
		return nil
	}
	for id, item := range s.items {
		if id.Kind == kind {
			list = append(list, item)
		}
	}
	return store.FirstItems(list, len(list))
}

// itemsPage reads the first n items of single keys that follow a name and key.
func (c *Catalog) itemsPage(ctx context.Context, kind store.Kind, name, key string, n int) ([]store.Item, error) {
	return itemsAfter(ctx, c.backend(), kind, store.Item{Name: name, Key: key}, n)
}

// itemsAfter reads the first n items that follow another one. With the zero Item it also returns the item of
// the empty name and key, which ItemsAfter leaves out.
func itemsAfter(ctx context.Context, backend store.Catalog, kind store.Kind, after store.Item, n int) (
	list []store.Item, err error,
) {
	if after == (store.Item{}) && n > 0 {
		if _, list, err = backend.Items(ctx, []store.Item{{Kind: kind}}); err != nil {
			return nil, err
		}
	}
	following, err := backend.ItemsAfter(ctx, kind, after, n-len(list))
	return append(list, following...), err
}

// remove removes an item. If there is none, the error is headgate.ErrInvalid with this field and problem.
func (c *Catalog) remove(ctx context.Context, by By, id store.Item, field, problem string) (int64, error) {
	return c.write(ctx, by, func(current *snapshot) ([]store.Item, error) {
		ids := []store.Item{id}
		if cells := current.aliases.cells(id.Name); cells != id.Name {
			ids[0].Name = cells
			ids = append(ids, id) // of a former limit of that name
		}
		_, found, err := c.backend().Items(ctx, ids)
		for _, id := range ids {
			if slices.ContainsFunc(found, func(i store.Item) bool { return i.ID() == id }) {
				return []store.Item{removed(id)}, nil
			}
		}
		return nil, cmp.Or(err, headgate.Invalid(field, "%s", problem))
	})
}
