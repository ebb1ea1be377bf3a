package sqlite_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// TestDoctor checks the findings about a file without sweeps, with a damaged page, and when it was moved away.
func TestDoctor(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, "sqlite:"+path)
	storetest.FindsNothing(t, s)
	storetest.Finds(t, open(t, "sqlite:"+path+"?synchronous=normal"), store.Note, "durability", "synchronous=normal")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	exec := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	const numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10001) "
	exec(numbers + "INSERT INTO entries (limit_name, key, id, at, expires_at, keep_until, cost, granted) " +
		"SELECT 'entries', i, '', 1, 0, 9007199254740991, 1, 1 FROM n")
	for _, tt := range []struct {
		values   string // of limit, key, law, ids_until
		severity store.Severity
		remedy   string
	}{
		// A sweep must not remove the first two kinds: the cells remember ids, or keep entries.
		{"'ids', i, 1, 9007199254740991", store.Fine, ""},
		{"'entries', i, 3, 0", store.Fine, ""},
		{"'dead', i, 1, 0", store.Wrong, "headgate sweep"},
	} {
		exec(numbers + "INSERT INTO cells (limit_name, key, law, ids_until, level, prev, at, unit, step, empty_at, " +
			"blocked_until) SELECT " + tt.values + ", 0, 0, 1, 1, 1, 1, 0 FROM n")
		storetest.Finds(t, s, tt.severity, "sweeper", tt.remedy)
	}
	exec("PRAGMA wal_checkpoint(TRUNCATE)")
	damage(t, path)
	storetest.Finds(t, open(t, "sqlite:"+path), store.Wrong, "integrity", "restore it from a backup")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	storetest.Finds(t, s, store.Wrong, "file", "stop all programs")
}

// TestDoctorOfAStoreInMemory checks that Examine works with a single connection, and finds nothing wrong.
func TestDoctorOfAStoreInMemory(t *testing.T) {
	t.Parallel()
	storetest.FindsNothing(t, open(t, "sqlite::memory:"))
}

// damage overwrites a page in the middle of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	if _, err := f.WriteAt([]byte(strings.Repeat("damaged.", page/8)), info.Size()/2/page*page); err != nil {
		t.Fatal(err)
	}
}
