package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/store"
)

// catalogOf returns the catalog of a store, and fails the test if it has none.
func catalogOf(tb testing.TB, s store.Store) store.Catalog {
	tb.Helper()
	c, ok := store.As[store.Catalog](s)
	if !ok {
		tb.Fatal("the store keeps no catalog")
	}
	return c
}

// Define writes limits into the catalog of a store.
func Define(tb testing.TB, s store.Store, limits ...store.Item) {
	tb.Helper()
	if err := TryDefine(tb.Context(), s, limits...); err != nil {
		tb.Fatal(err)
	}
}

// TryDefine writes limits, whose Kind it sets, into the catalog of a store. It returns the error if there is one.
func TryDefine(ctx context.Context, s store.Store, limits ...store.Item) error {
	c, ok := store.As[store.Catalog](s)
	if !ok {
		return store.ErrUnsupported
	}
	current, err := c.ReadCatalog(ctx, 0)
	if err != nil {
		return err
	}
	for i := range limits {
		limits[i].Kind = store.KindLimit
	}
	_, err = c.WriteCatalog(ctx, store.Edit{Base: current.Version, Items: limits})
	return err
}

// edit writes items on top of the version base, and returns the catalog's version afterwards.
func edit(tb testing.TB, c store.Catalog, base int64, items ...store.Item) int64 {
	tb.Helper()
	version, err := c.WriteCatalog(context.Background(), store.Edit{
		Base: base, Author: "alice", Reason: "because", Items: items,
	})
	if err != nil {
		tb.Fatalf("write %v: %v", items, err)
	}
	return version
}

// readSince returns the version of a catalog and, sorted, the items written after another. It checks both times.
func readSince(tb testing.TB, c store.Catalog, after int64) (version int64, items []store.Item) {
	tb.Helper()
	got, err := c.ReadCatalog(context.Background(), after)
	if err != nil {
		tb.Fatalf("read after %d: %v", after, err)
	}
	if got.Clock <= 0 {
		tb.Errorf("got clock %d, want a time", got.Clock)
	}
	versions, err := c.CatalogVersions(context.Background(), 0, 1000)
	if err != nil {
		tb.Fatalf("versions: %v", err)
	}
	writtenAt := map[int64]int64{0: 0}
	for _, v := range versions {
		writtenAt[v.Number] = v.At
	}
	at, sinceAt := writtenAt[got.Version], writtenAt[after]
	if got.At != at || got.SinceAt != sinceAt || at == 0 && got.Version > 0 {
		tb.Errorf("versions %d and %d: got times %d and %d, want %d and %d", got.Version, after, got.At, got.SinceAt,
			at, sinceAt)
	}
	return got.Version, sortItems(got.Items)
}

// expectCatalog checks the version of a catalog, and the items that were written after another version.
func expectCatalog(tb testing.TB, c store.Catalog, version, after int64, want ...store.Item) {
	tb.Helper()
	got, items := readSince(tb, c, after)
	if got != version {
		tb.Errorf("got version %d, want %d", got, version)
	}
	expectItems(tb, fmt.Sprint("written after version ", after), items, want...)
}

// sortItems sorts items in place.
func sortItems(items []store.Item) []store.Item {
	slices.SortFunc(items, compareItemIDs)
	return items
}

func compareItemIDs(a, b store.Item) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
}

func expectItems(tb testing.TB, name string, got []store.Item, want ...store.Item) {
	tb.Helper()
	if got, want := sortItems(slices.Clone(got)), sortItems(want); !slices.Equal(got, want) {
		tb.Errorf("%s: got\n%+v, want\n%+v", name, got, want)
	}
}

var (
	loginItem = store.Item{
		Kind: store.KindLimit, Name: "login", Text: "token-bucket 5/1m", Note: "a description, with 'quotes' and ä",
		Origin: "file",
	}
	apiItem      = store.Item{Kind: store.KindLimit, Name: "api", Text: "sliding-log 10/1h history 1d", Retired: true}
	aliasItem    = store.Item{Kind: store.KindLimit, Name: "a.login", Text: store.RenamedFrom + "login", Retired: true}
	planItem     = store.Item{Kind: store.KindPlan, Name: "pro", Key: "login", Text: "token-bucket 50/1m"}
	overrideItem = store.Item{
		Kind: store.KindOverride, Name: "login", Key: "bob's \\ key", Text: "fixed-window 3/1h", Note: "trusted",
		Until: 4_102_444_800_000_000,
	}
	assignItem = store.Item{Kind: store.KindAssignment, Key: "bob", Text: "pro"}
	fileItem   = store.Item{Kind: store.KindFile, Name: strings.Repeat("0a", 32), Note: "limits.yaml"}
)

// removal returns the item that removes i.
func removal(i store.Item) store.Item {
	i = i.ID()
	i.Removed = true
	return i
}

func change(before, after store.Item) store.Change { return store.Change{Before: before, After: after} }

func creation(i store.Item) store.Change { return change(removal(i), i) }

// testCatalog writes items into an empty catalog, and reads them.
func testCatalog(t *testing.T, s store.Store) {
	c := catalogOf(t, s)
	ctx := t.Context()
	expectCatalog(t, c, 0, 0)
	if list, err := c.CatalogVersions(ctx, 0, 10); err != nil || len(list) != 0 {
		t.Fatalf("a new store: got versions %v, %v; want none", list, err)
	}

	if v := edit(t, c, 0, aliasItem, loginItem, planItem, overrideItem, assignItem, fileItem); v != 1 {
		t.Fatalf("the first edit: got version %d, want 1", v)
	}
	expectCatalog(t, c, 1, 0, aliasItem, loginItem, planItem, fileItem) // without items of single keys
	if v := edit(t, c, 1, loginItem, planItem); v != 1 {
		t.Errorf("an edit that changes nothing: got version %d, want 1", v)
	}
}

// testCatalogChanges reads the items that versions have changed.
func testCatalogChanges(t *testing.T, s store.Store) {
	c := catalogOf(t, s)
	edit(t, c, 0, loginItem, planItem, overrideItem, assignItem)
	changedLogin := loginItem
	changedLogin.Text = "token-bucket 6/1m"
	edit(t, c, 1, changedLogin, apiItem, removal(overrideItem))
	edit(t, c, 2, removal(planItem), removal(store.Item{Kind: store.KindLimit, Name: "never.there"}))

	expectCatalog(t, c, 3, 0, changedLogin, apiItem)
	expectCatalog(t, c, 3, 1, changedLogin, apiItem, removal(overrideItem), removal(planItem))
	expectCatalog(t, c, 3, 2, removal(planItem))
	expectCatalog(t, c, 3, 3)
	version, found, err := c.Items(t.Context(), []store.Item{
		assignItem.ID(), overrideItem.ID(), changedLogin.ID(), {Kind: "limit", Name: "x"},
	})
	if err != nil || version != 3 {
		t.Fatalf("items by name: got version %d, %v; want 3", version, err)
	}
	expectItems(t, "by name", found, assignItem, changedLogin)
	for _, missing := range [][]store.Item{nil, {overrideItem.ID()}, {{Kind: store.KindLimit, Name: "x"}}} {
		if version, found, err := c.Items(t.Context(), missing); err != nil || len(found) != 0 || version != 3 {
			t.Errorf("missing items by name: got %v of version %d, %v; want none of version 3", found, version, err)
		}
	}

	list, err := c.CatalogVersions(t.Context(), 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]store.Change{
		{change(planItem, removal(planItem))},
		{creation(apiItem), change(loginItem, changedLogin), change(overrideItem, removal(overrideItem))},
		{creation(loginItem), creation(overrideItem), creation(planItem), creation(assignItem)},
	}
	if len(list) != len(want) {
		t.Fatalf("got %d versions, want %d: %+v", len(list), len(want), list)
	}
	for i, v := range list {
		if v.Number != int64(3-i) || v.At <= 0 || !strings.HasPrefix(v.Author, "alice") || v.Reason != "because" {
			t.Errorf("got version %+v, want number %d by alice, reason because", v, 3-i)
		}
		if !slices.Equal(sortByID(v.Changes), sortByID(want[i])) {
			t.Errorf("version %d: got\n%+v, want\n%+v", v.Number, v.Changes, want[i])
		}
	}
	if list, err := c.CatalogVersions(t.Context(), 3, 1); err != nil || len(list) != 1 || list[0].Number != 2 {
		t.Errorf("one version before 3: got %+v, %v; want version 2", list, err)
	}
}

// testItemsInOrder reads items of a kind in order, in pages of several sizes.
func testItemsInOrder(t *testing.T, s store.Store) {
	c := catalogOf(t, s)
	var list []store.Item
	for _, name := range []string{"a", "a.b", "b"} {
		for _, key := range []string{"", "A", "a", "a/", "b'\\", "ä"} {
			list = append(list, store.Item{
				Kind: store.KindOverride, Name: name, Key: key, Text: "token-bucket 5/1m", Until: int64(len(list)),
			})
		}
	}
	prefix := store.Item{Kind: store.KindPrefixOverride, Name: "a", Key: "team/", Text: "token-bucket 5/1m"}
	plan := store.Item{Kind: store.KindPrefixAssignment, Key: "team/", Text: "pro"}
	expectOverrides(t, c, false)
	edit(t, c, 0, append([]store.Item{prefix, plan, loginItem, apiItem}, list...)...)
	expectOverrides(t, c, true)
	edit(t, c, 1, removal(list[3]))
	list = slices.Delete(list, 3, 4)
	expectCatalog(t, c, 2, 0, prefix, plan, loginItem, apiItem) // without items of single keys
	for _, size := range []int{-1, 0, 1, 5, 1000} {
		var got []store.Item
		var after store.Item
		for {
			page, err := c.ItemsAfter(t.Context(), store.KindOverride, after, size)
			if err != nil || len(page) > max(0, size) {
				t.Fatalf("a page of %d: got %d items, %v", size, len(page), err)
			}
			if got = append(got, page...); len(page) == 0 || len(page) < size {
				break
			}
			after = page[len(page)-1]
		}
		if want := list[:len(list)*max(0, min(size, 1))]; !slices.Equal(got, want) {
			t.Errorf("pages of %d: got\n%+v, want\n%+v", size, got, want)
		}
	}
	for kind, want := range map[store.Kind][]store.Item{
		store.KindPrefixOverride: {prefix}, store.KindPrefixAssignment: {plan}, store.KindLimit: {apiItem, loginItem},
		store.KindPlan: nil,
	} {
		if got, err := c.ItemsAfter(t.Context(), kind, store.Item{}, 10); err != nil || !slices.Equal(got, want) {
			t.Errorf("kind %s: got %+v, %v; want %+v", kind, got, err, want)
		}
	}
}

// expectOverrides checks what MayHave, if the store has it, says of a catalog without assignments of single keys.
func expectOverrides(t *testing.T, c store.Catalog, want bool) {
	t.Helper()
	f, ok := c.(store.KindFinder)
	if !ok {
		return
	}
	got, err := f.MayHave(t.Context(), store.KindAssignment, store.KindOverride)
	if err != nil || !slices.Equal(got, []bool{false, want}) {
		t.Errorf("MayHave assignments, overrides: got %v, %v; want false, %v", got, err, want)
	}
}

// sortByID returns a copy of changes, sorted by their items.
func sortByID(list []store.Change) []store.Change {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b store.Change) int { return compareItemIDs(a.After, b.After) })
	return list
}

// testBadEdits makes edits that must fail and change nothing.
func testBadEdits(t *testing.T, s store.Store) {
	c := catalogOf(t, s)
	edit(t, c, 0, loginItem)
	newLogin := loginItem
	newLogin.Text = "token-bucket 7/1m"
	longText := strings.Repeat("r", store.MaxNote+1)
	itemsWith := func(change func(*store.Item)) []store.Item {
		i := newLogin
		change(&i)
		return []store.Item{apiItem, i}
	}
	for _, tt := range []struct {
		name string
		edit store.Edit
		want error
	}{
		{"an old version", store.Edit{Base: 0, Items: []store.Item{apiItem, newLogin}}, store.ErrVersion},
		{"a version to come", store.Edit{Base: 2, Items: []store.Item{apiItem, newLogin}}, store.ErrVersion},
		{"twice the same", store.Edit{Base: 1, Items: []store.Item{loginItem, newLogin}}, store.ErrInvalid},
		{"bad kind", store.Edit{Base: 1, Items: itemsWith(func(i *store.Item) { i.Kind = "rule" })}, store.ErrInvalid},
		{"a NUL", store.Edit{Base: 1, Items: itemsWith(func(i *store.Item) { i.Note = "a\x00b" })}, store.ErrInvalid},
		{"not UTF-8", store.Edit{Base: 1, Items: itemsWith(func(i *store.Item) { i.Key = "\xff" })}, store.ErrInvalid},
		{"long key", store.Edit{Base: 1, Items: itemsWith(func(i *store.Item) { i.Key = longText })}, store.ErrInvalid},
		{"a long reason", store.Edit{Base: 1, Reason: longText, Items: []store.Item{newLogin}}, store.ErrInvalid},
		{"below 0", store.Edit{Base: 1, Items: itemsWith(func(i *store.Item) { i.Until = -1 })}, store.ErrInvalid},
	} {
		if v, err := c.WriteCatalog(t.Context(), tt.edit); !errors.Is(err, tt.want) {
			t.Errorf("%s: got version %d, %v; want %v", tt.name, v, err, tt.want)
		}
	}
	cancelledCtx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.WriteCatalog(cancelledCtx, store.Edit{Base: 1, Items: []store.Item{newLogin}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("an edit with a cancelled context: got %v, want context.Canceled", err)
	}
	if _, err := c.ReadCatalog(cancelledCtx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("ReadCatalog with a cancelled context: got %v, want context.Canceled", err)
	}
	expectCatalog(t, c, 1, 0, loginItem)
}

// testConcurrentEdits has writers edit the catalog at the same time, while others read it.
func testConcurrentEdits(t *testing.T, s store.Store) {
	const writers, editsEach = 4, 10
	c := catalogOf(t, s)
	ctx, stop := context.WithCancel(t.Context())
	var writerGroup, readerGroup sync.WaitGroup
	for w := range writers {
		writerGroup.Go(func() {
			for i := range editsEach {
				// Two limits get the same text in one version, however many try it.
				text, err := fmt.Sprintf("token-bucket %d/1m", 1+w*editsEach+i), store.ErrVersion
				for errors.Is(err, store.ErrVersion) {
					err = TryDefine(ctx, s, store.Item{Name: "a", Text: text}, store.Item{Name: "b", Text: text})
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 2 {
		readerGroup.Go(func() {
			lastVersion := int64(0)
			for ctx.Err() == nil {
				got, err := c.ReadCatalog(ctx, 0)
				if ctx.Err() != nil {
					return
				}
				if err != nil || got.Version < lastVersion || len(got.Items) == 1 ||
					len(got.Items) == 2 && got.Items[0].Text != got.Items[1].Text {
					t.Errorf("after version %d: got %+v, %v; want two equal limits", lastVersion, got, err)
					return
				}
				lastVersion = got.Version
			}
		})
	}
	writerGroup.Wait()
	stop()
	readerGroup.Wait()
	if v, _ := readSince(t, c, 0); v != writers*editsEach {
		t.Errorf("got version %d after %d edits", v, writers*editsEach)
	}
	list, err := c.CatalogVersions(t.Context(), 0, 1000)
	if err != nil || len(list) != writers*editsEach {
		t.Fatalf("got %d versions, %v; want %d", len(list), err, writers*editsEach)
	}
	for i, v := range list[:len(list)-1] {
		for k, change := range sortByID(v.Changes) {
			if previous := sortByID(list[i+1].Changes)[k].After; change.Before != previous {
				t.Fatalf("version %d: got %+v before the change, want %+v", v.Number, change.Before, previous)
			}
		}
	}
}
