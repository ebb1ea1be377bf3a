package catalog_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// swappableStore is a store that a test can swap for another one: an empty one, or an earlier dump.
type swappableStore struct{ current atomic.Pointer[memory.Store] }

func (r *swappableStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	return r.current.Load().Apply(ctx, ops, outs)
}

func (r *swappableStore) Sweep(ctx context.Context, most int) (int, error) {
	return r.current.Load().Sweep(ctx, most)
}

func (r *swappableStore) Close() error { return nil }

func (r *swappableStore) ReadCatalog(ctx context.Context, since int64) (store.CatalogChanges, error) {
	return r.current.Load().ReadCatalog(ctx, since)
}

func (r *swappableStore) Items(ctx context.Context, list []store.Item) (int64, []store.Item, error) {
	return r.current.Load().Items(ctx, list)
}

func (r *swappableStore) ItemsAfter(ctx context.Context, k store.Kind, after store.Item, n int) ([]store.Item, error) {
	return r.current.Load().ItemsAfter(ctx, k, after, n)
}

func (r *swappableStore) WriteCatalog(ctx context.Context, e store.Edit) (int64, error) {
	return r.current.Load().WriteCatalog(ctx, e)
}

func (r *swappableStore) CatalogVersions(ctx context.Context, before int64, n int) ([]store.Version, error) {
	return r.current.Load().CatalogVersions(ctx, before, n)
}

func (r *swappableStore) RecordAction(ctx context.Context, a store.Action) error {
	return r.current.Load().RecordAction(ctx, a)
}

func (r *swappableStore) Actions(ctx context.Context, before int64, n int) ([]store.Action, error) {
	return r.current.Load().Actions(ctx, before, n)
}

// TestALostCatalog has two servers, with a file each, whose store loses its catalog. No matter which server notices
// first, the file that was in force is in force again in the end, and then no server writes any more.
func TestALostCatalog(t *testing.T) {
	t.Parallel()
	const inForce = "api = token-bucket 2/1m burst 2"
	for _, earlier := range []bool{false, true} { // the store is put back to a state with the first file, or to nothing
		for _, order := range [][]int{{0, 1, 0, 1}, {1, 0, 1, 0}, {0, 0, 1, 1}} {
			s := &swappableStore{}
			s.current.Store(memory.New(nil))
			c := open(t, s)
			files := []catalog.File{
				{Path: "one.yaml", Limits: []catalog.Definition{limit(t, "api", "token-bucket 1/1m")}},
				{Path: "two.yaml", Limits: []catalog.Definition{limit(t, "api", "token-bucket 2/1m")}},
			}
			apply := func(i int, c *catalog.Catalog) catalog.Difference {
				t.Helper()
				d, _, err := c.Apply(t.Context(), catalog.By{}, files[i], catalog.Once)
				if err != nil {
					t.Fatal(err)
				}
				files[i].Order = d.Order
				return d
			}
			apply(0, c)
			apply(1, c)
			before := memory.New(nil)
			if earlier {
				apply(0, open(t, before))
			}
			s.current.Store(before)
			if err := c.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if d, err := c.Status(files[1]); err != nil || d.Known != catalog.Lost {
				t.Errorf("the file that was in force: known %v, %v", d.Known, err)
			}
			for _, i := range order {
				apply(i, c)
			}
			if got := catalogText(c); got != inForce {
				t.Errorf("%v: %s is in force", order, got)
			}
			version, _ := c.Version()
			for _, i := range order {
				d := apply(i, c)
				if want := []catalog.Known{catalog.Older, catalog.Newest}[i]; d.Known != want {
					t.Errorf("%v: file %d: known %v, want %v", order, i, d.Known, want)
				}
			}
			if now, _ := c.Version(); now != version {
				t.Errorf("%v: versions grow from %d to %d", order, version, now)
			}
			// A file that is applied now comes after all files that servers remember.
			if d := apply(1, open(t, before)); d.Known != catalog.Newest {
				t.Error(d.Known)
			}
			third := catalog.File{Limits: []catalog.Definition{limit(t, "api", "token-bucket 3/1m")}}
			if d, _, err := c.Apply(t.Context(), catalog.By{}, third, catalog.Again); err != nil ||
				d.Order <= files[1].Order {
				t.Errorf("a third file has order %d, after %d: %v", d.Order, files[1].Order, err)
			}
		}
	}
}

// TestAnotherCatalogIsNoticed swaps the catalog for another one with as many versions, or more.
func TestAnotherCatalogIsNoticed(t *testing.T) {
	t.Parallel()
	for _, more := range []int{0, 1, 2} {
		var log logBuffer
		s := &swappableStore{}
		s.current.Store(memory.New(nil))
		c, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		set(t, c, limit(t, "gone", "token-bucket 1/1m"))
		other := memory.New(nil)
		in := open(t, other)
		set(t, in, limit(t, "here", "token-bucket 1/1m"))
		for range more {
			set(t, in, limit(t, "here", "token-bucket 2/1m"))
			set(t, in, limit(t, "here", "token-bucket 3/1m"))
		}
		s.current.Store(other)
		if err := c.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, there := c.Lookup("gone"); there {
			t.Errorf("%d: a limit that is not there any more is in force", more)
		}
		if _, there := c.Lookup("here"); !there {
			t.Errorf("%d: a limit is missing", more)
		}
		if said := log.String(); !strings.Contains(said, "level=ERROR") || !strings.Contains(said, "limit gone") {
			t.Errorf("%d: the log says %s", more, said)
		}
	}
}

// TestOverridesThatAreLostAreNamed: the log names overrides of single keys that were in use here, and that the new
// catalog lacks.
func TestOverridesThatAreLostAreNamed(t *testing.T) {
	t.Parallel()
	var log logBuffer
	s := &swappableStore{}
	s.current.Store(memory.New(nil))
	c, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	give := func(c *catalog.Catalog, key string) {
		override := catalog.Override{Limit: named(t, "api", "token-bucket 5/1m"), Key: key}
		mustSucceed(t)(c.Override(t.Context(), admin, override))
	}
	set(t, c, limit(t, "api", "token-bucket 1/1m"))
	give(c, "alice")
	give(c, "bob")
	for _, key := range []string{"alice", "bob", "carol"} {
		if _, err := c.Find(t.Context(), "api", key); err != nil {
			t.Fatal(err)
		}
	}
	before := memory.New(nil)
	in := open(t, before)
	set(t, in, limit(t, "api", "token-bucket 1/1m"))
	give(in, "bob")
	s.current.Store(before)
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	said := log.String()
	others := strings.Contains(said, "bob") || strings.Contains(said, "carol")
	if !strings.Contains(said, "override api alice") || others {
		t.Errorf("the log says %s", said)
	}
}

// logBuffer collects the lines of a log. It is safe for concurrent use.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (n *logBuffer) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *logBuffer) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// TestRevisions: a file with a greater revision is newer also at a start, and a smaller revision undoes nothing.
func TestRevisions(t *testing.T) {
	t.Parallel()
	c := open(t, memory.New(nil))
	file := func(revision int64, text string) catalog.File {
		return catalog.File{Path: "f", Revision: revision, Limits: []catalog.Definition{limit(t, "api", text)}}
	}
	for i, step := range []struct {
		file  catalog.File
		known catalog.Known
		want  string
	}{
		{file(5, "gcra 1/s"), catalog.New, "gcra 1/s burst 1"},
		{file(6, "gcra 2/s"), catalog.New, "gcra 2/s burst 2"},
		{file(5, "gcra 1/s"), catalog.Older, "gcra 2/s burst 2"},
		{file(4, "gcra 3/s"), catalog.Older, "gcra 2/s burst 2"}, // a file that was never applied
		{file(7, "gcra 1/s"), catalog.New, "gcra 1/s burst 1"},   // put back on purpose
		{file(8, "gcra 1/s"), catalog.Newest, "gcra 1/s burst 1"},
		{file(7, "gcra 4/s"), catalog.Older, "gcra 1/s burst 1"},
		{file(0, "gcra 5/s"), catalog.New, "gcra 5/s burst 5"}, // a file without a revision
		{file(1, "gcra 6/s"), catalog.New, "gcra 6/s burst 6"},
	} {
		d, _, err := c.Apply(t.Context(), catalog.By{}, step.file, catalog.Once)
		if err != nil || d.Known != step.known || catalogText(c) != "api = "+step.want {
			t.Errorf("step %d: known %v, %s, %v; want %v, %s", i, d.Known, catalogText(c), err, step.known, step.want)
		}
	}
}
