package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// TestABackupUnderLoad copies the file with VACUUM INTO while callers charge a key.
func TestABackupUnderLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, backupFile := filepath.Join(dir, "state.db"), filepath.Join(dir, "copy.db")
	storetest.Backup(t, open(t, "sqlite:"+file), func() {
		db, err := sql.Open("sqlite", file)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), "vacuum into ?", backupFile); err != nil {
			t.Fatal(err)
		}
	}, func() store.Store { return open(t, "sqlite:"+backupFile) })
}
