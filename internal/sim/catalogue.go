package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/internal/history/record"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// read asks the server about its catalogue, with the faults of the network.
func (c *conn) read(ctx context.Context, what func(store.Catalog) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := c.trip(ctx, func() error { return what(c.d.catalogue) })
	return err
}

// ReadCatalog implements store.Catalog.
func (c *conn) ReadCatalog(ctx context.Context, since int64) (store.Catalogue, error) {
	var got store.Catalogue // of the server; what the caller gets is a copy
	err := c.read(ctx, func(k store.Catalog) (err error) {
		got, err = k.ReadCatalog(context.Background(), since)
		return err
	})
	if err != nil { // the server may still write its answer
		return store.Catalogue{}, err
	}
	return got, nil
}

// Items implements store.Catalog.
func (c *conn) Items(ctx context.Context, list []store.Item) (int64, []store.Item, error) {
	var version int64
	var found []store.Item
	err := c.read(ctx, func(k store.Catalog) (err error) {
		version, found, err = k.Items(context.Background(), list)
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	return version, found, nil
}

// ItemsAfter implements store.Catalog.
func (c *conn) ItemsAfter(ctx context.Context, kind store.Kind, after store.Item, n int) ([]store.Item, error) {
	var found []store.Item
	err := c.read(ctx, func(k store.Catalog) (err error) {
		found, err = k.ItemsAfter(context.Background(), kind, after, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// WriteCatalog implements store.Catalog. No node changes limits.
func (c *conn) WriteCatalog(context.Context, store.Edit) (int64, error) {
	return 0, fmt.Errorf("simulated: %w: nodes do not write the catalogue", store.ErrReadOnly)
}

// CatalogVersions implements store.Catalog.
func (c *conn) CatalogVersions(context.Context, int64, int) ([]store.Version, error) { return nil, nil }

// RecordAction implements store.Catalog. Nobody administers.
func (c *conn) RecordAction(context.Context, store.Action) error { return nil }

// Actions implements store.Catalog.
func (c *conn) Actions(context.Context, int64, int) ([]store.Action, error) { return nil, nil }

// publish gives the store a catalogue with the limits, where callers name them. The world changes it over a
// connection without faults.
func (w *world) publish() {
	if !w.keyed {
		return
	}
	var keeper *memory.Store
	if w.memory != nil {
		keeper = w.memory.store
	} else {
		keeper = memory.New(&memory.Config{Clock: w.db.clock})
		w.db.catalogue, _ = store.As[store.Catalog](keeper)
	}
	var err error
	if w.limits, err = catalog.Read(context.Background(), keeper, &catalog.Config{Logger: quiet}); err != nil {
		panic(err)
	}
	var list []catalog.Definition
	for _, l := range append([]*limit{w.held}, w.taken...) {
		if l != nil {
			l.named = headgate.MustNamed(l.name)
			list = append(list, catalog.Definition{Limit: l.versions[0].limit})
		}
	}
	if _, err := w.limits.Set(context.Background(), catalog.By{}, list...); err != nil {
		panic(err)
	}
}

// names finds limits as programs do: it is the catalogue of a process, which reads that of its store. Decisions by
// an override say of which version it is.
type names struct {
	*catalog.Catalog
	w *world
}

// names returns those of the process that runs now, which asks a store.
func (w *world) names(s store.Store) names {
	return names{catalog.Watch(s, &catalog.Config{Logger: quiet}), w}
}

// Find implements headgate.Names.
func (n names) Find(ctx context.Context, name, key string) (headgate.Limit, error) {
	l, err := n.Catalog.Find(ctx, name, key)
	return n.version(l), err
}

// Known is Find for what is at hand: see headgate.Names.
func (n names) Known(name, key string) (headgate.Limit, bool) {
	l, ok := n.Catalog.Known(name, key)
	if ok {
		l = n.version(l)
	}
	return l, ok
}

// FindAll implements headgate.Names.
func (n names) FindAll(ctx context.Context, charges []headgate.Charge) error {
	if err := n.Catalog.FindAll(ctx, charges); err != nil {
		return err
	}
	for i := range charges {
		charges[i].Limit = n.version(charges[i].Limit)
	}
	return nil
}

// version lets a limit say of which version it is, if it is an override: no two versions have one notation. What
// follows it at its end is the limit itself.
func (n names) version(found headgate.Limit) headgate.Limit {
	for _, l := range n.w.taken {
		if l.name != found.Name() {
			continue
		}
		for i := range l.versions {
			if v := &l.versions[i]; v.told.Key != "" && v.limit.String() == found.String() {
				return found.Because(record.Because(v.told.Version))
			}
		}
	}
	return found
}

// override adds a version that stands in the place of the limit for one key.
func (l *limit) override(rng *rand.Rand, key string) *version {
	for {
		told := l.versions[0].told
		if rng.IntN(2) == 0 {
			told.Amount = strconv.Itoa(1 + rng.IntN(30))
			if told.Burst != "" {
				told.Burst = strconv.Itoa(1 + rng.IntN(30))
			}
			if told.Prefetch != "" {
				told.Prefetch = "1"
			}
		} else {
			told = brief(rng, l.name)
		}
		told.Key = key
		l.add(told)
		v := &l.versions[len(l.versions)-1]
		known := false
		for i := range l.versions[:len(l.versions)-1] {
			known = known || l.versions[i].limit.String() == v.limit.String()
		}
		if !known {
			return v
		}
		l.versions = l.versions[:len(l.versions)-1]
	}
}

// overrideKey gives a key another definition of a limit, with an end or without one, and
// removes it sometimes.
func (w *world) overrideKey() {
	l, key := w.taken[w.s.rng.IntN(len(w.taken))], w.keys[w.s.rng.IntN(len(w.keys))]
	v := l.override(w.s.rng, key)
	o := catalog.Override{Limit: v.limit, Key: key}
	left := w.s.between(100*time.Millisecond, 20*time.Second)
	if w.s.chance(650) {
		o.Until = w.storeTime().Add(left).Truncate(time.Microsecond)
		v.told.Until = o.Until.UnixMicro()
	}
	if w.prompt() {
		v.told.Felt = feltWithin.Microseconds()
	}
	told := v.told // others may follow while this one is in force
	w.rec.Limit(told)
	if _, err := w.limits.Override(context.Background(), catalog.By{}, o); err != nil {
		panic(err)
	}
	switch removes := w.s.chance(400); {
	case removes:
		w.s.sleep(w.s.between(1, left))
		w.rec.Removal(history.Removal{Limit: l.name, Version: told.Version})
		if _, err := w.limits.RemoveOverride(context.Background(), catalog.By{}, l.name, key, false); err != nil {
			panic(err)
		}
	case told.Until > 0 && w.s.chance(600):
		w.rushAtEnd(l, key, left)
	}
}

// rushAtEnd lets callers of all nodes come just before and just after an override ends.
func (w *world) rushAtEnd(l *limit, key string, left time.Duration) {
	w.s.sleep(left - min(left, w.s.between(0, 20*time.Millisecond)))
	for _, n := range w.nodes {
		w.rush(n, []charge{l.charge(n.home, key)}, 1+w.s.rng.IntN(8))
	}
}

// feltWithin is the time within which each process feels a change of the catalogue: docs/limits.md.
const feltWithin = 2 * time.Second

// prompt reports whether nothing keeps processes from reading the catalogue in time.
func (w *world) prompt() bool {
	return !w.faults.crashes && !w.faults.forgets &&
		(w.db == nil || w.db.refused+w.db.lostBefore+w.db.lostAfter+w.db.conflicts == 0)
}
