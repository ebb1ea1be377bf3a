package dbtest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestADiskIsFullFromFillToFree(t *testing.T) {
	if !Namespace(t) {
		return
	}
	d := NewDisk(t, 1<<20)
	write := func() error { return os.WriteFile(filepath.Join(d.Path, "file"), []byte("text"), 0o600) }
	for range 2 {
		d.Fill(t)
		if err := write(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("on a full disk: got %v, want ENOSPC", err)
		}
		d.Free(t)
		if err := write(); err != nil {
			t.Errorf("after Free: got %v, want no error", err)
		}
		if err := os.Remove(filepath.Join(d.Path, "file")); err != nil {
			t.Error(err)
		}
	}
}
