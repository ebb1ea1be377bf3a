package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/store"
)

// snapshot is an immutable version of the catalog.
type snapshot struct {
	version int64
	written int64     // when it was, by the store's clock, in microseconds; 0: that is not known
	at      time.Time // when it was known to be the newest
	store   int64     // the store's clock then, in microseconds
	readAt  time.Time // when it was read, by a monotonic clock
	items   map[store.Item]store.Item
	limits  map[string]Definition
	broken  map[string]error // limits that this program cannot read

	plans       map[string]map[string]planned // by the names of plans and limits
	prefixes    map[string]prefixes           // overrides, by limit
	assigned    prefixes                      // plans
	overrides   bool                          // there may be some of single keys
	assignments bool                          // the same
}

// nextSnapshot adds changes to old, which may be nil.
func nextSnapshot(old *snapshot, read *store.CatalogChanges, at, asked time.Time) *snapshot {
	if old != nil && len(read.Items) == 0 {
		same := *old
		same.version, same.written, same.at = read.Version, read.At, at
		same.store, same.readAt = read.Clock, asked
		return &same
	}
	s := &snapshot{
		version: read.Version, written: read.At, at: at, store: read.Clock, readAt: asked,
		items:  map[store.Item]store.Item{},
		limits: map[string]Definition{}, broken: map[string]error{},
	}
	if old != nil {
		s.overrides, s.assignments = old.overrides, old.assignments
		maps.Copy(s.items, old.items)
	}
	for _, item := range read.Items {
		switch {
		case item.Kind.PerKey():
			s.overrides = s.overrides || item.Kind == store.KindOverride
			s.assignments = s.assignments || item.Kind == store.KindAssignment
		case item.Removed:
			delete(s.items, item.ID())
		default:
			s.items[item.ID()] = item
		}
	}
	for _, item := range s.items {
		if item.Kind != store.KindLimit {
			continue
		}
		d, err := definition(&item)
		if err != nil {
			s.broken[item.Name] = err
			continue
		}
		s.limits[item.Name] = d
	}
	s.readPlans()
	return s
}

// lostIn reports whether the catalog that was read after s is another one or an earlier state, such as after a
// restored dump.
func (s *snapshot) lostIn(read *store.CatalogChanges) bool {
	return read.Version < s.version || read.SinceAt != 0 && s.written != 0 && read.SinceAt != s.written
}

// missingIn returns the names of items that only s has, for people. It does not know items of single keys: see
// [keys.missingIn].
func (s *snapshot) missingIn(now *snapshot) []string {
	var list []string
	for id, item := range s.items {
		if _, there := now.items[id]; !there && item.Kind != store.KindFile {
			list = append(list, nameOf(&item))
		}
	}
	list = shorten(list, len(list))
	if s.overrides && !now.overrides {
		list = append(list, "overrides of single keys")
	}
	if s.assignments && !now.assignments {
		list = append(list, "plans of single keys")
	}
	return list
}

// nameOf names an item for people.
func nameOf(i *store.Item) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", i.Kind, i.Name, i.Key))
}

// namesShown is how many names are in a message.
const namesShown = 20

// shorten returns the first of a list, ordered, and how many others of all there are.
func shorten(list []string, all int) []string {
	slices.Sort(list)
	list = list[:min(len(list), namesShown)]
	if more := all - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return list
}

// known lists for an error what the catalog has. To order all names would be slow for a client that uses an unknown
// name many times a second.
func known[T any](of map[string]T) string {
	list := make([]string, 0, len(of))
	for name := range of {
		if list = append(list, name); len(of) > 100*namesShown && len(list) == namesShown {
			break
		}
	}
	return cmp.Or(strings.Join(shorten(list, len(of)), ", "), "none")
}

// clock estimates the store's clock without the wall clock of this machine: if that is set, items would seem to have
// ended until the next read.
func (s *snapshot) clock() int64 { return s.store + sched.Since(s.readAt).Microseconds() }

// definition parses an item.
func definition(i *store.Item) (d Definition, err error) {
	l, err := headgate.ParseNamed(i.Name, i.Text)
	return Definition{Limit: l, Description: i.Note, Origin: i.Origin, Retired: i.Retired}, err
}

// find returns the limit of a name. A nil snapshot means that nothing was read yet.
func (s *snapshot) find(name string) (headgate.Limit, error) {
	if s == nil {
		return headgate.Limit{}, errUnread
	}
	if d, ok := s.limits[name]; ok {
		return d.Limit, nil
	}
	if err := s.broken[name]; err != nil {
		return headgate.Limit{}, fmt.Errorf("limit %q of the catalog cannot be read by this program: %w", name, err)
	}
	return headgate.Limit{}, s.unknownLimit(name)
}

func (s *snapshot) unknownLimit(name string) error {
	return fmt.Errorf("%w: %.100q; the catalog has %s", headgate.ErrUnknownLimit, name, known(s.limits))
}

// List implements Names.
func (s *snapshot) List() []Definition {
	if s == nil {
		return nil
	}
	byName := func(a, b Definition) int { return cmp.Compare(a.Name(), b.Name()) }
	return slices.SortedFunc(maps.Values(s.limits), byName)
}
