package redis

import (
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/store"
)

// countScans returns how many HSCAN commands the server has executed.
func countScans(t *testing.T, s *Store) int {
	t.Helper()
	text, err := admin(t, s, "INFO", "commandstats").ToString()
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`cmdstat_hscan:calls=(\d+)`).FindStringSubmatch(text)
	if match == nil {
		return 0
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOpeningACatalogOf12000KeysReadsOnlyAPart checks what MayHave and ItemsAfter find, and how many scans MayHave and
// catalog.Read make.
func TestOpeningACatalogOf12000KeysReadsOnlyAPart(t *testing.T) {
	url := startServer(t).DSN
	s := openTest(t, url, nil)
	limit := limitItem(0)
	var overrides []store.Item
	for i := range 12_000 { // more than the maxScans*itemsPerCall items that MayHave reads
		overrides = append(overrides, overrideItem(i))
	}
	assignment := store.Item{Kind: store.KindAssignment, Key: "bob", Text: "pro"}
	kinds := []store.Kind{store.KindOverride, store.KindAssignment}
	for base, step := range []struct {
		edit     []store.Item // written before the query
		kinds    []store.Kind
		want     []bool
		maxScans int
	}{
		{[]store.Item{limit}, kinds, []bool{false, false}, 1},
		{[]store.Item{assignment}, kinds, []bool{false, true}, 1},
		{overrides[:10], kinds, []bool{true, true}, 1},
		{overrides[10:], kinds[:1], []bool{true}, 1},
		{[]store.Item{limitItem(1)}, kinds, []bool{true, true}, maxScans},
	} {
		mustWrite(t, s, int64(base), step.edit...)
		before := countScans(t, s)
		got, err := s.MayHave(t.Context(), step.kinds...)
		if n := countScans(t, s) - before; err != nil || !slices.Equal(got, step.want) || n > step.maxScans {
			t.Errorf("version %d: %v, %d scans, %v; want %v, %d", base+1, got, n, err, step.want, step.maxScans)
		}
		before = countScans(t, s)
		c, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if n := countScans(t, s) - before; n > maxScans {
			t.Errorf("version %d: got %d scans to read the catalog, want %d at most", base+1, n, maxScans)
		}
	}
	before := countScans(t, s)
	for _, n := range []int{0, -1} {
		if list, err := s.ItemsAfter(t.Context(), store.KindOverride, store.Item{}, n); err != nil || len(list) != 0 {
			t.Errorf("ItemsAfter for %d items: got %d items, %v; want none", n, len(list), err)
		}
	}
	if n := countScans(t, s) - before; n != 0 {
		t.Errorf("got %d scans for no items, want none", n)
	}
	after := store.Item{Name: "l0", Key: "k10000"}
	if list, err := s.ItemsAfter(t.Context(), store.KindOverride, after, 2); err != nil || !slices.Equal(list,
		[]store.Item{overrideItem(10001), overrideItem(10002)}) {
		t.Errorf("ItemsAfter k10000: got %+v, %v; want k10001 and k10002", list, err)
	}
}
