package catalog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Plan is a set of limits for keys that have it, each in the place of the limit of its name. What
// a plan does not name is as it is for all.
type Plan struct {
	Name    string
	Limits  []headgate.Limit // with names, ordered by them
	Origin  string           // "file" if a file defined it; empty: somebody did
	Retired bool             // the file that defined it has it no more; it is still in force
}

// Assignment says which plan a key has, or all keys that begin with a text.
type Assignment struct {
	Plan   string
	Key    string    // at most 512 bytes
	Prefix bool      // Key is what keys begin with
	Until  time.Time // by the store's clock, to the microsecond; zero: without an end
	Reason string    // at most 1000 bytes
}

func (p *Plan) items() []store.Item {
	items := make([]store.Item, len(p.Limits))
	for i, l := range p.Limits {
		items[i] = store.Item{
			Kind: store.KindPlan, Name: p.Name, Key: l.Name(), Text: l.String(), Origin: p.Origin, Retired: p.Retired,
		}
	}
	return items
}

func (a *Assignment) item() store.Item {
	return store.Item{
		Kind: kindOf(store.KindAssignment, a.Prefix), Key: a.Key, Text: a.Plan, Note: a.Reason, Until: micros(a.Until),
	}
}

func assignmentOf(i *store.Item) Assignment {
	return Assignment{
		Plan: i.Text, Key: i.Key, Prefix: i.Kind == store.KindPrefixAssignment, Until: moment(i.Until), Reason: i.Note,
	}
}

// Plans returns the plans, ordered by name: by the version that was read last. Limits that this program
// cannot read are left out.
func (c *Catalog) Plans() (list []Plan) {
	for _, i := range c.now.Load().of(store.KindPlan) {
		if n := len(list); n == 0 || list[n-1].Name != i.Name {
			list = append(list, Plan{Name: i.Name, Origin: i.Origin, Retired: i.Retired})
		}
		if l, err := headgate.ParseNamed(i.Key, i.Text); err == nil {
			list[len(list)-1].Limits = append(list[len(list)-1].Limits, l)
		}
	}
	return list
}

// SetPlans defines plans as one version, and returns its number. A plan of the same name is
// replaced: limits that it has no more are as they are for all. An error is
// headgate.ErrUnknownLimit if there is no limit of a name that a plan has.
func (c *Catalog) SetPlans(ctx context.Context, by By, list ...Plan) (version int64, err error) {
	return c.write(ctx, by, func(now *snapshot) (items []store.Item, err error) {
		for i := range list {
			if err := now.definablePlan(&list[i], nil); err != nil {
				return nil, err
			}
			items = append(append(items, list[i].items()...), now.gone(&list[i])...)
		}
		return items, nil
	})
}

// gone returns the items of a plan that it has no more as it is defined now.
func (s *snapshot) gone(p *Plan) (items []store.Item) {
	for _, have := range s.of(store.KindPlan) {
		named := func(l headgate.Limit) bool { return l.Name() == have.Key }
		if have.Name == p.Name && !slices.ContainsFunc(p.Limits, named) {
			have = have.ID()
			have.Removed = true
			items = append(items, have)
		}
	}
	return items
}

// definablePlan returns why a plan cannot be kept, or nil. Its limits are among those of the catalog, or
// among others that are defined with it.
func (s *snapshot) definablePlan(p *Plan, others map[string]headgate.Limit) error {
	field := "plan"
	if others != nil {
		field = "plans." + p.Name
	}
	if headgate.ValidName(p.Name) != nil {
		return headgate.Invalid(field, "%.100q is not a name: a small letter, then up to 63 more small letters, "+
			"digits or any of _ . -", p.Name)
	}
	if len(p.Limits) == 0 {
		return headgate.Invalid(field, "%q has no limits", p.Name)
	}
	seen := map[string]bool{}
	for _, l := range p.Limits {
		if err := definable(&Definition{Limit: l}); err != nil {
			return err
		}
		if seen[l.Name()] {
			return headgate.Invalid(field, "%s is there twice", l.Name())
		}
		seen[l.Name()] = true
		if base, ok := others[l.Name()]; ok {
			if base.Concurrency() != l.Concurrency() {
				return headgate.Invalid(
					field+"."+l.Name(), "%s stands in the place of %s: both are taken or both acquired",
					l, base)
			}
		} else if err := s.replaceable(field, l); err != nil {
			return fmt.Errorf("%s.%s: %w", field, l.Name(), err)
		}
	}
	return nil
}

// RemovePlan removes a plan. Keys that have it have none then. It is headgate.ErrInvalid if there
// is none of that name.
func (c *Catalog) RemovePlan(ctx context.Context, by By, name string) (version int64, err error) {
	return c.write(ctx, by, func(now *snapshot) (items []store.Item, err error) {
		for _, i := range now.of(store.KindPlan) {
			if i.Name == name {
				gone := i.ID()
				gone.Removed = true
				items = append(items, gone)
			}
		}
		if items == nil {
			return nil, now.unknownPlan(name)
		}
		return items, nil
	})
}

func (s *snapshot) unknownPlan(name string) error {
	return headgate.Invalid("plan", "%.100q is not known; the catalog has %s", name, known(s.plans))
}

// Assign gives keys their plans, as one version, and returns its number. What a key has used of a limit
// stays. An error is headgate.ErrInvalid for a plan that is not known, and for an end that is over.
func (c *Catalog) Assign(ctx context.Context, by By, list ...Assignment) (version int64, err error) {
	return c.write(ctx, by, func(now *snapshot) (items []store.Item, err error) {
		for i := range list {
			a := &list[i]
			if _, ok := now.plans[a.Plan]; !ok {
				return nil, now.unknownPlan(a.Plan)
			}
			if err := now.valid(a.Key, a.Prefix, a.Until); err != nil {
				return nil, err
			}
			items = append(items, a.item())
		}
		return items, now.fewPrefixes(items)
	})
}

// Unassign takes away the plan of a key, or of a prefix. It is headgate.ErrInvalid if it has none.
func (c *Catalog) Unassign(ctx context.Context, by By, key string, prefix bool) (version int64, err error) {
	id := store.Item{Kind: kindOf(store.KindAssignment, prefix), Key: key}
	return c.remove(ctx, by, id, "plan", fmt.Sprintf("%q has none", key))
}

// Assignments returns the plans of the first n single keys after another one, ordered by key. Those
// of prefixes are returned by PrefixAssignments.
func (c *Catalog) Assignments(ctx context.Context, after string, n int) (list []Assignment, err error) {
	items, err := c.after(ctx, store.KindAssignment, "", after, n)
	for i := range items {
		list = append(list, assignmentOf(&items[i]))
	}
	return list, err
}

// PrefixAssignments returns the plans of prefixes, ordered by prefix: by the version that was read last.
func (c *Catalog) PrefixAssignments() (list []Assignment) {
	for _, i := range c.now.Load().of(store.KindPrefixAssignment) {
		list = append(list, assignmentOf(&i))
	}
	return list
}

// Has returns what the catalog has for one key itself: its plan, and the overrides of the limits.
// Those of prefixes are not among them.
func (c *Catalog) Has(ctx context.Context, key string, limits ...string) (a *Assignment, list []Override, err error) {
	found, err := c.itemsOf(ctx, key, limits)
	if err != nil {
		return nil, nil, err
	}
	found = store.FirstItems(found, len(found))
	if i := slices.IndexFunc(found, func(i store.Item) bool { return i.Kind == store.KindAssignment }); i >= 0 {
		plan := assignmentOf(&found[i])
		a, found = &plan, slices.Delete(found, i, i+1)
	}
	list, err = overridesOf(found)
	return a, list, err
}

// itemsOf returns the plan of a key and its overrides of limits.
func (c *Catalog) itemsOf(ctx context.Context, key string, limits []string) ([]store.Item, error) {
	ids := []store.Item{{Kind: store.KindAssignment, Key: key}}
	for _, name := range limits {
		ids = append(ids, store.Item{Kind: store.KindOverride, Name: name, Key: key})
	}
	_, found, err := c.keeper().Items(ctx, ids)
	return found, err
}
