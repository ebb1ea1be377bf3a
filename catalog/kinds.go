package catalog

import (
	"context"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// acquired reports whether a notation is of a limit that is acquired and not taken. It returns false for
// ok if this program cannot read it.
func acquired(notation string) (yes, ok bool) {
	l, err := headgate.Parse(notation)
	return err == nil && l.Concurrency(), err == nil
}

// fitting refuses an edit after which the limit of a name is acquired, and a plan or an override in its
// place is taken, or the other way round. Nothing of it can be changed meanwhile: then the edit would be
// of an older version.
func (c *Catalog) fitting(ctx context.Context, now *snapshot, list []store.Item) error {
	edited := make(map[store.Item]store.Item, len(list))
	for _, i := range list {
		edited[i.ID()] = i
	}
	for _, i := range list {
		if i.Kind != store.KindLimit || i.Removed {
			continue
		}
		is, ok := acquired(i.Text)
		before, had := now.limits[i.Name]
		if !ok || had && before.Concurrency() == is {
			continue
		}
		other, err := c.unlike(ctx, now, edited, i.Name, is)
		if err != nil {
			return err
		}
		if other != nil {
			return headgate.Invalid("limits."+i.Name, "%s, and %s: remove or change it first",
				map[bool]string{true: "is acquired", false: "is taken"}[is]+" as "+i.Text, replacement(other))
		}
	}
	return nil
}

// replacement names an item that replaces a limit.
func replacement(i *store.Item) string {
	verb := "taken"
	if yes, _ := acquired(i.Text); yes {
		verb = "acquired"
	}
	what := "the override of " + target(i)
	if i.Kind == store.KindPlan {
		what = fmt.Sprintf("plan %q", i.Name)
	}
	return fmt.Sprintf("%s, %s, is %s", what, i.Text, verb)
}

// unlike returns an item that stands in the place of the limit of a name and is not acquired as that is,
// or not taken as that is; nil if there is none.
func (c *Catalog) unlike(ctx context.Context, now *snapshot, edited map[store.Item]store.Item, name string,
	is bool,
) (*store.Item, error) {
	over := now.clock() - skew
	wrong := func(i store.Item) bool {
		if e, ok := edited[i.ID()]; ok {
			i = e
		}
		yes, ok := acquired(i.Text)
		return ok && yes != is && !i.Removed && (i.Until == 0 || i.Until > over)
	}
	for _, i := range append(now.of(store.KindPlan), now.of(store.KindPrefixOverride)...) {
		if Concerns(store.Change{After: i}, name) && wrong(i) {
			return &i, nil
		}
	}
	if !now.overrides {
		return nil, nil
	}
	k := c.keeper()
	_, items, err := k.Items(ctx, []store.Item{{Kind: store.KindOverride, Name: name}})
	for after := (store.Item{Name: name}); err == nil; {
		for _, i := range items {
			if i.Name != name {
				return nil, nil
			}
			if wrong(i) {
				return &i, nil
			}
			after = i
		}
		if items, err = k.ItemsAfter(ctx, store.KindOverride, after, perPage); len(items) == 0 {
			break
		}
	}
	return nil, err
}

// perPage is how many overrides are read at a time.
const perPage = 1000
