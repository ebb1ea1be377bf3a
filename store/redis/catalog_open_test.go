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

// scans returns how many HSCAN commands the server has executed.
func scans(t *testing.T, s *Store) int {
	t.Helper()
	text, err := admin(t, s, "INFO", "commandstats").ToString()
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`cmdstat_hscan:calls=(\d+)`).FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestACatalogOfManyKeysIsOpenedWithoutReadingAll opens a catalog with items of 12,000 keys.
func TestACatalogOfManyKeysIsOpenedWithoutReadingAll(t *testing.T) {
	url := startServer(t).DSN
	s := openTest(t, url, nil)
	limit := limitItem(0)
	var overrides []store.Item
	for i := range 12_000 { // more than Open reads
		overrides = append(overrides, overrideItem(i))
	}
	assignment := store.Item{Kind: store.KindAssignment, Key: "bob", Text: "pro"}
	kinds := []store.Kind{store.KindOverride, store.KindAssignment}
	for base, step := range []struct {
		write []store.Item
		kinds []store.Kind
		want  []bool
		most  int // scans
	}{
		{[]store.Item{limit}, kinds, []bool{false, false}, 1},
		{[]store.Item{assignment}, kinds, []bool{false, true}, 1},
		{overrides[:10], kinds, []bool{true, true}, 1},
		{overrides[10:], kinds[:1], []bool{true}, 1},
		{[]store.Item{limitItem(1)}, kinds, []bool{true, true}, maxScans},
	} {
		write(t, s, int64(base), step.write...)
		before := scans(t, s)
		got, err := s.MayHave(t.Context(), step.kinds...)
		if n := scans(t, s) - before; err != nil || !slices.Equal(got, step.want) || n > step.most {
			t.Errorf("version %d: %v after %d scans, %v; want %v after %d", base+1, got, n, err, step.want, step.most)
		}
		before = scans(t, s)
		c, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if n := scans(t, s) - before; n > maxScans {
			t.Errorf("version %d: %d scans to read the catalog, want %d at most", base+1, n, maxScans)
		}
	}
	before := scans(t, s)
	for _, n := range []int{0, -1} {
		if list, err := s.ItemsAfter(t.Context(), store.KindOverride, store.Item{}, n); err != nil || len(list) != 0 {
			t.Errorf("%d items: %d, %v", n, len(list), err)
		}
	}
	if n := scans(t, s) - before; n != 0 {
		t.Errorf("%d scans for no items", n)
	}
	after := store.Item{Name: "l0", Key: "k10000"}
	if list, err := s.ItemsAfter(t.Context(), store.KindOverride, after, 2); err != nil || !slices.Equal(list,
		[]store.Item{overrideItem(10001), overrideItem(10002)}) {
		t.Errorf("%+v, %v", list, err)
	}
}
