package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/history/record"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// read asks the server about its catalog, with the faults of the network. It returns nothing with an
// error: then the server may still write its answer.
func read[T any](ctx context.Context, d *database, what func(context.Context) (T, error)) (none T, err error) {
	var got T
	if err = ctx.Err(); err == nil {
		_, err = d.trip(ctx, func() (err error) {
			got, err = what(context.Background())
			return err
		})
	}
	if err != nil {
		return none, err
	}
	return got, nil
}

func (d *database) ReadCatalog(ctx context.Context, since int64) (store.CatalogChanges, error) {
	return read(ctx, d, func(ctx context.Context) (store.CatalogChanges, error) {
		return d.Catalog.ReadCatalog(ctx, since)
	})
}

func (d *database) Items(ctx context.Context, list []store.Item) (int64, []store.Item, error) {
	got, err := read(ctx, d, func(ctx context.Context) (got store.CatalogChanges, err error) {
		got.Version, got.Items, err = d.Catalog.Items(ctx, list)
		return got, err
	})
	return got.Version, got.Items, err
}

func (d *database) ItemsAfter(ctx context.Context, kind store.Kind, after store.Item, n int) ([]store.Item, error) {
	return read(ctx, d, func(ctx context.Context) ([]store.Item, error) {
		return d.Catalog.ItemsAfter(ctx, kind, after, n)
	})
}

// publish gives the store a catalog with the limits, where callers name them. The world changes it over a
// connection without faults.
func (w *world) publish() {
	if !w.keyed {
		return
	}
	keeper := w.memory
	if w.db != nil {
		keeper = memory.New(&memory.Config{Clock: w.db.clock})
		w.db.Catalog, _ = store.As[store.Catalog](keeper)
	}
	var err error
	if w.limits, err = catalog.Read(context.Background(), keeper, &catalog.Config{Logger: quiet}); err != nil {
		panic(err)
	}
	var list []catalog.Definition
	for _, l := range w.all() {
		l.named = headgate.MustNamed(l.name)
		list = append(list, catalog.Definition{Limit: l.versions[0].limit})
	}
	if _, err := w.limits.Set(context.Background(), catalog.By{}, list...); err != nil {
		panic(err)
	}
}

// names finds limits as programs do: it is the catalog of a process, which reads that of its store. Decisions by
// an override say of which version it is.
type names struct {
	*catalog.Catalog
	w *world
}

// names returns those of the process that runs now, which asks a store.
func (w *world) names(s store.Store) names {
	return names{catalog.Watch(s, &catalog.Config{Logger: quiet}), w}
}

func (n names) Find(ctx context.Context, name, key string) (headgate.Limit, error) {
	l, err := n.Catalog.Find(ctx, name, key)
	return n.version(l), err
}

// Known implements headgate.Names.
func (n names) Known(name, key string) (headgate.Limit, bool) {
	l, ok := n.Catalog.Known(name, key)
	return n.version(l), ok
}

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
			if v := &l.versions[i]; v.recorded.Key != "" && v.limit.String() == found.String() {
				return found.Because(record.Because(v.recorded.Version))
			}
		}
	}
	return found
}

// override adds a version that stands in the place of the limit for one key.
func (l *limit) override(rng *rand.Rand, key string) *version {
	for {
		recorded := l.versions[0].recorded
		if rng.IntN(2) == 0 {
			resize(rng, &recorded, 1, 30)
			if recorded.Prefetch != "" {
				recorded.Prefetch = "1"
			}
		} else {
			recorded = shortLimit(rng)
		}
		recorded.Key = key
		l.add(recorded)
		v := &l.versions[len(l.versions)-1]
		before := l.versions[:len(l.versions)-1]
		if !slices.ContainsFunc(before, func(o version) bool { return o.limit.String() == v.limit.String() }) {
			return v
		}
		l.versions = before
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
		v.recorded.Until = o.Until.UnixMicro()
	}
	if w.prompt() {
		v.recorded.Felt = feltWithin.Microseconds()
	}
	recorded := v.recorded // others may follow while this one is in force
	w.rec.Limit(recorded)
	if _, err := w.limits.Override(context.Background(), catalog.By{}, o); err != nil {
		panic(err)
	}
	switch removes := w.s.chance(400); {
	case removes:
		w.s.sleep(w.s.between(1, left))
		w.rec.Removal(history.Removal{Limit: l.name, Version: recorded.Version})
		if _, err := w.limits.RemoveOverride(context.Background(), catalog.By{}, l.name, key, false); err != nil {
			panic(err)
		}
	case recorded.Until > 0 && w.s.chance(600):
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

// feltWithin is the time within which each process feels a change of the catalog: docs/limits.md.
const feltWithin = 2 * time.Second

// prompt reports whether nothing keeps processes from reading the catalog in time.
func (w *world) prompt() bool {
	return !w.faults.crashes && !w.faults.forgets &&
		(w.db == nil || w.db.refused+w.db.lostBefore+w.db.lostAfter+w.db.conflicts == 0)
}
