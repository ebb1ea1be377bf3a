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

// keys is what is remembered of single keys: their overrides and plans, and that they have
// none. All of it belongs to the version that is in force: a refresh drops what the new version
// has changed.
type keys struct {
	cache  *otter.Cache[id, *entry]
	queue  *flight.Queue[struct{}, *lookup]
	closed atomic.Bool
	mu     sync.Mutex // held to change the version that is in force, or what is remembered of it
}

// A statement reads perLookup items at most, and what it finds is of one version on every store. More callers than
// maxLookups do not wait: a store that is slow would fall behind.
const (
	perLookup  = 400
	maxLookups = 100_000
)

// id says which item of a single key one is.
type id struct {
	kind      store.Kind
	name, key string
}

func (i id) item() store.Item { return store.Item{Kind: i.kind, Name: i.name, Key: i.key} }

func (k *keys) init(most int, fly func(context.Context, []*flight.Passenger[struct{}, *lookup]) error) {
	if most <= 0 {
		most = DefaultKeys
	}
	k.cache = otter.Must(&otter.Options[id, *entry]{MaximumSize: most})
	k.queue = flight.New(flight.Config[struct{}, *lookup]{
		Flights: 1, Least: 1, Most: perLookup, Waiting: maxLookups,
		New: func() *lookup { return &lookup{} },
		Fly: fly, Land: func([]*flight.Passenger[struct{}, *lookup], error) {},
	})
}

// entry is an item of a single key. It is never changed, but for what it means.
type entry struct {
	exists bool
	text   string
	until  int64

	mu    sync.Mutex
	base  headgate.Limit // that limit was made for; guarded by mu
	limit headgate.Limit // guarded by mu
	err   error          // guarded by mu
}

// absent is the entry of what is not there.
var absent = &entry{}

// override returns the limit of an override, in the place of another limit.
func (e *entry) override(base headgate.Limit, applied string) (headgate.Limit, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.base != base {
		e.base = base
		e.limit, e.err = instead(base, e.text, applied)
	}
	return e.limit, e.err
}

// instead returns the limit of a notation in the place of another one.
func instead(base headgate.Limit, notation, applied string) (headgate.Limit, error) {
	l, err := headgate.ParseNamed(base.Name(), notation)
	if err != nil {
		return l, fmt.Errorf("%s of limit %q cannot be read by this program: %w", applied, base.Name(), err)
	}
	return l.Because(applied), nil
}

// lookup is a caller's lookup, and then the items that were found for its batch.
type lookup struct {
	ids     []id
	version int64 // of what was found; -1: of several, so what is remembered counts alone
	found   map[id]*entry
	silent  bool // the store did not answer in time
}

// Size implements flight.Load.
func (l *lookup) Size() int { return len(l.ids) }

// Keys implements flight.Load. One flight is under way at a time, so there is nothing to keep apart.
func (l *lookup) Keys() int { return 0 }

// Key implements flight.Load.
func (l *lookup) Key(int) struct{} { return struct{}{} }

// Clear implements flight.Load.
func (l *lookup) Clear() { *l = lookup{} }

// turn makes a version the newest, and forgets what it has changed; all, if all was read again.
func (k *keys) turn(changed []store.Item, all bool, store func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if all {
		k.cache.InvalidateAll()
	}
	for _, i := range changed {
		if i.Kind.PerKey() && !all {
			k.cache.Invalidate(id{i.Kind, i.Name, i.Key})
		}
	}
	store() // at last: readers hold no lock, and must not find what was of the version before
}

// ask reads items from the store, for as long as the context lasts. Callers that come while it reads
// for others are served together.
func (c *Catalog) ask(ctx context.Context, ids []id) (*lookup, error) {
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
		if err == nil || !found.silent || ctx.Err() != nil {
			return &found, err
		}
	}
}

// fly calls the store for what callers wait for.
func (c *Catalog) fly(_ context.Context, passengers []*flight.Passenger[struct{}, *lookup]) error {
	if c.keys.closed.Load() {
		return errClosed
	}
	ctx, cancel := sched.WithTimeout(context.Background(), lookWithin)
	defer cancel()
	found := map[id]*entry{}
	for _, p := range passengers {
		for _, i := range p.Load.ids {
			found[i] = absent
		}
	}
	version, err := c.fetch(ctx, found)
	for _, p := range passengers {
		p.Load.version, p.Load.found, p.Load.silent = version, found, ctx.Err() != nil
	}
	return err
}

var errClosed = fmt.Errorf("%w: the catalog was closed before it was read what a key has", store.ErrClosed)

// close ends the look-ups, and waits for the one that is under way.
func (k *keys) close() {
	k.closed.Store(true)
	k.queue.Close()
}

// fetch finds items, and returns the version that they are of; -1: several. If it is newer than the one that is in
// force, that is read too: no decision is by half a change.
func (c *Catalog) fetch(ctx context.Context, found map[id]*entry) (version int64, err error) {
	n := 0
	for part := range slices.Chunk(slices.Collect(maps.Keys(found)), perLookup) {
		list := make([]store.Item, len(part))
		for i := range part {
			list[i] = part[i].item()
		}
		of, items, err := c.keeper().Items(ctx, list)
		if err != nil {
			return 0, err
		}
		for _, i := range items {
			found[id{i.Kind, i.Name, i.Key}] = &entry{exists: true, text: i.Text, until: i.Until}
		}
		if of != c.now.Load().version { // less: the store was restored, say
			if err := c.Refresh(ctx); err != nil {
				return 0, err
			}
		}
		c.remember(of, part, found)
		if n++; n == 1 {
			version = of
		} else if version != of {
			version = -1
		}
	}
	return version, nil
}

// remember keeps what was found, if it is of the version that is in force: else it may be out of date.
func (c *Catalog) remember(version int64, ids []id, found map[id]*entry) {
	c.keys.mu.Lock()
	defer c.keys.mu.Unlock()
	if c.now.Load().version == version {
		for _, i := range ids {
			c.keys.cache.Set(i, found[i])
		}
	}
}

// missingIn names what single keys had, as far as it was used here lately, and have no more in a store.
func (k *keys) missingIn(ctx context.Context, now store.Catalog) []string {
	var had []store.Item
	for i, e := range k.cache.All() {
		if e.exists && len(had) < perLookup {
			had = append(had, i.item())
		}
	}
	if len(had) == 0 {
		return nil
	}
	_, has, err := now.Items(ctx, had)
	if err != nil { // then it is not known which
		return nil
	}
	var list []string
	for _, h := range had {
		if !slices.ContainsFunc(has, func(i store.Item) bool { return i.ID() == h.ID() }) {
			list = append(list, nameOf(&h))
		}
	}
	return shorten(list, len(list))
}

// lookForKeys finds out whether there is anything for single keys. Most stores have neither plans
// nor overrides, and then no key is looked up.
func (s *snapshot) lookForKeys(ctx context.Context, k store.Catalog) error {
	if f, ok := k.(store.KindFinder); ok {
		have, err := f.MayHave(ctx, store.KindOverride, store.KindAssignment)
		if err != nil {
			return err
		}
		s.overrides, s.assignments = s.overrides || have[0], s.assignments || have[1]
		return nil
	}
	for kind, there := range map[store.Kind]*bool{
		store.KindOverride: &s.overrides, store.KindAssignment: &s.assignments,
	} {
		some, err := itemsAfter(ctx, k, kind, store.Item{}, 1)
		if err != nil {
			return err
		}
		*there = *there || len(some) > 0
	}
	return nil
}
