package catalog

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// A limit that is renamed keeps its item, and its cells keep the name that they have: nothing is fresh. Its new name is
// an item too, of which the text says what cells it means. Each other name means cells at once, not by way of a third
// name. Of the new names that a limit got one after another all but the last are retired, and are understood for ever.
//
// Plans and overrides are kept under the name of the cells, so only what reads a name that somebody gives follows it.

// aliases has the names of the cells of limits, by the other names of these limits.
type aliases map[string]string

// cells returns the name of the cells of a limit: its own, unless it is an alias.
func (a aliases) cells(name string) string { return cmp.Or(a[name], name) }

// limit returns a limit under the name of its cells.
func (a aliases) limit(l headgate.Limit) headgate.Limit {
	if cells, ok := a[l.Name()]; ok && !l.OnlyName() {
		l, _ = l.WithName(cells) // the catalog has the name, so it is valid
	}
	return l
}

// plan returns a plan with its limits under the names of their cells.
func (a aliases) plan(p Plan) Plan {
	p.Limits = slices.Clone(p.Limits)
	for i, l := range p.Limits {
		p.Limits[i] = a.limit(l)
	}
	return p
}

// of returns the aliases of the limit with these cells.
func (a aliases) of(cells string) (names []string) {
	for name, c := range a {
		if c == cells {
			names = append(names, name)
		}
	}
	return names
}

// addOtherNames adds to names of limits all other names that these limits have now or had in old items. A name may have
// been that of one limit then, and be that of another one now: both are added.
func (s *snapshot) addOtherNames(names map[string]bool, old map[store.Item]store.Item) {
	for n := 0; n < len(names); {
		n = len(names)
		for _, items := range []map[store.Item]store.Item{s.items, old} {
			for id, item := range items {
				if cells := item.RenamedFrom(); cells != "" && (names[id.Name] || names[cells]) {
					names[id.Name], names[cells] = true, true
				}
			}
		}
	}
}

// readAliases fills the maps of aliases from the snapshot's items, and adds them to those of limits.
func (s *snapshot) readAliases() {
	s.aliases, s.renamed = aliases{}, map[string]string{}
	for id, item := range s.items {
		cells := item.RenamedFrom()
		if cells != "" && cmp.Or(headgate.ValidName(id.Name), headgate.ValidName(cells)) == nil { // a row may have any
			s.aliases[id.Name] = cells
			if !item.Retired { // by hand in SQL somebody may make two
				s.renamed[cells] = max(s.renamed[cells], id.Name)
			}
		}
	}
	for cells, to := range s.renamed {
		if d, ok := s.limits[cells]; ok {
			d.RenamedTo = to
			s.limits[cells] = d
		}
	}
	for name, cells := range s.aliases {
		if _, isAlias := s.aliases[cells]; isAlias {
			continue
		}
		if d, ok := s.limits[cells]; ok {
			s.limits[name] = d
		} else if err := s.parseErrors[cells]; err != nil {
			s.parseErrors[name] = err
		}
	}
}

// CellsOf returns the name under which the cells of a limit are, by the version that was read last: for a limit that
// was renamed, the name that it had first. Decisions, keys, plans and overrides have that name.
func (c *Catalog) CellsOf(name string) string {
	if s := c.current.Load(); s != nil {
		return s.aliases.cells(name)
	}
	return name
}

// NamesOf returns all names of a limit, by the version that was read last, also its former ones. The first is that of
// its cells.
func (c *Catalog) NamesOf(name string) []string {
	s := c.current.Load()
	if s == nil {
		return []string{name}
	}
	cells := s.aliases.cells(name)
	return append([]string{cells}, s.aliases.of(cells)...)
}

// Rename gives a limit another name, as one version, and returns its number. What keys have used stays theirs: cells
// keep the name that they have, and all names of the limit reach them. Plans and overrides go on to hold under each.
// The limit is defined by its new name from then on. A program that does not read the catalog has to go on to use the
// name of the cells.
//
// The error is headgate.ErrUnknownLimit if there is no limit of the name from, and headgate.ErrInvalid if to is no
// name, or that of another limit.
func (c *Catalog) Rename(ctx context.Context, by By, from, to string) (version int64, err error) {
	if err := headgate.ValidName(to); err != nil {
		return 0, err
	}
	return c.write(ctx, by, func(current *snapshot) ([]store.Item, error) {
		if _, err := current.find(from); err != nil {
			return nil, err
		}
		d := current.limits[from]
		d.RenamedTo = to
		changes, err := current.difference([]Definition{d})
		return changedItems(changes), err
	})
}

// definitionItems returns the items that define limits, and the names that there are then. refused says why a limit may
// not be defined: its name is that of another limit now, or a former one, as in a file of before.
func (s *snapshot) definitionItems(list []Definition) (items []store.Item, names aliases, refused, err error) {
	names = maps.Clone(s.aliases)
	seen := map[string]bool{}
	add := func(item store.Item) {
		if seen[item.Name] && err == nil {
			err = headgate.Invalid("limits."+item.Name, "is there twice")
		}
		seen[item.Name] = true
		items = append(items, item)
	}
	for _, d := range list {
		if err := checkDefinable(&d); err != nil {
			return nil, nil, nil, err
		}
		name := d.Name()
		d.Limit = s.aliases.limit(d.Limit)
		cells, to := d.Name(), cmp.Or(d.RenamedTo, name)
		add(d.item())
		is := s.nameNow(cells)
		if d.RenamedTo == "" && is != "" && is != name {
			refused = headgate.Invalid("limits."+name, "was renamed to %s: define it by that name", is)
			continue
		}
		alias := aliasItem(to, cells)
		if old, exists := s.items[alias.ID()]; exists && to != cells {
			if names[to] != cells {
				refused = headgate.Invalid("limits."+to, "is there already; give %s a name that no limit has", name)
				continue
			}
			alias.Origin = old.Origin
		}
		for _, former := range s.aliases.of(cells) {
			if item := s.items[store.Item{Kind: store.KindLimit, Name: former}]; former != to && !item.Retired {
				item.Retired = true
				add(item)
			}
		}
		if to != cells {
			if err := headgate.ValidName(to); err != nil {
				return nil, nil, nil, err
			}
			if d.Origin == fromFile {
				alias.Origin = fromFile
			}
			add(alias)
			names[to] = cells
		}
	}
	return items, names, refused, err
}

// aliasItem returns the item of another name of a limit with these cells.
func aliasItem(name, cells string) store.Item {
	return store.Item{Kind: store.KindLimit, Name: name, Text: store.RenamedFrom + cells}
}

// nameNow returns the name by which a limit is defined; empty if it is not there, or retired.
func (s *snapshot) nameNow(cells string) string {
	item, exists := s.items[store.Item{Kind: store.KindLimit, Name: cells}]
	if to := s.renamed[cells]; to != "" || !exists || item.Retired {
		return to
	}
	return cells
}

// difference returns what defining limits would change.
func (s *snapshot) difference(list []Definition) ([]store.Change, error) {
	items, _, refused, err := s.definitionItems(list)
	if err = cmp.Or(err, refused); err != nil {
		return nil, err
	}
	changes := (&store.Edit{Items: items}).Changes(slices.Collect(maps.Values(s.items)))
	sortChanges(changes)
	return changes, nil
}

// changedItems returns the items that changes write.
func changedItems(changes []store.Change) (items []store.Item) {
	for _, change := range changes {
		items = append(items, change.After)
	}
	return items
}
