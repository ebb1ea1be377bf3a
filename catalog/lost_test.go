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

func (s *swappableStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	return s.current.Load().Apply(ctx, ops, outs)
}

func (s *swappableStore) Sweep(ctx context.Context, maxCells int) (int, error) {
	return s.current.Load().Sweep(ctx, maxCells)
}

func (s *swappableStore) Close() error { return nil }

func (s *swappableStore) ReadCatalog(ctx context.Context, since int64) (store.CatalogChanges, error) {
	return s.current.Load().ReadCatalog(ctx, since)
}

func (s *swappableStore) Items(ctx context.Context, list []store.Item) (int64, []store.Item, error) {
	return s.current.Load().Items(ctx, list)
}

func (s *swappableStore) ItemsAfter(ctx context.Context, k store.Kind, after store.Item, n int) ([]store.Item, error) {
	return s.current.Load().ItemsAfter(ctx, k, after, n)
}

func (s *swappableStore) WriteCatalog(ctx context.Context, e store.Edit) (int64, error) {
	return s.current.Load().WriteCatalog(ctx, e)
}

func (s *swappableStore) CatalogVersions(ctx context.Context, before int64, n int) ([]store.Version, error) {
	return s.current.Load().CatalogVersions(ctx, before, n)
}

func (s *swappableStore) RecordAction(ctx context.Context, a store.Action) error {
	return s.current.Load().RecordAction(ctx, a)
}

func (s *swappableStore) Actions(ctx context.Context, before int64, n int) ([]store.Action, error) {
	return s.current.Load().Actions(ctx, before, n)
}

// TestApplyRestoresALostCatalog applies two files, as two servers would, and swaps the store for one without the newer
// file. In three orders the files are applied again: in the end the newer one is in force, and no version follows.
func TestApplyRestoresALostCatalog(t *testing.T) {
	t.Parallel()
	const inForce = "api = token-bucket 2/1m burst 2"
	for _, hasFirstFile := range []bool{false, true} { // whether the replacement has the first file, or is empty
		for _, order := range [][]int{{0, 1, 0, 1}, {1, 0, 1, 0}, {0, 0, 1, 1}} {
			s := &swappableStore{}
			s.current.Store(memory.New(nil))
			c := open(t, s)
			files := []catalog.File{
				{Path: "one.yaml", Limits: []catalog.Definition{define(t, "api", "token-bucket 1/1m")}},
				{Path: "two.yaml", Limits: []catalog.Definition{define(t, "api", "token-bucket 2/1m")}},
			}
			apply := func(i int, c *catalog.Catalog) catalog.Difference {
				t.Helper()
				d, _, err := c.Apply(t.Context(), catalog.By{}, files[i], catalog.ApplyOnce)
				if err != nil {
					t.Fatal(err)
				}
				files[i].Order = d.Order
				return d
			}
			apply(0, c)
			apply(1, c)
			replacement := memory.New(nil)
			if hasFirstFile {
				apply(0, open(t, replacement))
			}
			s.current.Store(replacement)
			if err := c.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if d, err := c.Status(files[1]); err != nil || d.Standing != catalog.FileLost {
				t.Errorf("the newest file: got standing %v, %v; want %v", d.Standing, err, catalog.FileLost)
			}
			for _, i := range order {
				apply(i, c)
			}
			if got := catalogText(c); got != inForce {
				t.Errorf("%v: %s is in force, want %s", order, got, inForce)
			}
			version, _ := c.Version()
			for _, i := range order {
				d := apply(i, c)
				if want := []catalog.Standing{catalog.FileOlder, catalog.FileNewest}[i]; d.Standing != want {
					t.Errorf("%v: file %d: got standing %v, want %v", order, i, d.Standing, want)
				}
			}
			if v, _ := c.Version(); v != version {
				t.Errorf("%v: got version %d after applying again, want %d", order, v, version)
			}
			if d := apply(1, open(t, replacement)); d.Standing != catalog.FileNewest {
				t.Errorf("%v: a catalog that is opened later: got standing %v, want the newest", order, d.Standing)
			}
			// A new file comes after all files that servers remember.
			third := catalog.File{Limits: []catalog.Definition{define(t, "api", "token-bucket 3/1m")}}
			if d, _, err := c.Apply(t.Context(), catalog.By{}, third, catalog.ApplyAgain); err != nil ||
				d.Order <= files[1].Order {
				t.Errorf("a third file: got order %d, %v; want more than %d", d.Order, err, files[1].Order)
			}
		}
	}
}

// TestRefreshLogsALostCatalog swaps the catalog for another one: Refresh must read all of it, and log what is missing.
func TestRefreshLogsALostCatalog(t *testing.T) {
	t.Parallel()
	for _, extraEditPairs := range []int{0, 1, 2} { // after which the other catalog has version 1, 3 or 5
		var log logBuffer
		s := &swappableStore{}
		s.current.Store(memory.New(nil))
		c, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		mustSet(t, c, define(t, "gone", "token-bucket 1/1m"))
		otherStore := memory.New(nil)
		otherCatalog := open(t, otherStore)
		mustSet(t, otherCatalog, define(t, "here", "token-bucket 1/1m"))
		for range extraEditPairs {
			mustSet(t, otherCatalog, define(t, "here", "token-bucket 2/1m"))
			mustSet(t, otherCatalog, define(t, "here", "token-bucket 3/1m"))
		}
		s.current.Store(otherStore)
		if err := c.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, there := c.Lookup("gone"); there {
			t.Errorf("%d: limit gone is in force, want it to be missing", extraEditPairs)
		}
		if _, there := c.Lookup("here"); !there {
			t.Errorf("%d: limit here is missing", extraEditPairs)
		}
		if text := log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "limit gone") {
			t.Errorf("%d: got log %s, want an error that names limit gone", extraEditPairs, text)
		}
	}
}

// TestRefreshLogsLostOverrides checks that the log names the overrides of single keys that are cached and that the
// catalog has lost: that of alice. Bob's is still there, and carol never had one.
func TestRefreshLogsLostOverrides(t *testing.T) {
	t.Parallel()
	var log logBuffer
	s := &swappableStore{}
	s.current.Store(memory.New(nil))
	c, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	overrideKey := func(c *catalog.Catalog, key string) {
		override := catalog.Override{Limit: limit(t, "api", "token-bucket 5/1m"), Key: key}
		mustSucceed(t)(c.Override(t.Context(), admin, override))
	}
	mustSet(t, c, define(t, "api", "token-bucket 1/1m"))
	overrideKey(c, "alice")
	overrideKey(c, "bob")
	for _, key := range []string{"alice", "bob", "carol"} {
		if _, err := c.Find(t.Context(), "api", key); err != nil {
			t.Fatal(err)
		}
	}
	replacement := memory.New(nil)
	otherCatalog := open(t, replacement)
	mustSet(t, otherCatalog, define(t, "api", "token-bucket 1/1m"))
	overrideKey(otherCatalog, "bob")
	s.current.Store(replacement)
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := log.String()
	if !strings.Contains(text, "override api alice") || strings.Contains(text, "bob") ||
		strings.Contains(text, "carol") {
		t.Errorf("got log %s, want the override of alice alone", text)
	}
}

// logBuffer collects the lines of a log. It is safe for concurrent use.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestApplyComparesRevisions checks that ApplyOnce applies a file with a greater revision or none, not a smaller one.
func TestApplyComparesRevisions(t *testing.T) {
	t.Parallel()
	c := open(t, memory.New(nil))
	file := func(revision int64, text string) catalog.File {
		return catalog.File{Path: "f", Revision: revision, Limits: []catalog.Definition{define(t, "api", text)}}
	}
	for i, step := range []struct {
		file     catalog.File
		standing catalog.Standing
		want     string
	}{
		{file(5, "gcra 1/s"), catalog.FileNew, "gcra 1/s burst 1"},
		{file(6, "gcra 2/s"), catalog.FileNew, "gcra 2/s burst 2"},
		{file(5, "gcra 1/s"), catalog.FileOlder, "gcra 2/s burst 2"},
		{file(4, "gcra 3/s"), catalog.FileOlder, "gcra 2/s burst 2"}, // a file that was never applied
		{file(7, "gcra 1/s"), catalog.FileNew, "gcra 1/s burst 1"},   // put back on purpose
		{file(8, "gcra 1/s"), catalog.FileNewest, "gcra 1/s burst 1"},
		{file(7, "gcra 4/s"), catalog.FileOlder, "gcra 1/s burst 1"},
		{file(0, "gcra 5/s"), catalog.FileNew, "gcra 5/s burst 5"}, // a file without a revision
		{file(1, "gcra 6/s"), catalog.FileNew, "gcra 6/s burst 6"},
	} {
		d, _, err := c.Apply(t.Context(), catalog.By{}, step.file, catalog.ApplyOnce)
		if err != nil || d.Standing != step.standing || catalogText(c) != "api = "+step.want {
			t.Errorf("step %d: got standing %v, %s, %v; want %v, %s", i, d.Standing, catalogText(c), err, step.standing,
				step.want)
		}
	}
}
