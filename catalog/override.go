package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Override is a limit for one key, or for all keys that begin with a text, in the place of the
// limit of that name.
type Override struct {
	Limit  headgate.Limit // its name is that of the limit in whose place it stands
	Key    string         // at most 512 bytes
	Prefix bool           // Key is what keys begin with
	Until  time.Time      // by the store's clock, to the microsecond; zero: without an end
	Reason string         // at most 1000 bytes
}

// Bounds of what is kept whole in each process.
const maxPrefixes = 10_000

func (o *Override) item() store.Item {
	return store.Item{
		Kind: kindOf(store.KindOverride, o.Prefix), Name: o.Limit.Name(), Key: o.Key, Text: o.Limit.String(),
		Note: o.Reason, Until: micros(o.Until),
	}
}

// kindOf returns the kind of an item of a key, or of a prefix of keys.
func kindOf(key store.Kind, prefix bool) store.Kind {
	switch {
	case !prefix:
		return key
	case key == store.KindOverride:
		return store.KindPrefixOverride
	}
	return store.KindPrefixAssignment
}

// overridesOf returns the meaning of items.
func overridesOf(items []store.Item) (list []Override, err error) {
	for _, i := range items {
		o := Override{Key: i.Key, Prefix: i.Kind == store.KindPrefixOverride, Until: moment(i.Until), Reason: i.Note}
		if o.Limit, err = headgate.ParseNamed(i.Name, i.Text); err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, nil
}

// moment returns a time of the catalog; 0: none.
func moment(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// micros returns a time as the catalog has it; 0: none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Override makes overrides, as one version, and returns its number. One of the same limit and key
// is replaced. What the key has used of the limit stays. An error is headgate.ErrUnknownLimit if
// there is no limit of that name, and headgate.ErrInvalid for one that has ended already, and for a
// limit that is acquired where the other one is taken.
func (c *Catalog) Override(ctx context.Context, by By, list ...Override) (version int64, err error) {
	return c.write(ctx, by, func(now *snapshot) (items []store.Item, err error) {
		for i := range list {
			o := &list[i]
			if err := definable(&Definition{Limit: o.Limit}); err != nil {
				return nil, err
			}
			if err := now.replaceable("override", o.Limit); err != nil {
				return nil, err
			}
			if err := now.valid(o.Key, o.Prefix, o.Until); err != nil {
				return nil, err
			}
			items = append(items, o.item())
		}
		return items, now.fewPrefixes(items)
	})
}

// RemoveOverride removes one, of a key or of a prefix. It is headgate.ErrInvalid if there is none.
func (c *Catalog) RemoveOverride(ctx context.Context, by By, limit, key string, prefix bool) (
	version int64, err error,
) {
	id := store.Item{Kind: kindOf(store.KindOverride, prefix), Name: limit, Key: key}
	return c.remove(ctx, by, id, "override", fmt.Sprintf("%s has none for %q", limit, key))
}

// Overrides returns the first n overrides of single keys after another one, ordered by the name of the
// limit and the key. Those of prefixes are returned by PrefixOverrides.
func (c *Catalog) Overrides(ctx context.Context, afterLimit, afterKey string, n int) (list []Override, err error) {
	items, err := c.after(ctx, store.KindOverride, afterLimit, afterKey, n)
	if err != nil {
		return nil, err
	}
	return overridesOf(items)
}

// PrefixOverrides returns the overrides of prefixes, ordered by limit and prefix: by the version
// that was read last.
func (c *Catalog) PrefixOverrides() (list []Override, err error) {
	return overridesOf(c.now.Load().of(store.KindPrefixOverride))
}

// replaceable reports what is wrong with a limit that is to stand in the place of one of the same name.
func (s *snapshot) replaceable(what string, l headgate.Limit) error {
	base, err := s.find(l.Name())
	if err != nil {
		return err
	}
	if base.Concurrency() != l.Concurrency() {
		return headgate.Invalid(what, "%s is taken or acquired as its limit is: %s stands in the place of %s",
			l.Name(), l, base)
	}
	return nil
}

// valid returns what is wrong with a prefix or a time that somebody gives, or nil. The store checks keys.
func (s *snapshot) valid(key string, prefix bool, until time.Time) error {
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

// fewPrefixes refuses more prefixes than each process shall keep.
func (s *snapshot) fewPrefixes(items []store.Item) error {
	n := len(s.of(store.KindPrefixOverride)) + len(s.of(store.KindPrefixAssignment))
	for _, i := range items {
		if _, have := s.items[i.ID()]; !have && !i.Kind.PerKey() {
			n++
		}
	}
	if n > maxPrefixes {
		return headgate.Invalid("prefix", "the catalog may have %d", maxPrefixes)
	}
	return nil
}

// of returns the items of a kind, ordered.
func (s *snapshot) of(kind store.Kind) (list []store.Item) {
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

// after reads items of single keys.
func (c *Catalog) after(ctx context.Context, kind store.Kind, name, key string, n int) ([]store.Item, error) {
	return itemsAfter(ctx, c.keeper(), kind, store.Item{Name: name, Key: key}, n)
}

// itemsAfter adds the item of the empty key, which does not stand after a zero Item.
func itemsAfter(ctx context.Context, k store.Catalog, kind store.Kind, after store.Item, n int) (
	list []store.Item, err error,
) {
	if after == (store.Item{}) && n > 0 {
		if _, list, err = k.Items(ctx, []store.Item{{Kind: kind}}); err != nil {
			return nil, err
		}
	}
	more, err := k.ItemsAfter(ctx, kind, after, n-len(list))
	return append(list, more...), err
}

// remove removes an item; if it is not there the field is said to have that problem.
func (c *Catalog) remove(ctx context.Context, by By, id store.Item, field, problem string) (int64, error) {
	return c.write(ctx, by, func(*snapshot) ([]store.Item, error) {
		_, found, err := c.keeper().Items(ctx, []store.Item{id})
		if err == nil && len(found) == 0 {
			err = headgate.Invalid(field, "%s", problem)
		}
		id.Removed = true
		return []store.Item{id}, err
	})
}
