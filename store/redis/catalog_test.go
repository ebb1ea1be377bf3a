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

// mustWrite makes an edit on top of base, which has to be the newest version.
func mustWrite(tb testing.TB, s *Store, base int64, items ...store.Item) {
	tb.Helper()
	v, err := s.WriteCatalog(context.Background(), store.Edit{Base: base, Author: "alice", Items: items})
	if err != nil || v != base+1 {
		tb.Fatalf("an edit of version %d: version %d, %v", base, v, err)
	}
}

// mustRead returns, by ID, the items that versions after since have written; after 0 only those of no single key.
func mustRead(tb testing.TB, s *Store, since, version int64) []store.Item {
	tb.Helper()
	c, err := s.ReadCatalog(context.Background(), since)
	if err != nil || c.Version != version {
		tb.Fatalf("version %d, %v; want version %d", c.Version, err, version)
	}
	return sortItems(c.Items)
}

// sortItems sorts items by their ID, and returns them.
func sortItems(items []store.Item) []store.Item {
	slices.SortFunc(items, func(a, b store.Item) int { return strings.Compare(itemID(&a), itemID(&b)) })
	return items
}

func TestTheCatalogSurvivesScriptFlush(t *testing.T) {
	url := startServer(t).DSN
	s, other := openTest(t, url, nil), openTest(t, url, nil)
	ctx := context.Background()
	for n := range 3 {
		mustWrite(t, s, int64(n), limitItem(n), overrideItem(n))
		for name, query := range map[string]func() error{
			"a reading":   func() error { _, err := s.ReadCatalog(ctx, int64(n)); return err },
			"a search":    func() error { _, _, err := s.Items(ctx, []store.Item{limitItem(n)}); return err },
			"a listing":   func() error { _, err := s.CatalogVersions(ctx, 0, 10); return err },
			"no new edit": func() error { _, err := s.WriteCatalog(ctx, store.Edit{Base: int64(n) + 1}); return err },
		} {
			admin(t, other, "SCRIPT", "FLUSH")
			if err := query(); err != nil {
				t.Errorf("%s after SCRIPT FLUSH: got %v, want no error", name, err)
			}
		}
		admin(t, other, "SCRIPT", "FLUSH") // before the next edit
	}
	if got := mustRead(t, s, 0, 3); len(got) != 3 {
		t.Errorf("got %+v, want three limits", got)
	}
	keys, err := admin(t, s, "KEYS", "*").AsStrSlice()
	if err != nil || len(keys) != 4 {
		t.Errorf("got the keys %q, %v; want the four that edits write", keys, err)
	}
	for _, key := range keys {
		if ms, err := admin(t, s, "PTTL", key).AsInt64(); err != nil || ms != -1 {
			t.Errorf("%s: got a life of %d ms, %v; want -1: it never expires", key, ms, err)
		}
	}
}

// TestAnEditOfManyItemsIsOneVersion checks edits that the script writes in several parts.
func TestAnEditOfManyItemsIsOneVersion(t *testing.T) {
	testLargeEdits(t, openTest(t, dbtest.Redis(t), nil))
}

func TestAnEditOfManyItemsInAClusterIsOneVersion(t *testing.T) {
	tier.Engines(t)
	testLargeEdits(t, openTest(t, dbtest.RedisCluster(t), nil))
}

// testLargeEdits makes edits of many items, and checks that each is one version.
func testLargeEdits(t *testing.T, s *Store) {
	t.Helper()
	for base, n := range []int{499, 500, 501, 2345} { // the script writes 500 items at a time
		var limits, overrides []store.Item
		for i := range n {
			limit, override := limitItem(i), overrideItem(i)
			limit.Note, override.Note = fmt.Sprint(n), fmt.Sprint(n)
			limits, overrides = append(limits, limit), append(overrides, override)
		}
		items := sortItems(slices.Concat(overrides, limits))
		mustWrite(t, s, int64(base), items...)
		if got := mustRead(t, s, 0, int64(base)+1); !slices.Equal(got, sortItems(limits)) {
			t.Errorf("got %d items without those of keys, want the %d limits", len(got), n)
		}
		if got := mustRead(t, s, max(1, int64(base)), int64(base)+1); base > 0 && !slices.Equal(got, items) {
			t.Errorf("got %d items after version %d, want %d", len(got), base, 2*n)
		}
		if _, got, err := s.Items(context.Background(), items); err != nil || !slices.Equal(sortItems(got), items) {
			t.Errorf("got %d items by name, %v; want %d", len(got), err, 2*n)
		}
		list, err := s.CatalogVersions(context.Background(), 0, 1)
		if err != nil || len(list) != 1 || len(list[0].Changes) != 2*n {
			t.Errorf("got %d versions, %v; want one of %d changes", len(list), err, 2*n)
		}
	}
}

func TestAnEditWithALostAnswerIsErrUnknownOutcome(t *testing.T) {
	direct, proxied, loseAnswers := openWithProxy(t)
	mustWrite(t, direct, 0, limitItem(0))
	e := store.Edit{Base: 1, Items: []store.Item{limitItem(1)}}
	loseAnswers(true)
	if _, err := proxied.ReadCatalog(context.Background(), 0); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("ReadCatalog with a lost answer: got %v, want ErrUnavailable", err)
	}
	loseAnswers(false)
	loseAnswers(true)
	if v, err := proxied.writeChanges(context.Background(), &e, e.Changes(nil)); !errors.Is(
		err, store.ErrUnknownOutcome) {
		t.Errorf("got version %d, %v; want ErrUnknownOutcome", v, err)
	}
	loseAnswers(false)
	if got := mustRead(t, direct, 1, 2); !slices.Equal(got, e.Items) {
		t.Errorf("got %+v, want %+v written once", got, e.Items)
	}
	if v, err := proxied.WriteCatalog(context.Background(), e); v != 2 || !errors.Is(err, store.ErrVersion) {
		t.Errorf("the same edit again: got version %d, %v; want 2, ErrVersion", v, err)
	}
}

// TestAnEditOfAnOldVersionIsErrVersion checks that an edit changes nothing if another edit was made between its two
// round trips.
func TestAnEditOfAnOldVersionIsErrVersion(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	e := store.Edit{Base: 0, Items: []store.Item{limitItem(0), overrideItem(0)}}
	changes := e.Changes(nil)
	mustWrite(t, s, 0, limitItem(1))
	if v, err := s.writeChanges(context.Background(), &e, changes); v != 1 || !errors.Is(err, store.ErrVersion) ||
		!errors.Is(err, store.ErrConflict) {
		t.Errorf("got version %d, %v; want 1, ErrVersion", v, err)
	}
	if _, got, err := s.Items(context.Background(), e.Items); err != nil || len(got) != 0 {
		t.Errorf("got %+v, %v; want nothing", got, err)
	}
	if got := mustRead(t, s, 0, 1); !slices.Equal(got, []store.Item{limitItem(1)}) {
		t.Errorf("got %+v, want the item of the other edit", got)
	}
}

// TestTheListedRightsSufficeForTheCatalog reads and edits with the rights that docs/stores.md lists. Without one of
// them an edit changes nothing.
func TestTheListedRightsSufficeForTheCatalog(t *testing.T) {
	server := startServer(t)
	root := openTest(t, server.DSN, nil)
	list, _ := docRights(t)
	s := openTest(t, limitedUser(t, root, server.DSN, list...), nil)
	mustWrite(t, s, 0, limitItem(0), overrideItem(0))
	retiredLimit, removedOverride := limitItem(0), overrideItem(0)
	retiredLimit.Retired, removedOverride.Removed = true, true
	e := store.Edit{Base: 1, Items: []store.Item{retiredLimit, removedOverride}}
	for _, right := range []string{"+evalsha", "+time", "+hget", "+hmget", "+hset", "+zadd"} {
		admin(t, root, "ACL", "SETUSER", "few", "-"+right[1:])
		if v, err := s.WriteCatalog(context.Background(), e); !errors.Is(err, store.ErrSetup) {
			t.Errorf("without %s: got version %d, %v; want ErrSetup", right, v, err)
		}
		admin(t, root, "ACL", "SETUSER", "few", right)
		if got := mustRead(t, s, 0, 1); !slices.Equal(got, []store.Item{limitItem(0)}) {
			t.Errorf("without %s: got %+v, want the limit unchanged", right, got)
		}
	}
	mustWrite(t, s, 1, retiredLimit, removedOverride)
	if got := mustRead(t, s, 1, 2); len(got) != 2 || got[0] != retiredLimit || !got[1].Removed {
		t.Errorf("got %+v, want the two changes", got)
	}
	if list, err := s.CatalogVersions(context.Background(), 0, 10); err != nil || len(list) != 2 {
		t.Errorf("got %d versions, %v; want 2", len(list), err)
	}
	admin(t, root, "FLUSHALL")
	if got := mustRead(t, s, 2, 0); len(got) != 0 {
		t.Errorf("after FLUSHALL: got %+v, want none", got)
	}
}
