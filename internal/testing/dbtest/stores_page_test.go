package dbtest

import (
	"os"
	"strings"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"
)

// TestTheStoresPageNamesTheVersions checks that docs/stores.md names the tested versions that this package chooses. The
// versions of the distribution and of Debian's newest release change by themselves.
func TestTheStoresPageNamesTheVersions(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, hasTable := strings.Cut(string(page), "## Which versions were tested\n")
	table, _, _ = strings.Cut(table, "\n\n`make engines`")
	if !hasTable {
		t.Fatal("docs/stores.md has no table of versions")
	}
	for _, version := range npmVersions {
		number, _, _ := strings.Cut(version, ".0-") // 15.18.0-beta.17 is PostgreSQL 15.18
		if !strings.Contains(table, number) {
			t.Errorf("docs/stores.md does not name PostgreSQL %s", number)
		}
	}
	if !strings.Contains(table, sqlite3.SQLITE_VERSION) {
		t.Errorf("docs/stores.md does not name SQLite %s", sqlite3.SQLITE_VERSION)
	}
	for name, e := range engines {
		number := strings.TrimSuffix(strings.Fields(e.version + " -")[0], ".")
		if number != "-" && !strings.Contains(table, number) {
			t.Errorf("docs/stores.md does not name %s, of %s", number, name)
		}
	}
}
