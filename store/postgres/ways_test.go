package postgres

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// writers are the functions that write cells, by the kind of batch that they decide.
var writers = map[string][]string{
	"single plain charge":   {"take_one_1"},
	"plain batch":           {"take_sums_1"},
	"requests with plain":   {"apply_plain_1"},
	"general":               {"make_cell_1", "apply_1", "apply_once_1", "remember_1"},
	"attempts, for SQL":     {"log_one_1"},
	"the sweep, no request": {"sweep_from_1"},
}

var (
	functionBody = regexp.MustCompile(`(?s)create or replace function [a-z_]+\.(\w+)\(.*?\$\$;`)
	writesCells  = regexp.MustCompile(`\b(insert into|update|delete from) headgate\.cells\b`)
)

// TestFunctionsThatWriteCells counts the functions that write cells. Each of them can be wrong, so a new one has to
// be 1.25 times as fast, end to end, as the function that it replaces.
func TestFunctionsThatWriteCells(t *testing.T) {
	if n := len(writers); n > 6 {
		t.Errorf("%d ways write cells", n)
	}
	for _, d := range []*definition{current(), yugabyte()} {
		for _, f := range append(slices.Clone(d.functions), d.articles) {
			for _, m := range functionBody.FindAllStringSubmatch(f.sql, -1) {
				listed := 0
				for _, names := range writers {
					if slices.Contains(names, m[1]) {
						listed++
					}
				}
				if writes := len(writesCells.FindAllString(m[0], -1)); (writes > 0) != (listed == 1) {
					t.Errorf("%s: %s writes cells in %d places, and is on the list %d times", f.name, m[1], writes, listed)
				}
			}
		}
	}
	files, err := sqlFiles.ReadDir("sql/functions")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(functionFiles)+2 { // also the files articles and rights
		t.Errorf("%d files, %d are executed", len(files), len(functionFiles))
	}
	if strings.Contains(current().articles.sql, "headgate.cells") {
		t.Error("the articles' functions have a way of their own")
	}
}
