package catalog

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/maypok86/otter/v2"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/store"
)

// keys is what is remembered of single keys: their overrides and plans, and that they have
// none. All of it belongs to the version that is in force: a refresh drops what the new version
// has changed.
type keys struct {
	cache *otter.Cache[id, *entry]

	mu      sync.Mutex
	waiting []*lookup     // while one is under way; the last one gathers; guarded by mu
	flying  chan struct{} // closed when no look-up is under way any more; nil: none is; guarded by mu
	closed  bool          // guarded by mu
}

// A lookup is one statement on every store, so what it finds is of one version. More keys than
// mostLookups bounds the keys that are looked up at a time: a store that is slow would fall behind.
const (
	perLookup   = 400
	mostLookups = 250
)

// id says which item of a single key one is.
type id struct {
	kind      store.Kind
	name, key string
}

func (i id) item() store.Item { return store.Item{Kind: i.kind, Name: i.name, Key: i.key} }

func (k *keys) init(most int) {
	if most <= 0 {
		most = DefaultKeys
	}
	k.cache = otter.Must(&otter.Options[id, *entry]{MaximumSize: most})
}

// entry is an item of a single key. It is never changed, but for what it means.
type entry struct {
	there bool
	text  string
	until int64

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

// lookup is a question to the store about several items.
type lookup struct {
	ids  map[id]struct{}
	done chan struct{}

	version int64
	found   map[id]*entry
	err     error
	silent  bool // the store did not answer in time
}

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
	for {
		all, silent, err := c.askOnce(ctx, ids)
		if err == nil || !silent || ctx.Err() != nil {
			return all, err
		}
	}
}

// askOnce is ask for as long as one look-up lasts, and reports whether the store was silent.
func (c *Catalog) askOnce(ctx context.Context, ids []id) (found *lookup, silent bool, err error) {
	list, err := c.keys.enqueue(ids, c.fly)
	if err != nil {
		return nil, false, err
	}
	all := &lookup{found: map[id]*entry{}}
	for n, l := range list {
		if !sched.Either(l.done, ctx.Done()) {
			return nil, false, fmt.Errorf("%w: what the catalog has for a key was not read in time: %w",
				store.ErrUnavailable, ctx.Err())
		}
		if l.err != nil {
			return nil, l.silent, l.err
		}
		if n == 0 {
			all.version = l.version
		} else if all.version != l.version {
			all.version = -1 // of none: what is remembered counts alone
		}
		for i, e := range l.found {
			all.found[i] = e
		}
	}
	return all, false, nil
}

// enqueue adds items to the lookups that wait, and returns those that they are in.
func (k *keys) enqueue(ids []id, fly func()) (list []*lookup, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, errClosed
	}
	for part := range slices.Chunk(ids, perLookup) {
		n := len(k.waiting)
		if n == 0 || len(k.waiting[n-1].ids)+len(part) > perLookup {
			if n >= mostLookups {
				return nil, fmt.Errorf("%w: too many keys wait for what the catalog has for them", store.ErrBusy)
			}
			k.waiting = append(k.waiting, &lookup{ids: make(map[id]struct{}, len(part)), done: make(chan struct{})})
		}
		l := k.waiting[len(k.waiting)-1]
		for _, i := range part {
			l.ids[i] = struct{}{}
		}
		list = append(list, l)
	}
	if k.flying == nil {
		k.flying = make(chan struct{})
		sched.Go(fly)
	}
	return list, nil
}

// fly reads from the store for as long as there are look-ups.
func (c *Catalog) fly() {
	k := &c.keys
	for {
		k.mu.Lock()
		if k.closed {
			for _, l := range k.waiting {
				l.err = errClosed
				close(l.done)
			}
			k.waiting = nil
		}
		if len(k.waiting) == 0 {
			close(k.flying)
			k.flying, k.waiting = nil, nil
			k.mu.Unlock()
			return
		}
		l := k.waiting[0]
		k.waiting = k.waiting[1:]
		k.mu.Unlock()
		ctx, cancel := sched.WithTimeout(context.Background(), lookWithin)
		l.err = c.fetch(ctx, l)
		l.silent = ctx.Err() != nil
		cancel()
		close(l.done)
	}
}

var errClosed = fmt.Errorf("%w: the catalog was closed before it was read what a key has", store.ErrClosed)

// close ends the look-ups, and waits for the one that is under way.
func (k *keys) close() {
	k.mu.Lock()
	k.closed = true
	flying := k.flying
	k.mu.Unlock()
	if flying != nil {
		sched.Receive(flying)
	}
}

// fetch reads the items of a lookup. If they are of a newer version than the one that is in force, it
// is read too: no decision is by half a change.
func (c *Catalog) fetch(ctx context.Context, l *lookup) error {
	k, err := c.keeper()
	if err != nil {
		return err
	}
	list := make([]store.Item, 0, len(l.ids))
	l.found = make(map[id]*entry, len(l.ids))
	for i := range l.ids {
		list = append(list, i.item())
		l.found[i] = absent
	}
	version, found, err := k.Items(ctx, list)
	if err != nil {
		return err
	}
	l.version = version
	for _, i := range found {
		l.found[id{i.Kind, i.Name, i.Key}] = &entry{there: true, text: i.Text, until: i.Until}
	}
	if version != c.now.Load().version { // less: the store was restored, say
		if err := c.Refresh(ctx); err != nil {
			return err
		}
	}
	c.keys.mu.Lock()
	defer c.keys.mu.Unlock()
	if c.now.Load().version == version { // else they may be out of date
		for i, e := range l.found {
			c.keys.cache.Set(i, e)
		}
	}
	return nil
}

// missingIn names what single keys had, as far as it was used here lately, and have no more in a store.
func (k *keys) missingIn(ctx context.Context, now store.Catalog) []string {
	var had []store.Item
	for i, e := range k.cache.All() {
		if e.there && len(had) < perLookup {
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
	return some(list)
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
