package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/maypok86/otter/v2"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/flight"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/store"
)

// keyCache caches the overrides and plans of single keys, and that a key has none. All entries
// are of the current version: a refresh drops those that the new version has changed.
type keyCache struct {
	cache  *otter.Cache[id, *entry]
	queue  *flight.Queue[struct{}, *lookup]
	closed atomic.Bool
	mu     sync.Mutex // held to change the current version, or to cache entries of it
}

// One call of the store reads perLookup items at most: a single statement, which on every store finds items of one
// version. At most maxLookups callers wait: a slow store would fall behind.
const (
	perLookup  = 400
	maxLookups = 100_000
)

// id identifies an item of a single key.
type id struct {
	kind      store.Kind
	name, key string
}

func (i id) item() store.Item { return store.Item{Kind: i.kind, Name: i.name, Key: i.key} }

// init makes an empty cache of maxEntries entries; serve reads a batch of look-ups from the store.
func (k *keyCache) init(maxEntries int, serve func(context.Context, []*flight.Passenger[struct{}, *lookup]) error) {
	if maxEntries <= 0 {
		maxEntries = DefaultKeys
	}
	k.cache = otter.Must(&otter.Options[id, *entry]{MaximumSize: maxEntries})
	k.queue = flight.New(flight.Config[struct{}, *lookup]{
		MaxFlights: 1, MinSize: 1, MaxSize: perLookup, MaxWaiting: maxLookups,
		New: func() *lookup { return &lookup{} },
		Fly: serve, Land: func([]*flight.Passenger[struct{}, *lookup], error) {},
	})
}

// entry is an item of a single key or a prefix. Only its parsed limit changes, which depends on the base limit.
type entry struct {
	exists bool
	text   string
	until  int64

	mu    sync.Mutex
	base  headgate.Limit // the limit in whose place limit stands; guarded by mu
	limit headgate.Limit // guarded by mu
	err   error          // guarded by mu
}

// absent is the entry of an item that does not exist.
var absent = &entry{}

// override returns the limit of an override in the place of base. It parses the text again only for another base.
func (e *entry) override(base headgate.Limit, applied string) (headgate.Limit, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.base != base {
		e.base = base
		e.limit, e.err = parseInPlaceOf(base, e.text, applied)
	}
	return e.limit, e.err
}

// parseInPlaceOf parses a notation into a limit with the name of base; applied is its text for decisions.
func parseInPlaceOf(base headgate.Limit, notation, applied string) (headgate.Limit, error) {
	l, err := headgate.ParseNamed(base.Name(), notation)
	if err != nil {
		return l, fmt.Errorf("%s of limit %q cannot be read by this program: %w", applied, base.Name(), err)
	}
	return l.Because(applied), nil
}

// lookup is one caller's request for items, and then the result for its whole batch: a flight.Load.
type lookup struct {
	ids      []id
	version  int64 // the version of found; -1: several, so only cached entries may be used
	found    map[id]*entry
	timedOut bool // the store did not answer in time
}

func (l *lookup) Size() int { return len(l.ids) }

// Keys returns 0: one flight is under way at a time, so there is nothing to keep apart.
func (l *lookup) Keys() int { return 0 }

func (l *lookup) Key(int) struct{} { return struct{}{} }

func (l *lookup) Clear() { *l = lookup{} }

// publish drops the cached entries that a new version has changed, and then calls setCurrent to publish the version.
// With rereadAll the whole catalog was read again: publish drops all entries.
func (k *keyCache) publish(changed []store.Item, rereadAll bool, setCurrent func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if rereadAll {
		k.cache.InvalidateAll()
	}
	for _, i := range changed {
		if i.Kind.PerKey() && !rereadAll {
			k.cache.Invalidate(id{i.Kind, i.Name, i.Key})
		}
	}
	setCurrent() // at last: readers hold no lock, and must not find entries of the version before
}

// lookUp reads items from the store, for as long as the context lasts. Callers that arrive during
// a read wait for the next one, which serves them together.
func (c *Catalog) lookUp(ctx context.Context, ids []id) (*lookup, error) {
	for q := c.keys.queue; ; {
		p := q.Passenger()
		p.Load.ids = ids
		switch err := q.Lock(); {
		case errors.Is(err, flight.ErrClosed):
			return nil, errClosed
		case err != nil:
			return nil, fmt.Errorf("%w: too many keys wait for what the catalog has for them", store.ErrBusy)
		}
		if !p.Wait(ctx, q.Add(p), func(bool) {}) {
			return nil, fmt.Errorf("%w: what the catalog has for a key was not read in time: %w",
				store.ErrUnavailable, ctx.Err())
		}
		found, err := *p.Load, p.Err()
		p.Leave()
		if err == nil || !found.timedOut || ctx.Err() != nil { // else this caller's context lasts longer than the read
			return &found, err
		}
	}
}

// serveLookups reads from the store the items that the callers of a batch wait for.
func (c *Catalog) serveLookups(_ context.Context, passengers []*flight.Passenger[struct{}, *lookup]) error {
	if c.keys.closed.Load() {
		return errClosed
	}
	ctx, cancel := sched.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	found := map[id]*entry{}
	for _, p := range passengers {
		for _, i := range p.Load.ids {
			found[i] = absent
		}
	}
	version, err := c.fetch(ctx, found)
	for _, p := range passengers {
		p.Load.version, p.Load.found, p.Load.timedOut = version, found, ctx.Err() != nil
	}
	return err
}

var errClosed = fmt.Errorf("%w: the catalog was closed before it was read what a key has", store.ErrClosed)

// fetch reads the items whose ids found has, sets their entries, and returns their version; -1: several. If that is not
// the current version, fetch reads the catalog too: no decision sees half a change.
func (c *Catalog) fetch(ctx context.Context, found map[id]*entry) (version int64, err error) {
	chunks := 0
	for part := range slices.Chunk(slices.Collect(maps.Keys(found)), perLookup) {
		list := make([]store.Item, len(part))
		for i := range part {
			list[i] = part[i].item()
		}
		itemsVersion, items, err := c.backend().Items(ctx, list)
		if err != nil {
			return 0, err
		}
		for _, i := range items {
			found[id{i.Kind, i.Name, i.Key}] = &entry{exists: true, text: i.Text, until: i.Until}
		}
		if itemsVersion != c.current.Load().version { // it may be less: the store was restored, say
			if err := c.Refresh(ctx); err != nil {
				return 0, err
			}
		}
		c.cacheEntries(itemsVersion, part, found)
		if chunks++; chunks == 1 {
			version = itemsVersion
		} else if version != itemsVersion {
			version = -1
		}
	}
	return version, nil
}

// cacheEntries caches what was found, if it is of the current version: otherwise it may be out of date.
func (c *Catalog) cacheEntries(version int64, ids []id, found map[id]*entry) {
	c.keys.mu.Lock()
	defer c.keys.mu.Unlock()
	if c.current.Load().version == version {
		for _, i := range ids {
			c.keys.cache.Set(i, found[i])
		}
	}
}

// missingIn returns names of items of single keys that a store no longer has. It looks for perLookup cached ones.
func (k *keyCache) missingIn(ctx context.Context, backend store.Catalog) []string {
	var cachedItems []store.Item
	for i, e := range k.cache.All() {
		if e.exists && len(cachedItems) < perLookup {
			cachedItems = append(cachedItems, i.item())
		}
	}
	if len(cachedItems) == 0 {
		return nil
	}
	_, found, err := backend.Items(ctx, cachedItems)
	if err != nil { // then nobody knows which are missing
		return nil
	}
	var names []string
	for _, item := range cachedItems {
		if !slices.ContainsFunc(found, func(i store.Item) bool { return i.ID() == item.ID() }) {
			names = append(names, nameOf(&item))
		}
	}
	return firstNames(names, len(names))
}

// detectKeyItems sets hasKeyPlans and hasKeyOverrides if any single key may have one; otherwise no key is looked up.
func (s *snapshot) detectKeyItems(ctx context.Context, backend store.Catalog) error {
	if f, ok := backend.(store.KindFinder); ok {
		mayHave, err := f.MayHave(ctx, store.KindOverride, store.KindAssignment)
		if err != nil {
			return err
		}
		s.hasKeyOverrides, s.hasKeyPlans = s.hasKeyOverrides || mayHave[0], s.hasKeyPlans || mayHave[1]
		return nil
	}
	for kind, exists := range map[store.Kind]*bool{
		store.KindOverride: &s.hasKeyOverrides, store.KindAssignment: &s.hasKeyPlans,
	} {
		items, err := itemsAfter(ctx, backend, kind, store.Item{}, 1)
		if err != nil {
			return err
		}
		*exists = *exists || len(items) > 0
	}
	return nil
}
