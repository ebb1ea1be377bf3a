package housetest_test

import (
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/internal/housetest"
)

// TestNoLargeCycles finds packages whose files use each other in larger cycles than
// their allowance. An allowance of 1 means no cycle.
func TestNoLargeCycles(t *testing.T) {
	t.Parallel()
	for dir, allowed := range map[string]int{
		".":              11, // to become 4
		"law":            8,  // to become 4
		"store":          1,
		"store/coalesce": 1,
		"store/deny":     2,
		"store/front":    2,
		"store/memory":   8,
		"store/mysql":    22, // to become 1
		"store/pending":  1,
		"store/postgres": 7,
		"store/prefetch": 1,
		"store/redis":    10,
		"store/sqlite":   4,
	} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			uses, err := housetest.Load(t.Context(), filepath.Join("../..", dir))
			if err != nil {
				t.Fatal(err)
			}
			for _, cycle := range uses.Cycles() {
				t.Logf("%d files use each other: %v", len(cycle), cycle)
				if len(cycle) > allowed {
					t.Errorf("%d files use each other, %d may:\n%s", len(cycle), allowed, uses.Within(cycle))
				}
			}
		})
	}
}
