package dbtest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// Disk is a small file system that a test fills.
type Disk struct{ Path string }

// NewDisk mounts a file system of size bytes until the test ends. The process must be one in which [Namespace] returns
// true.
func NewDisk(tb testing.TB, size int) *Disk {
	tb.Helper()
	defer failTest(tb)
	dir := must(os.MkdirTemp("", "headgate-disk-")) // other users cannot read TempDir
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

// Fill leaves no byte free. If files are deleted later, Fill may be called again.
func (d *Disk) Fill(tb testing.TB) {
	tb.Helper()
	defer failTest(tb)
	f := must(os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600))
	defer f.Close()
	for size := 1 << 20; size > 0; size >>= 4 {
		block := make([]byte, size)
		var err error
		for err == nil {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			tb.Fatalf("fill the disk: %v", err)
		}
	}
}

// Free gives back the space that Fill took.
func (d *Disk) Free(tb testing.TB) {
	tb.Helper()
	defer failTest(tb)
	check(os.Remove(d.filler()))
}

func (d *Disk) filler() string { return filepath.Join(d.Path, "filler") }

const namespaceEnv = "HEADGATE_TEST_NAMESPACE"

// Namespace reports whether this process may mount a [Disk]. No other process sees the disk, and it is gone when the
// process ends. If Namespace returns false, it has run the calling test in a process that may, and the caller returns:
//
//	if !dbtest.Namespace(t) {
//		return
//	}
//
// This needs root, or a kernel that lets everybody make namespaces. Otherwise the test is skipped.
func Namespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaceEnv) != "" {
		return true
	}
	defer failTest(t)
	run := "^" + t.Name() + "$"
	if pattern := flag.Lookup("test.run"); pattern != nil {
		if _, subtests, found := strings.Cut(pattern.Value.String(), "/"); found {
			run += "/" + subtests
		}
	}
	cmd := exec.CommandContext(t.Context(), must(os.Executable()), "-test.run="+run, "-test.v", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), namespaceEnv+"=1")
	cmd.SysProcAttr = namespaceAttr(os.Getuid(), os.Getgid())
	runtime.LockOSThread() // the child dies when this thread ends
	defer runtime.UnlockOSThread()
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Skipf("no process that may mount a file system can be started, which needs root or namespaces for "+
			"everybody: %v", err)
	}
	err := cmd.Wait()
	t.Log(output.String())
	switch {
	case err != nil:
		t.Errorf("in a namespace: %v", err)
	case strings.Contains(output.String(), "--- SKIP: "+t.Name()+" "):
		t.Skip("skipped in a namespace")
	case !strings.Contains(output.String(), "--- PASS: "+t.Name()+" "):
		t.Error("the test did not run in a namespace")
	}
	return false
}

// namespaceAttr returns attributes of a process with file systems of its own. The process keeps its user and group.
func namespaceAttr(uid, gid int) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Unshareflags: syscall.CLONE_NEWNS}
	if uid == 0 {
		return attr
	}
	const capSysAdmin = 21 // lets the process mount
	attr.Cloneflags = syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	attr.AmbientCaps = []uintptr{capSysAdmin}
	return attr
}
