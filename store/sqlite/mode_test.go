//go:build unix

package sqlite_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/sqlite"
)

// TestOnlyTheOwnerReadsTheFile checks that a new file, its log and its index have mode 0600 under any umask, and that
// an existing file keeps its mode for all three. It changes the umask of the process, so it does not run in parallel.
func TestOnlyTheOwnerReadsTheFile(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	for _, tt := range []struct {
		umask   int
		oldMode os.FileMode // of an existing file; 0: there is none
		want    os.FileMode
	}{
		{0, 0, 0o600},
		{0o022, 0, 0o600},
		{0o077, 0, 0o600},
		{0o777, 0, 0o600},
		{0o022, 0o640, 0o640},
		{0o022, 0o666, 0o666},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "headgate.db")
		if tt.oldMode != 0 {
			if err := os.WriteFile(path, nil, tt.oldMode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tt.oldMode); err != nil {
				t.Fatal(err)
			}
		}
		syscall.Umask(tt.umask)
		s, err := sqlite.Open(t.Context(), "sqlite:"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := headgate.New(s, nil).Allow(t.Context(), headgate.MustParse("token-bucket 1/s"),
			"alice"); err != nil {
			t.Error(err)
		}
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != 3 {
			t.Errorf("got files %v, want the file, its log and its index", files)
		}
		for _, f := range files {
			info, err := f.Info()
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != tt.want {
				t.Errorf("umask %o, old mode %o: %s: got mode %o, want %o", tt.umask, tt.oldMode, f.Name(),
					info.Mode().Perm(), tt.want)
			}
		}
		s.Close()
		syscall.Umask(0)
	}
}
