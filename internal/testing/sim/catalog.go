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

// query runs a query of the catalog on the server, with the faults of the network. With an error it returns the zero T:
// the server may still write the answer then.
func query[T any](ctx context.Context, d *database, read func(context.Context) (T, error)) (zero T, err error) {
	var result T
	if err = ctx.Err(); err == nil {
		_, err = d.trip(ctx, func() (err error) {
			result, err = read(context.Background())
			return err
		})
	}
	if err != nil {
		return zero, err
	}
	return result, nil
}

func (d *database) ReadCatalog(ctx context.Context, since int64) (store.CatalogChanges, error) {
	return query(ctx, d, func(ctx context.Context) (store.CatalogChanges, error) {
		return d.Catalog.ReadCatalog(ctx, since)
	})
}

func (d *database) Items(ctx context.Context, list []store.Item) (int64, []store.Item, error) {
	changes, err := query(ctx, d, func(ctx context.Context) (changes store.CatalogChanges, err error) {
		changes.Version, changes.Items, err = d.Catalog.Items(ctx, list)
		return changes, err
	})
	return changes.Version, changes.Items, err
}

func (d *database) ItemsAfter(ctx context.Context, kind store.Kind, after store.Item, n int) ([]store.Item, error) {
	return query(ctx, d, func(ctx context.Context) ([]store.Item, error) {
		return d.Catalog.ItemsAfter(ctx, kind, after, n)
	})
}

// publish gives the store a catalog with the limits, if callers name them. The world changes the catalog over a
// connection without faults.
func (w *world) publish() {
	if !w.overrides {
		return
	}
	source := w.memory
	if w.db != nil {
		source = memory.New(&memory.Config{Clock: w.db.clock})
		w.db.Catalog, _ = store.As[store.Catalog](source)
	}
	var err error
	if w.catalog, err = catalog.Read(context.Background(), source, &catalog.Config{Logger: discardLog}); err != nil {
		panic(err)
	}
	var list []catalog.Definition
	for _, l := range w.allLimits() {
		l.nameOnly = headgate.MustNamed(l.name)
		list = append(list, catalog.Definition{Limit: l.versions[0].limit})
	}
	if _, err := w.catalog.Set(context.Background(), catalog.By{}, list...); err != nil {
		panic(err)
	}
}

// catalogNames looks limits up in the catalog that a process reads from its store. Decisions by an override say which
// version the override is.
type catalogNames struct {
	*catalog.Catalog
	w *world
}

// watchCatalog returns the names in the catalog of a store, for the running process.
func (w *world) watchCatalog(s store.Store) catalogNames {
	return catalogNames{catalog.Watch(s, &catalog.Config{Logger: discardLog}), w}
}

func (n catalogNames) Find(ctx context.Context, name, key string) (headgate.Limit, error) {
	l, err := n.Catalog.Find(ctx, name, key)
	return n.markVersion(l), err
}

func (n catalogNames) Known(name, key string) (headgate.Limit, bool) {
	l, ok := n.Catalog.Known(name, key)
	return n.markVersion(l), ok
}

func (n catalogNames) FindAll(ctx context.Context, charges []headgate.Charge) error {
	if err := n.Catalog.FindAll(ctx, charges); err != nil {
		return err
	}
	for i := range charges {
		charges[i].Limit = n.markVersion(charges[i].Limit)
	}
	return nil
}

// markVersion marks an override with its version, which it finds by the notation: no two versions have the same
// notation. The limit that follows the override at its end is not marked.
func (n catalogNames) markVersion(limit headgate.Limit) headgate.Limit {
	for _, l := range n.w.rateLimits {
		if l.name != limit.Name() {
			continue
		}
		for i := range l.versions {
			if v := &l.versions[i]; v.definition.Key != "" && v.limit.String() == limit.String() {
				return limit.Because(record.Because(v.definition.Version))
			}
		}
	}
	return limit
}

// addOverride adds a version that replaces the limit for one key, and has a notation of its own.
func (l *limit) addOverride(rng *rand.Rand, key string) *version {
	for {
		definition := l.versions[0].definition
		if rng.IntN(2) == 0 {
			resize(rng, &definition, 1, 30)
			if definition.Prefetch != "" {
				definition.Prefetch = "1"
			}
		} else {
			definition = shortLimit(rng)
		}
		definition.Key = key
		l.addVersion(definition)
		v := &l.versions[len(l.versions)-1]
		older := l.versions[:len(l.versions)-1]
		if !slices.ContainsFunc(older, func(o version) bool { return o.limit.String() == v.limit.String() }) {
			return v
		}
		l.versions = older
	}
}

// overrideKey sets an override of a limit for a key, and may remove it or let callers rush at its end.
func (w *world) overrideKey() {
	l, key := w.rateLimits[w.s.rng.IntN(len(w.rateLimits))], w.keys[w.s.rng.IntN(len(w.keys))]
	v := l.addOverride(w.s.rng, key)
	o := catalog.Override{Limit: v.limit, Key: key}
	life := w.s.between(100*time.Millisecond, 20*time.Second)
	if w.s.chance(650) {
		o.Until = w.storeTime().Add(life).Truncate(time.Microsecond)
		v.definition.Until = o.Until.UnixMicro()
	}
	if w.readsInTime() {
		v.definition.MaxApplyTime = maxApplyTime.Microseconds()
	}
	definition := v.definition // later versions may follow while this override is in force
	w.rec.Limit(definition)
	if _, err := w.catalog.Override(context.Background(), catalog.By{}, o); err != nil {
		panic(err)
	}
	switch isRemoved := w.s.chance(400); {
	case isRemoved:
		w.s.sleep(w.s.between(1, life))
		w.rec.Removal(history.Removal{Limit: l.name, Version: definition.Version})
		if _, err := w.catalog.RemoveOverride(context.Background(), catalog.By{}, l.name, key, false); err != nil {
			panic(err)
		}
	case definition.Until > 0 && w.s.chance(600):
		w.rushAtEnd(l, key, life)
	}
}

// rushAtEnd lets callers of all nodes come just before and just after an override ends.
func (w *world) rushAtEnd(l *limit, key string, life time.Duration) {
	w.s.sleep(life - min(life, w.s.between(0, 20*time.Millisecond)))
	for _, n := range w.nodes {
		w.rush(n, []charge{l.charge(n.p, key)}, 1+w.s.rng.IntN(8))
	}
}

// maxApplyTime is the time within which each process applies a change of the catalog: docs/limits.md.
const maxApplyTime = 2 * time.Second

// readsInTime reports whether no fault keeps processes from reading the catalog within maxApplyTime.
func (w *world) readsInTime() bool {
	return !w.faults.crashes && !w.faults.lossyFailovers &&
		(w.db == nil || w.db.refusals+w.db.lostRequests+w.db.lostAnswers+w.db.conflicts == 0)
}
