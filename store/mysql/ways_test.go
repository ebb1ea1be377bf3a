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

// TestCodeThatWritesCells checks which code writes headgate_cells: three files of the driver, for one charge, for sums
// and for rows, and four procedures. The driver also calls headgate_direct, where INSERT has no RETURNING.
// request_token writes by itself, since exactly one of its statements may affect rows.
func TestCodeThatWritesCells(t *testing.T) {
	t.Parallel()
	writesCells := regexp.MustCompile(`(?i)(insert (ignore )?into|update|replace into) headgate_cells`)
	var files []string
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
			if !strings.HasSuffix(name, "_test.go") && name != "expand.go" && writesCells.Match(text) {
				files = append(files, name)
			}
		}
	}
	if want := []string{"rows_write.go", "sums_text.go", "one.tmpl"}; !slices.Equal(files, want) {
		t.Errorf("got files %q that write cells, want %q", files, want)
	}
	var procedures []string
	for name, text := range mysql.Procedures() {
		if writesCells.MatchString(text) {
			procedures = append(procedures, name)
		}
	}
	slices.Sort(procedures)
	if want := []string{"headgate_ask_N", "headgate_direct_N", "headgate_group_N", "request_token"}; !slices.Equal(procedures, want) {
		t.Errorf("got procedures %q that write cells, want %q", procedures, want)
	}
}
