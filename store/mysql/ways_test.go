package mysql_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/store/mysql"
)

// TestWaysToWriteACell counts the texts that do: three of the driver, for one charge, for sums and for rows, and of
// calls one for plain cells, which is the driver's for one charge where INSERT returns nothing, and two for the others.
// request_token writes by itself, since one statement of it has to count.
func TestWaysToWriteACell(t *testing.T) {
	t.Parallel()
	writes := regexp.MustCompile(`(?i)(insert (ignore )?into|update|replace into) headgate_cells`)
	var texts []string
	for _, pattern := range []string{"*.go", "*.tmpl"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			// expand.go has parts of procedures
			if !strings.HasSuffix(name, "_test.go") && name != "expand.go" && writes.Match(text) {
				texts = append(texts, name)
			}
		}
	}
	if want := []string{"rows_write.go", "sums_text.go", "one.tmpl"}; !slices.Equal(texts, want) {
		t.Errorf("the driver writes cells in %q, want %q", texts, want)
	}
	var calls []string
	for name, text := range mysql.Procedures() {
		if writes.MatchString(text) {
			calls = append(calls, name)
		}
	}
	slices.Sort(calls)
	if want := []string{"headgate_ask_N", "headgate_direct_N", "headgate_group_N", "request_token"}; !slices.Equal(calls, want) {
		t.Errorf("calls write cells in %q, want %q", calls, want)
	}
}
