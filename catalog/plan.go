package catalog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Plan is a set of limits for the keys that have the plan. Each stands in the place of the catalog's limit of its name.
// Limits that the plan does not name apply to these keys as to others.
type Plan struct {
	Name    string
	Limits  []headgate.Limit // with names, by which Plans orders them
	Origin  string           // "file" if a file defined it; empty: a call or a statement did
	Retired bool             // the file that defined it no longer has it; it is still in force
}

// Assignment gives a plan to one key, or to all keys with a prefix.
type Assignment struct {
	Plan   string
	Key    string    // at most 512 bytes
	Prefix bool      // Key is a prefix: all keys that begin with it have the plan
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
		Plan: i.Text, Key: i.Key, Prefix: i.Kind == store.KindPrefixAssignment, Until: timeOf(i.Until), Reason: i.Note,
	}
}

// Plans returns the plans of the version that was read last, ordered by name. It leaves out those of their limits that
// this program cannot read.
func (c *Catalog) Plans() (list []Plan) {
	for _, i := range c.current.Load().itemsOfKind(store.KindPlan) {
		if n := len(list); n == 0 || list[n-1].Name != i.Name {
			list = append(list, Plan{Name: i.Name, Origin: i.Origin, Retired: i.Retired})
		}
		if l, err := headgate.ParseNamed(i.Key, i.Text); err == nil {
			list[len(list)-1].Limits = append(list[len(list)-1].Limits, l)
		}
	}
	return list
}

// SetPlans defines plans as one version, and returns its number. A plan of the same name is replaced as a whole. The
// error is headgate.ErrUnknownLimit if the catalog lacks a limit that a plan names. It is headgate.ErrInvalid if the
// catalog cannot keep a plan, or if a limit of it is acquired in the place of one that is taken, or vice versa.
func (c *Catalog) SetPlans(ctx context.Context, by By, list ...Plan) (version int64, err error) {
	return c.write(ctx, by, func(current *snapshot) (items []store.Item, err error) {
		for i := range list {
			p := current.aliases.plan(list[i])
			if err := current.checkPlan(&p, nil); err != nil {
				return nil, err
			}
			items = append(append(items, p.items()...), current.droppedLimits(&p)...)
		}
		return items, nil
	})
}

// droppedLimits returns, as removed, the items of limits that the catalog's plan of p's name has, and p has not.
func (s *snapshot) droppedLimits(p *Plan) (items []store.Item) {
	for _, item := range s.itemsOfKind(store.KindPlan) {
		hasName := func(l headgate.Limit) bool { return l.Name() == item.Key }
		if item.Name == p.Name && !slices.ContainsFunc(p.Limits, hasName) {
			items = append(items, removed(item))
		}
	}
	return items
}

func removed(i store.Item) store.Item {
	i = i.ID()
	i.Removed = true
	return i
}

// checkPlan returns why the catalog cannot keep a plan, or nil. The limits that the plan replaces are among fileLimits,
// those of the file that defines the plan, or in the catalog. Without a file fileLimits is nil.
func (s *snapshot) checkPlan(p *Plan, fileLimits map[string]headgate.Limit) error {
	field := "plan"
	if fileLimits != nil {
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
		if err := checkDefinable(&Definition{Limit: l}); err != nil {
			return err
		}
		if seen[l.Name()] {
			return headgate.Invalid(field, "%s is there twice", l.Name())
		}
		seen[l.Name()] = true
		if base, ok := fileLimits[l.Name()]; ok {
			if base.Concurrency() != l.Concurrency() {
				return headgate.Invalid(field+"."+l.Name(),
					"%s stands in the place of %s: both are taken or both acquired", l, base)
			}
		} else if err := s.checkReplacement(field, l); err != nil {
			return fmt.Errorf("%s.%s: %w", field, l.Name(), err)
		}
	}
	return nil
}

// RemovePlan removes a plan. The keys and prefixes that it was assigned to keep the assignment, which has no effect
// until a plan of that name is set again. The error is headgate.ErrInvalid if there is no plan of that name.
func (c *Catalog) RemovePlan(ctx context.Context, by By, name string) (version int64, err error) {
	return c.write(ctx, by, func(current *snapshot) (items []store.Item, err error) {
		for _, i := range current.itemsOfKind(store.KindPlan) {
			if i.Name == name {
				items = append(items, removed(i))
			}
		}
		if items == nil {
			return nil, current.unknownPlan(name)
		}
		return items, nil
	})
}

func (s *snapshot) unknownPlan(name string) error {
	return headgate.Invalid("plan", "%.100q is not known; the catalog has %s", name, joinNames(s.plans))
}

// Assign gives plans to keys and prefixes, as one version, and returns its number. It replaces the plan that a key or
// prefix had. What a key has used of a limit stays. The error is headgate.ErrInvalid for an unknown plan, an empty
// prefix, an end that is over or after 2255, and if the catalog would have more than 10,000 plans and overrides of
// prefixes together.
func (c *Catalog) Assign(ctx context.Context, by By, list ...Assignment) (version int64, err error) {
	return c.write(ctx, by, func(current *snapshot) (items []store.Item, err error) {
		for i := range list {
			a := &list[i]
			if _, ok := current.plans[a.Plan]; !ok {
				return nil, current.unknownPlan(a.Plan)
			}
			if err := current.checkKeyAndEnd(a.Key, a.Prefix, a.Until); err != nil {
				return nil, err
			}
			items = append(items, a.item())
		}
		return items, current.checkPrefixCount(items)
	})
}

// Unassign takes away the plan of a key or prefix. The error is headgate.ErrInvalid if it has none.
func (c *Catalog) Unassign(ctx context.Context, by By, key string, prefix bool) (version int64, err error) {
	id := store.Item{Kind: kindOf(store.KindAssignment, prefix), Key: key}
	return c.remove(ctx, by, id, "plan", fmt.Sprintf("%q has none", key))
}

// Assignments reads the plans of the first n single keys that follow a key, ordered by key. After an empty key it
// begins with the empty key itself. PrefixAssignments returns the plans of prefixes.
func (c *Catalog) Assignments(ctx context.Context, after string, n int) (list []Assignment, err error) {
	items, err := c.itemsPage(ctx, store.KindAssignment, "", after, n)
	for i := range items {
		list = append(list, assignmentOf(&items[i]))
	}
	return list, err
}

// PrefixAssignments returns the plans of prefixes, ordered by prefix, by the version that was read last.
func (c *Catalog) PrefixAssignments() (list []Assignment) {
	for _, i := range c.current.Load().itemsOfKind(store.KindPrefixAssignment) {
		list = append(list, assignmentOf(&i))
	}
	return list
}

// OfKey reads the plan of a key, nil if there is none, and the key's overrides of these limits, ordered by limit. Their
// ends may be over. It leaves out the plans and overrides of prefixes, and fails if this program cannot read one of the
// overrides.
func (c *Catalog) OfKey(ctx context.Context, key string, limits ...string) (a *Assignment, list []Override, err error) {
	found, err := c.itemsOf(ctx, key, limits)
	if err != nil {
		return nil, nil, err
	}
	found = store.FirstItems(found, len(found)) // only sorts them
	if i := slices.IndexFunc(found, func(i store.Item) bool { return i.Kind == store.KindAssignment }); i >= 0 {
		a, found = new(assignmentOf(&found[i])), slices.Delete(found, i, i+1)
	}
	list, err = overridesOf(found)
	return a, list, err
}

// itemsOf reads the items of a key: its plan, and its overrides of these limits.
func (c *Catalog) itemsOf(ctx context.Context, key string, limits []string) ([]store.Item, error) {
	ids := []store.Item{{Kind: store.KindAssignment, Key: key}}
	for _, name := range limits {
		ids = append(ids, store.Item{Kind: store.KindOverride, Name: c.CellsOf(name), Key: key})
	}
	_, found, err := c.backend().Items(ctx, ids)
	return found, err
}
