package postgres

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// cellWriters are the functions that write cells, by what they decide.
var cellWriters = map[string][]string{
	"single plain charge":   {"take_one_2"},
	"plain batch":           {"take_sums_2"},
	"plain requests":        {"apply_plain_2"},
	"general":               {"make_cell_2", "apply_2", "apply_once_2", "remember_2"},
	"attempts, for SQL":     {"log_one_2"},
	"the sweep, no request": {"sweep_from_2"},
}

var (
	functionPattern  = regexp.MustCompile(`(?s)create or replace function [a-z_]+\.(\w+)\(.*?\$\$;`)
	cellWritePattern = regexp.MustCompile(`\b(insert into|update|delete from) headgate\.cells\b`)
)

// TestOnlyCellWritersWriteCells checks that the functions which write cells are those of cellWriters. Each of them can
// be wrong, so a new one has to be 1.25 times as fast, end to end, as the function that it replaces.
func TestOnlyCellWritersWriteCells(t *testing.T) {
	if n := len(cellWriters); n > 6 {
		t.Errorf("got %d kinds of functions that write cells, want at most 6", n)
	}
	for _, d := range []*definition{postgresDefinition(), yugabyteDefinition()} {
		for _, f := range append(slices.Clone(d.functions), d.articles) {
			for _, m := range functionPattern.FindAllStringSubmatch(f.sql, -1) {
				entries := 0
				for _, names := range cellWriters {
					if slices.Contains(names, m[1]) {
						entries++
					}
				}
				if writes := len(cellWritePattern.FindAllString(m[0], -1)); (writes > 0) != (entries == 1) {
					t.Errorf("%s: %s has %d writes of cells and %d entries in cellWriters", f.name, m[1], writes, entries)
				}
			}
		}
	}
	files, err := sqlFiles.ReadDir("sql/functions")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(functionFiles)+2 { // also the files articles and rights
		t.Errorf("got %d files, want the %d of functionFiles and 2", len(files), len(functionFiles))
	}
	if strings.Contains(postgresDefinition().articles.sql, "headgate.cells") {
		t.Error("the articles' functions use headgate.cells, want them to call other functions")
	}
}
