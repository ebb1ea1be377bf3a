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
	version     int64
	writtenAt   int64                     // when the version was written, by the store's clock, in us; 0: not known
	newestAt    time.Time                 // a time at which the version was the newest, by this machine's wall clock
	storeClock  int64                     // the store's clock during the read that began at readAt, in microseconds
	readAt      time.Time                 // when the last read of the version began, by a monotonic clock
	items       map[store.Item]store.Item // by ID; without those of single keys
	limits      map[string]Definition     // by each name; without those that this program cannot read
	parseErrors map[string]error          // why this program cannot read a limit, by the limit's name

	aliases aliases           // of limits that were renamed
	renamed map[string]string // the names that these have now, by the name of their cells

	plans           map[string]map[string]planLimit // by the names of plans and limits
	prefixOverrides map[string]prefixItems          // by limit
	prefixPlans     prefixItems
	hasKeyOverrides bool // single keys may have overrides
	hasKeyPlans     bool // single keys may have plans
}

// nextSnapshot returns old with the changes that were read. If old is nil, the whole catalog was read. wallTime and
// readAt are when the read began.
func nextSnapshot(old *snapshot, read *store.CatalogChanges, wallTime, readAt time.Time) *snapshot {
	if old != nil && len(read.Items) == 0 {
		same := *old
		same.version, same.writtenAt, same.newestAt = read.Version, read.At, wallTime
		same.storeClock, same.readAt = read.Clock, readAt
		return &same
	}
	s := &snapshot{
		version: read.Version, writtenAt: read.At, newestAt: wallTime, storeClock: read.Clock, readAt: readAt,
		items:  map[store.Item]store.Item{},
		limits: map[string]Definition{}, parseErrors: map[string]error{},
	}
	if old != nil {
		s.hasKeyOverrides, s.hasKeyPlans = old.hasKeyOverrides, old.hasKeyPlans
		maps.Copy(s.items, old.items)
	}
	for _, item := range read.Items {
		switch {
		case item.Kind.PerKey():
			s.hasKeyOverrides = s.hasKeyOverrides || item.Kind == store.KindOverride
			s.hasKeyPlans = s.hasKeyPlans || item.Kind == store.KindAssignment
		case item.Removed:
			delete(s.items, item.ID())
		default:
			s.items[item.ID()] = item
		}
	}
	for _, item := range s.items {
		if item.Kind != store.KindLimit || item.RenamedFrom() != "" {
			continue
		}
		d, err := definition(&item)
		if err != nil {
			s.parseErrors[item.Name] = err
			continue
		}
		s.limits[item.Name] = d
	}
	s.readAliases()
	s.readPlans()
	return s
}

// isLost reports whether the store no longer has s: what was read after s is another catalog, or an earlier state,
// as after a dump was restored.
func (s *snapshot) isLost(read *store.CatalogChanges) bool {
	return read.Version < s.version || read.SinceAt != 0 && s.writtenAt != 0 && read.SinceAt != s.writtenAt
}

// missingIn returns the names of items that s has and current lacks, for people: namesShown at most. It does not know
// items of single keys: see [keyCache.missingIn].
func (s *snapshot) missingIn(current *snapshot) []string {
	var list []string
	for id, item := range s.items {
		if _, there := current.items[id]; !there && item.Kind != store.KindFile {
			list = append(list, nameOf(&item))
		}
	}
	list = firstNames(list, len(list))
	if s.hasKeyOverrides && !current.hasKeyOverrides {
		list = append(list, "overrides of single keys")
	}
	if s.hasKeyPlans && !current.hasKeyPlans {
		list = append(list, "plans of single keys")
	}
	return list
}

// nameOf names an item for people.
func nameOf(i *store.Item) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", i.Kind, i.Name, i.Key))
}

// namesShown is how many names a message lists at most.
const namesShown = 20

// firstNames sorts a list and returns its first namesShown names, then how many more of total there are.
func firstNames(list []string, total int) []string {
	slices.Sort(list)
	list = list[:min(len(list), namesShown)]
	if more := total - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return list
}

// joinNames lists the first names of a map for an error; of a large map, any. To sort all would be slow for a client
// that uses an unknown name many times a second.
func joinNames[T any](byName map[string]T) string {
	list := make([]string, 0, len(byName))
	for name := range byName {
		if list = append(list, name); len(byName) > 100*namesShown && len(list) == namesShown {
			break
		}
	}
	return cmp.Or(strings.Join(firstNames(list, len(byName)), ", "), "none")
}

// clock estimates the store's clock without the wall clock of this machine. If somebody set the wall clock, items
// would seem to have ended until the next read.
func (s *snapshot) clock() int64 { return s.storeClock + sched.Since(s.readAt).Microseconds() }

// definition parses an item that is a limit.
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
	if err := s.parseErrors[name]; err != nil {
		return headgate.Limit{}, fmt.Errorf("limit %q of the catalog cannot be read by this program: %w", name, err)
	}
	return headgate.Limit{}, s.unknownLimit(name)
}

func (s *snapshot) unknownLimit(name string) error {
	return fmt.Errorf("%w: %.100q; the catalog has %s", headgate.ErrUnknownLimit, name, joinNames(s.limits))
}

// definitions returns the limits, each once, ordered by the name of their cells; none for a nil snapshot.
func (s *snapshot) definitions() []Definition {
	if s == nil {
		return nil
	}
	byName := func(a, b Definition) int { return cmp.Compare(a.Name(), b.Name()) }
	list := slices.SortedFunc(maps.Values(s.limits), byName)
	return slices.CompactFunc(list, func(a, b Definition) bool { return byName(a, b) == 0 })
}
