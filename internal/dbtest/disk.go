package dbtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Disk is a small file system that a test fills.
type Disk struct{ Path string }

// NewDisk mounts a file system of so many bytes for as long as a test runs, in a process of which [Namespace] says
// that it may.
func NewDisk(tb testing.TB, size int) *Disk {
	tb.Helper()
	dir, err := os.MkdirTemp("", "headgate-disk-") // TempDir is for this user alone
	must(tb, err)
	tb.Cleanup(func() { _ = os.Remove(dir) })
	d := &Disk{Path: dir}
	if err := syscall.Mount("headgate", d.Path, "tmpfs", 0, fmt.Sprintf("size=%d,mode=755", size)); err != nil {
		tb.Fatalf("a file system of %d bytes cannot be mounted here: %v", size, err)
	}
	tb.Cleanup(func() {
		if err := syscall.Unmount(d.Path, syscall.MNT_DETACH); err != nil {
			tb.Errorf("unmount %s: %v", d.Path, err)
		}
	})
	return d
}

// Fill leaves no byte free. What is deleted later makes room again: Fill may be called again then.
func (d *Disk) Fill(tb testing.TB) {
	tb.Helper()
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		tb.Fatalf("fill the disk: %v", err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size >>= 4 {
		block := make([]byte, size)
		for err = nil; err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			tb.Fatalf("fill the disk: %v", err)
		}
	}
}

// Free gives back what Fill took.
func (d *Disk) Free(tb testing.TB) {
	tb.Helper()
	if err := os.Remove(d.filler()); err != nil {
		tb.Fatalf("make room on the disk: %v", err)
	}
}

func (d *Disk) filler() string { return filepath.Join(d.Path, "filler") }
