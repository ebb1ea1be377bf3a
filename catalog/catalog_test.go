package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/front/pending"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// open opens the catalog of a store until the end of the test. It is read every few milliseconds.
func open(tb testing.TB, s store.Store) *catalog.Catalog {
	tb.Helper()
	c, err := catalog.Open(tb.Context(), s, &catalog.Config{
		Every: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

// define returns the definition of a limit with a name.
func define(tb testing.TB, name, notation string) catalog.Definition {
	tb.Helper()
	l, err := headgate.ParseNamed(name, notation)
	if err != nil {
		tb.Fatal(err)
	}
	return catalog.Definition{Limit: l}
}

// mustSet defines limits, and returns the version.
func mustSet(tb testing.TB, c *catalog.Catalog, list ...catalog.Definition) int64 {
	tb.Helper()
	v, err := c.Set(tb.Context(), catalog.By{Author: "alice", Reason: "because"}, list...)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// catalogText returns the limits of a catalog as text.
func catalogText(c *catalog.Catalog) string {
	var list []string
	for _, d := range c.List() {
		text := d.Name() + " = " + d.String()
		if d.Retired {
			text += " (retired)"
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

func TestAChangeReachesOtherCatalogs(t *testing.T) {
	begin := time.Now()
	s := memory.New(nil)
	writer, reader := open(t, s), open(t, s)
	v := mustSet(t, writer, define(t, "login", "token-bucket 5/1m"), define(t, "api", "fixed-window 10/1s"))
	if v != 1 {
		t.Errorf("the first change is version %d, want 1", v)
	}
	if got := catalogText(writer); got != "api = fixed-window 10/1s; login = token-bucket 5/1m burst 5" {
		t.Errorf("right after Set the writer has %s", got)
	}
	await.Until(t, "the other catalog has two limits", func() bool { return len(reader.List()) == 2 })
	mustSet(t, reader, define(t, "login", "token-bucket 6/1m"))
	await.Until(t, "login was changed", func() bool {
		l, err := writer.Get("login")
		return err == nil && l.String() == "token-bucket 6/1m burst 6"
	})
	if _, err := reader.Remove(t.Context(), catalog.By{}, "login"); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "login was removed", func() bool { _, err := writer.Get("login"); return err != nil })
	_, err := writer.Get("login")
	if !errors.Is(err, headgate.ErrUnknownLimit) || !strings.Contains(err.Error(), `"login"; the catalog has api`) {
		t.Errorf("a limit that was removed: got %v, want %v", err, headgate.ErrUnknownLimit)
	}
	if v, readAt := writer.Version(); v != 3 || readAt.Before(begin) || readAt.After(time.Now()) {
		t.Errorf("got version %d, read at %v; want version 3, read after %v", v, readAt, begin)
	}
}

func TestLimitReturnsTheFallback(t *testing.T) {
	s := memory.New(nil)
	c := open(t, s)
	fallback := headgate.MustParse("token-bucket 1/1h")
	if l := c.Limit("login", fallback); l.Name() != "login" || l.String() != fallback.String() {
		t.Errorf("not in the catalog: %s = %v, want the fallback under the name", l.Name(), l)
	}
	mustSet(t, c, define(t, "login", "token-bucket 2/1h"))
	l := c.Limit("login", fallback)
	if l.String() != "token-bucket 2/1h burst 2" {
		t.Errorf("got %v, want the limit in the catalog", l)
	}
	limiter := headgate.New(s, nil)
	for i, want := range []bool{true, true, false} {
		if d, err := limiter.Allow(t.Context(), l, "bob"); err != nil || d.Allowed != want {
			t.Errorf("request %d: got allowed %v, %v; want %v", i, d.Allowed, err, want)
		}
	}
	if l := c.Limit("other", headgate.Limit{}); !l.IsZero() {
		t.Errorf("without a fallback: got %v, want the zero limit", l)
	}
}

func TestInvalidEditsChangeNothing(t *testing.T) {
	c := open(t, memory.New(nil))
	mustSet(t, c, define(t, "login", "token-bucket 5/1m"))
	ctx, by := t.Context(), catalog.By{}
	for name, change := range map[string]func() (int64, error){
		"a limit without a name": func() (int64, error) {
			return c.Set(ctx, by, define(t, "api", "token-bucket 1/s"),
				catalog.Definition{Limit: headgate.MustParse("token-bucket 1/s")})
		},
		"nothing but a name": func() (int64, error) {
			return c.Set(ctx, by, catalog.Definition{Limit: headgate.MustNamed("api")})
		},
		"a long reason": func() (int64, error) {
			return c.Set(ctx, catalog.By{Reason: strings.Repeat("r", 2000)}, define(t, "api", "token-bucket 1/s"))
		},
		"removing an unknown limit":        func() (int64, error) { return c.Remove(ctx, by, "login", "api") },
		"a rollback to a future version":   func() (int64, error) { return c.Rollback(ctx, by, 2) },
		"a rollback to a negative version": func() (int64, error) { return c.Rollback(ctx, by, -1) },
		"a file that defines a limit twice": func() (int64, error) {
			return applyFile(c, define(t, "a", "gcra 1/s"), define(t, "a", "gcra 2/s"))
		},
	} {
		if v, err := change(); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%s: got version %d, %v; want %v", name, v, err, headgate.ErrInvalid)
		}
	}
	if v, _ := c.Version(); v != 1 || catalogText(c) != "login = token-bucket 5/1m burst 5" {
		t.Errorf("got version %d with %s, want version 1 unchanged", v, catalogText(c))
	}
}

func TestHistoryAndRollback(t *testing.T) {
	c := open(t, memory.New(nil))
	mustSet(t, c, define(t, "login", "token-bucket 5/1m"))
	mustSet(t, c, define(t, "api", "gcra 1/s"))
	mustSet(t, c, define(t, "login", "token-bucket 6/1m"))
	if _, err := c.Remove(t.Context(), catalog.By{}, "api"); err != nil {
		t.Fatal(err)
	}
	list, err := c.History(t.Context(), "login", 10)
	if err != nil || len(list) != 2 || list[0].Number != 3 || list[1].Number != 1 || list[1].Author != "alice" {
		t.Errorf("history of login: got %+v, %v; want versions 3 and 1", list, err)
	}
	if list, err := c.History(t.Context(), "", 3); err != nil || len(list) != 3 || list[0].Number != 4 {
		t.Errorf("history of all limits: got %+v, %v; want three versions from 4", list, err)
	}
	for _, tt := range []struct {
		to    int64
		names []string
		want  string
	}{
		{2, []string{"api"}, "api = gcra 1/s burst 1; login = token-bucket 6/1m burst 6"},
		{2, nil, "api = gcra 1/s burst 1; login = token-bucket 5/1m burst 5"},
		{0, nil, ""},
		{3, nil, "api = gcra 1/s burst 1; login = token-bucket 6/1m burst 6"},
		{3, nil, "api = gcra 1/s burst 1; login = token-bucket 6/1m burst 6"},
	} {
		if _, err := c.Rollback(t.Context(), catalog.By{Reason: "too strict"}, tt.to, tt.names...); err != nil ||
			catalogText(c) != tt.want {
			t.Errorf("to %d %v: %s, %v; want %s", tt.to, tt.names, catalogText(c), err, tt.want)
		}
	}
	if v, _ := c.Version(); v != 8 {
		t.Errorf("version %d, want 8: the last rollback changed nothing", v)
	}
}

func TestConcurrentSetsMakeOneVersionEach(t *testing.T) {
	const writers, edits = 8, 10
	s := memory.New(nil)
	var wg sync.WaitGroup
	for w := range writers {
		c := open(t, s)
		wg.Go(func() {
			for i := range edits {
				for {
					_, err := c.Set(t.Context(), catalog.By{},
						define(t, fmt.Sprint("l", w), fmt.Sprintf("gcra %d/s", i+1)))
					if errors.Is(err, store.ErrVersion) { // other writers came first ten times
						continue
					}
					if err != nil {
						t.Error(err)
					}
					break
				}
			}
		})
	}
	wg.Wait()
	c := open(t, s)
	if v, _ := c.Version(); v != writers*edits || len(c.List()) != writers {
		t.Errorf("got version %d, %s; want version %d, %d limits", v, catalogText(c), writers*edits, writers)
	}
}

func TestAnUnreadableLimitIsReported(t *testing.T) {
	s := memory.New(nil)
	c := open(t, s)
	if _, err := s.WriteCatalog(t.Context(), store.Edit{Items: []store.Item{
		{Kind: store.KindLimit, Name: "new", Text: "law-of-2030 5/s"}, {Kind: store.KindLimit, Name: "old", Text: "gcra 5/s"},
	}}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "limit old was read", func() bool { _, err := c.Get("old"); return err == nil })
	_, err := c.Get("new")
	if err == nil || errors.Is(err, headgate.ErrUnknownLimit) || !strings.Contains(err.Error(), `"law-of-2030" is not known`) {
		t.Errorf("a limit of a newer program: got %v, want an error of its notation", err)
	}
	if l := c.Limit("new", headgate.MustParse("gcra 1/s")); l.String() != "gcra 1/s burst 1" {
		t.Errorf("got %v, want the fallback", l)
	}
}

func TestWatchReadsAStoreOnceItIsReachable(t *testing.T) {
	reachable := make(chan struct{})
	s := pending.New(pending.Config{Within: pending.NoLimit, Open: func(context.Context) (store.Store, error) {
		select {
		case <-reachable:
			m := memory.New(nil)
			_, err := m.WriteCatalog(context.Background(), store.Edit{Items: []store.Item{
				{Kind: store.KindLimit, Name: "login", Text: "gcra 5/s"},
			}})
			return m, err
		default:
			return nil, store.ErrUnavailable
		}
	}})
	defer s.Close()
	c := catalog.Watch(s, &catalog.Config{Every: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	defer c.Close()
	if _, err := c.Get("login"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("before the store is reachable: got %v, want %v", err, store.ErrUnavailable)
	}
	close(reachable)
	await.Until(t, "login was read", func() bool { _, err := c.Get("login"); return err == nil })
}

type storeWithoutCatalog struct{ store.Store }

func TestOpenOfAStoreWithoutACatalogIsUnsupported(t *testing.T) {
	_, err := catalog.Open(t.Context(), storeWithoutCatalog{memory.New(nil)}, nil)
	if !errors.Is(err, headgate.ErrUnsupported) {
		t.Errorf("got %v, want %v", err, headgate.ErrUnsupported)
	}
}

// restoredStore is a store for which a test can swap what ReadCatalog reads, for an older copy.
type restoredStore struct {
	*memory.Store
	mu      sync.Mutex
	current *memory.Store // guarded by mu
}

func (r *restoredStore) ReadCatalog(ctx context.Context, since int64) (store.CatalogChanges, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current.ReadCatalog(ctx, since)
}

func TestAnOlderCatalogOfARestoredStoreIsRead(t *testing.T) {
	original, oldCopy := memory.New(nil), memory.New(nil)
	for i, s := range []*memory.Store{original, oldCopy, original} {
		current, err := s.ReadCatalog(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.WriteCatalog(t.Context(), store.Edit{Base: current.Version, Items: []store.Item{
			{Kind: store.KindLimit, Name: "login", Text: fmt.Sprintf("gcra %d/s", i+1)},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	r := &restoredStore{Store: original, current: original}
	c := open(t, r)
	if got := catalogText(c); got != "login = gcra 3/s burst 3" {
		t.Fatalf("at first %s", got)
	}
	r.mu.Lock()
	r.current = oldCopy
	r.mu.Unlock()
	await.Until(t, "the older catalog is in force", func() bool { return catalogText(c) == "login = gcra 2/s burst 2" })
}

// unversionedStore is a store with limits that were made at version 0, as in an upgraded database.
type unversionedStore struct {
	*memory.Store
	mu    sync.Mutex
	reads []store.CatalogChanges // each read returns the first, until the test removes it; guarded by mu
}

func (u *unversionedStore) ReadCatalog(_ context.Context, since int64) (store.CatalogChanges, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	read := u.reads[0]
	if since > 0 && since == read.Version {
		read.Items = nil
	}
	return read, nil
}

func TestALimitFromBeforeVersionsCanBeRemoved(t *testing.T) {
	item := func(name string) store.Item { return store.Item{Kind: store.KindLimit, Name: name, Text: "gcra 5/s"} }
	u := &unversionedStore{Store: memory.New(nil), reads: []store.CatalogChanges{
		{Items: []store.Item{item("login"), item("api")}}, {Version: 1, Items: []store.Item{item("api")}},
	}}
	c := open(t, u)
	if got := catalogText(c); got != "api = gcra 5/s burst 5; login = gcra 5/s burst 5" {
		t.Fatalf("at first %s", got)
	}
	u.mu.Lock()
	u.reads = u.reads[1:]
	u.mu.Unlock()
	await.Until(t, "login is removed", func() bool { return catalogText(c) == "api = gcra 5/s burst 5" })
}

func TestSeenRefusesOtherVersions(t *testing.T) {
	c := open(t, memory.New(nil))
	seen := mustSet(t, c, define(t, "login", "token-bucket 5/1m"))
	mustSet(t, c, define(t, "api", "gcra 1/s"))
	by := catalog.By{Seen: &seen}
	for name, change := range map[string]func() (int64, error){
		"set":      func() (int64, error) { return c.Set(t.Context(), by, define(t, "login", "token-bucket 6/1m")) },
		"remove":   func() (int64, error) { return c.Remove(t.Context(), by, "login") },
		"rollback": func() (int64, error) { return c.Rollback(t.Context(), by, 0) },
	} {
		if _, err := change(); !errors.Is(err, store.ErrVersion) ||
			!strings.Contains(err.Error(), "version 1, and has 2") {
			t.Errorf("%s: got %v, want %v", name, err, store.ErrVersion)
		}
	}
	*by.Seen++
	if v, err := c.Remove(t.Context(), by, "login"); err != nil || v != 3 {
		t.Errorf("Seen is the newest version: got version %d, %v; want 3", v, err)
	}
	if _, err := c.Rollback(t.Context(), catalog.By{}, 1, "never"); !errors.Is(err, headgate.ErrUnknownLimit) {
		t.Errorf("a rollback of an unknown name: got %v, want %v", err, headgate.ErrUnknownLimit)
	}
}
