package catalog

import (
	"context"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// isAcquired reports whether the limit of a notation is acquired, not taken: a limit of concurrency. ok is false if
// this program cannot parse the notation.
func isAcquired(notation string) (acquired, ok bool) {
	l, err := headgate.Parse(notation)
	return err == nil && l.Concurrency(), err == nil
}

// checkAcquisition refuses items that change a limit so that it is acquired while a plan or an override in its place is
// taken, or vice versa. No writer can come between the check and the edit: the store would refuse the edit, which is
// based on an older version.
func (c *Catalog) checkAcquisition(ctx context.Context, current *snapshot, items []store.Item) error {
	edited := make(map[store.Item]store.Item, len(items))
	for _, i := range items {
		edited[i.ID()] = i
	}
	for _, i := range items {
		if i.Kind != store.KindLimit || i.Removed {
			continue
		}
		acquired, ok := isAcquired(i.Text)
		old, exists := current.limits[i.Name]
		if !ok || exists && old.Concurrency() == acquired {
			continue
		}
		mismatch, err := c.findMismatch(ctx, current, edited, i.Name, acquired)
		if err != nil {
			return err
		}
		if mismatch != nil {
			return headgate.Invalid("limits."+i.Name, "%s, and %s: remove or change it first",
				map[bool]string{true: "is acquired", false: "is taken"}[acquired]+" as "+i.Text,
				describeReplacement(mismatch))
		}
	}
	return nil
}

// describeReplacement describes an item that replaces a limit, for an error.
func describeReplacement(i *store.Item) string {
	verb := "taken"
	if acquired, _ := isAcquired(i.Text); acquired {
		verb = "acquired"
	}
	what := "the override of " + target(i)
	if i.Kind == store.KindPlan {
		what = fmt.Sprintf("plan %q", i.Name)
	}
	return fmt.Sprintf("%s, %s, is %s", what, i.Text, verb)
}

// findMismatch returns an item that stands in the place of a limit and is acquired while the limit is taken,
// or vice versa; nil if there is none. limitAcquired says whether the limit is acquired.
func (c *Catalog) findMismatch(ctx context.Context, current *snapshot, edited map[store.Item]store.Item, name string,
	limitAcquired bool,
) (*store.Item, error) {
	endedBefore := current.clock() - maxSkew
	isMismatch := func(i store.Item) bool {
		if e, ok := edited[i.ID()]; ok {
			i = e
		}
		acquired, ok := isAcquired(i.Text)
		return ok && acquired != limitAcquired && !i.Removed && (i.Until == 0 || i.Until > endedBefore)
	}
	for _, i := range append(current.itemsOfKind(store.KindPlan), current.itemsOfKind(store.KindPrefixOverride)...) {
		if concerned(store.Change{After: i}) == name && isMismatch(i) {
			return &i, nil
		}
	}
	if !current.hasKeyOverrides {
		return nil, nil
	}
	backend := c.backend()
	// The override of the empty key comes first: ItemsAfter leaves it out.
	_, items, err := backend.Items(ctx, []store.Item{{Kind: store.KindOverride, Name: name}})
	for after := (store.Item{Name: name}); err == nil; {
		for _, i := range items {
			if i.Name != name {
				return nil, nil
			}
			if isMismatch(i) {
				return &i, nil
			}
			after = i
		}
		if items, err = backend.ItemsAfter(ctx, store.KindOverride, after, overridesPerPage); len(items) == 0 {
			break
		}
	}
	return nil, err
}

// overridesPerPage is how many overrides are read at a time.
const overridesPerPage = 1000
