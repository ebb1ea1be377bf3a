package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
)

func limitItem(n int) store.Item {
	return store.Item{Kind: store.KindLimit, Name: fmt.Sprint("l", n), Text: "token-bucket 5/1m"}
}

func overrideItem(n int) store.Item {
	return store.Item{Kind: store.KindOverride, Name: "l0", Key: fmt.Sprint("k", n), Text: "fixed-window 3/1h"}
}

// write makes an edit on top of base, which has to be the newest version.
func write(tb testing.TB, s *Store, base int64, items ...store.Item) {
	tb.Helper()
	v, err := s.WriteCatalog(context.Background(), store.Edit{Base: base, Author: "alice", Items: items})
	if err != nil || v != base+1 {
		tb.Fatalf("an edit of version %d: version %d, %v", base, v, err)
	}
}

// read returns the items that versions after since have written, by name and key.
func read(tb testing.TB, s *Store, since, version int64) []store.Item {
	tb.Helper()
	c, err := s.ReadCatalog(context.Background(), since)
	if err != nil || c.Version != version {
		tb.Fatalf("version %d, %v; want version %d", c.Version, err, version)
	}
	return inOrder(c.Items)
}

func inOrder(items []store.Item) []store.Item {
	slices.SortFunc(items, func(a, b store.Item) int { return strings.Compare(itemID(&a), itemID(&b)) })
	return items
}

func TestTheCatalogOutlivesAFlushOfScripts(t *testing.T) {
	url := startServer(t).DSN
	s, other := openTest(t, url, nil), openTest(t, url, nil)
	ctx := context.Background()
	for n := range 3 {
		write(t, s, int64(n), limitItem(n), overrideItem(n))
		for what, ask := range map[string]func() error{
			"a reading":   func() error { _, err := s.ReadCatalog(ctx, int64(n)); return err },
			"a search":    func() error { _, _, err := s.Items(ctx, []store.Item{limitItem(n)}); return err },
			"a listing":   func() error { _, err := s.CatalogVersions(ctx, 0, 10); return err },
			"no new edit": func() error { _, err := s.WriteCatalog(ctx, store.Edit{Base: int64(n) + 1}); return err },
		} {
			admin(t, other, "SCRIPT", "FLUSH")
			if err := ask(); err != nil {
				t.Errorf("%s after SCRIPT FLUSH: %v", what, err)
			}
		}
		admin(t, other, "SCRIPT", "FLUSH") // before the next edit
	}
	if got := read(t, s, 0, 3); len(got) != 3 {
		t.Errorf("got %+v, want three limits", got)
	}
	keys, err := admin(t, s, "KEYS", "*").AsStrSlice()
	if err != nil || len(keys) != 4 {
		t.Errorf("the catalog is in %q (%v), want four keys", keys, err)
	}
	for _, key := range keys {
		if ms, err := admin(t, s, "PTTL", key).AsInt64(); err != nil || ms != -1 {
			t.Errorf("%s expires in %d ms (%v), want never", key, ms, err)
		}
	}
}

// TestAnEditOfManyItemsIsOneVersion: scripts hand items on in parts.
func TestAnEditOfManyItemsIsOneVersion(t *testing.T) {
	oneVersion(t, openTest(t, dbtest.Redis(t), nil))
}

func TestAnEditOfManyItemsInAClusterIsOneVersion(t *testing.T) {
	tier.Engines(t)
	oneVersion(t, openTest(t, dbtest.RedisCluster(t), nil))
}

// oneVersion makes edits of many items, and checks that each is one version.
func oneVersion(t *testing.T, s *Store) {
	t.Helper()
	for base, n := range []int{499, 500, 501, 2345} { // the script writes 500 items at a time
		var limits, overrides []store.Item
		for i := range n {
			limit, override := limitItem(i), overrideItem(i)
			limit.Note, override.Note = fmt.Sprint(n), fmt.Sprint(n)
			limits, overrides = append(limits, limit), append(overrides, override)
		}
		both := inOrder(slices.Concat(overrides, limits))
		write(t, s, int64(base), both...)
		if got := read(t, s, 0, int64(base)+1); !slices.Equal(got, inOrder(limits)) {
			t.Errorf("%d limits of all, want those %d", len(got), n)
		}
		if got := read(t, s, max(1, int64(base)), int64(base)+1); base > 0 && !slices.Equal(got, both) {
			t.Errorf("%d items after version %d, want those %d", len(got), base, 2*n)
		}
		if _, got, err := s.Items(context.Background(), both); err != nil || !slices.Equal(inOrder(got), both) {
			t.Errorf("%d items by name, %v; want those %d", len(got), err, 2*n)
		}
		list, err := s.CatalogVersions(context.Background(), 0, 1)
		if err != nil || len(list) != 1 || len(list[0].Changes) != 2*n {
			t.Errorf("%d versions, %v; want one of %d changes", len(list), err, 2*n)
		}
	}
}

func TestAnEditWhoseAnswerGotLostIsAnUnknownOutcome(t *testing.T) {
	direct, through, lose := openWithProxy(t)
	write(t, direct, 0, limitItem(0))
	e := store.Edit{Base: 1, Items: []store.Item{limitItem(1)}}
	lose(true)
	if _, err := through.ReadCatalog(context.Background(), 0); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a reading whose answer got lost: %v, want ErrUnavailable", err)
	}
	lose(false)
	lose(true)
	if v, err := through.writeChanges(context.Background(), &e, e.Changes(nil)); !errors.Is(
		err, store.ErrUnknownOutcome) {
		t.Errorf("version %d, %v; want ErrUnknownOutcome", v, err)
	}
	lose(false)
	if got := read(t, direct, 1, 2); !slices.Equal(got, e.Items) {
		t.Errorf("got %+v, want what was written once", got)
	}
	if v, err := through.WriteCatalog(context.Background(), e); v != 2 || !errors.Is(err, store.ErrVersion) {
		t.Errorf("the same edit again: version %d, %v; want 2, ErrVersion", v, err)
	}
}

// TestAnEditOfAVersionThatHasGoneChangesNothing makes another edit between the two round trips of
// an edit.
func TestAnEditOfAVersionThatHasGoneChangesNothing(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	e := store.Edit{Base: 0, Items: []store.Item{limitItem(0), overrideItem(0)}}
	changes := e.Changes(nil)
	write(t, s, 0, limitItem(1))
	if v, err := s.writeChanges(context.Background(), &e, changes); v != 1 || !errors.Is(err, store.ErrVersion) ||
		!errors.Is(err, store.ErrConflict) {
		t.Errorf("version %d, %v; want 1, ErrVersion", v, err)
	}
	if _, got, err := s.Items(context.Background(), e.Items); err != nil || len(got) != 0 {
		t.Errorf("got %+v, %v; want nothing", got, err)
	}
	if got := read(t, s, 0, 1); !slices.Equal(got, []store.Item{limitItem(1)}) {
		t.Errorf("got %+v", got)
	}
}

// TestTheListedRightsSufficeForTheCatalog reads and edits with the rights that docs/stores.md lists.
// Without one of them an edit changes nothing.
func TestTheListedRightsSufficeForTheCatalog(t *testing.T) {
	server := startServer(t)
	root := openTest(t, server.DSN, nil)
	list, _ := rights(t)
	s := openTest(t, limitedUser(t, root, server.DSN, list...), nil)
	write(t, s, 0, limitItem(0), overrideItem(0))
	changed, gone := limitItem(0), overrideItem(0)
	changed.Retired, gone.Removed = true, true
	e := store.Edit{Base: 1, Items: []store.Item{changed, gone}}
	for _, word := range []string{"+evalsha", "+time", "+hget", "+hmget", "+hset", "+zadd"} {
		admin(t, root, "ACL", "SETUSER", "few", "-"+word[1:])
		if v, err := s.WriteCatalog(context.Background(), e); !errors.Is(err, store.ErrSetup) {
			t.Errorf("without %s: version %d, %v; want ErrSetup", word, v, err)
		}
		admin(t, root, "ACL", "SETUSER", "few", word)
		if got := read(t, s, 0, 1); !slices.Equal(got, []store.Item{limitItem(0)}) {
			t.Errorf("without %s: %+v, want the item as it was", word, got)
		}
	}
	write(t, s, 1, changed, gone)
	if got := read(t, s, 1, 2); len(got) != 2 || got[0] != changed || !got[1].Removed {
		t.Errorf("got %+v, want what was changed", got)
	}
	if list, err := s.CatalogVersions(context.Background(), 0, 10); err != nil || len(list) != 2 {
		t.Errorf("%d versions, %v", len(list), err)
	}
	admin(t, root, "FLUSHALL")
	if got := read(t, s, 2, 0); len(got) != 0 {
		t.Errorf("a server that has lost everything has %+v", got)
	}
}
