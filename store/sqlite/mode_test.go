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

// TestOnlyTheOwnerReadsTheFile looks at the modes of a new file and of those beside it,
// under several umasks; a file that is there keeps its mode. It changes the umask of
// the process, so it runs alone.
func TestOnlyTheOwnerReadsTheFile(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	for _, tt := range []struct {
		umask  int
		before os.FileMode // of the file; 0: there is none
		want   os.FileMode
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
		if tt.before != 0 {
			if err := os.WriteFile(path, nil, tt.before); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tt.before); err != nil {
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
			t.Errorf("there are %v; want the file, its log and its index", files)
		}
		for _, f := range files {
			info, err := f.Info()
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != tt.want {
				t.Errorf("umask %o, mode %o before: %s has mode %o, want %o", tt.umask, tt.before, f.Name(),
					info.Mode().Perm(), tt.want)
			}
		}
		s.Close()
		syscall.Umask(0)
	}
}
