package housetest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/housetest"
)

// TestNoLargeCycles finds packages whose files use each other in larger cycles than
// their allowance. An allowance of 1 means no cycle.
func TestNoLargeCycles(t *testing.T) {
	t.Parallel()
	for dir, allowed := range map[string]int{
		".":              4, // quick, limiter, reserve and request: they share the Limiter
		"law":            4,
		"store":          1,
		"store/coalesce": 1,
		"store/deny":     2,
		"store/front":    2,
		"store/memory":   8,
		"store/mysql":    1,
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

// TestReadingOrder compares the order of files that store/mysql/mysql.go states with
// their uses: each file is in one line of it, and uses no file of a line below.
func TestReadingOrder(t *testing.T) {
	t.Parallel()
	const dir = "../../store/mysql"
	text, err := os.ReadFile(filepath.Join(dir, "mysql.go"))
	if err != nil {
		t.Fatal(err)
	}
	layers := map[string]int{}
	for _, line := range regexp.MustCompile(`(?m)^//\t\w+( \w+)? {2,}(.*)$`).FindAllStringSubmatch(string(text), -1) {
		layer := len(layers)
		for name := range strings.SplitSeq(line[2], ", ") {
			layers[name+".go"] = layer
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		name := filepath.Base(file)
		if _, ok := layers[name]; ok {
			found++
		} else if !strings.HasSuffix(name, "_test.go") {
			t.Errorf("mysql.go does not say where %s is read", name)
		}
	}
	if found != len(layers) || found == 0 {
		t.Errorf("mysql.go names %d files, of which %d are there", len(layers), found)
	}
	uses, err := housetest.Load(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for from := range uses {
		for to, name := range uses[from] {
			if layers[to] > layers[from] {
				t.Errorf("%s uses %s of %s, which is read after it", from, name, to)
			}
		}
	}
}
