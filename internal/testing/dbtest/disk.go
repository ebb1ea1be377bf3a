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

// NewDisk mounts a file system of size bytes for as long as a test runs, in a process of which [Namespace] says
// that it may.
func NewDisk(tb testing.TB, size int) *Disk {
	tb.Helper()
	defer fatal(tb)
	dir := get(os.MkdirTemp("", "headgate-disk-")) // TempDir is for this user alone
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
	defer fatal(tb)
	f := get(os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600))
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

// Free gives back what Fill took.
func (d *Disk) Free(tb testing.TB) {
	tb.Helper()
	defer fatal(tb)
	do(os.Remove(d.filler()))
}

func (d *Disk) filler() string { return filepath.Join(d.Path, "filler") }

const namespaceEnv = "HEADGATE_TEST_NAMESPACE"

// Namespace reports whether this process may mount a [Disk], which nobody else sees and which is gone with the
// process, however that ends. If not, it runs the test that calls it in a process that may, and the caller returns:
//
//	if !dbtest.Namespace(t) {
//		return
//	}
//
// That needs root, or a kernel that lets everybody make namespaces. The test is skipped where neither is so.
func Namespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaceEnv) != "" {
		return true
	}
	defer fatal(t)
	run := "^" + t.Name() + "$"
	if asked := flag.Lookup("test.run"); asked != nil {
		if _, parts, some := strings.Cut(asked.Value.String(), "/"); some {
			run += "/" + parts
		}
	}
	cmd := exec.CommandContext(t.Context(), get(os.Executable()), "-test.run="+run, "-test.v", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), namespaceEnv+"=1")
	cmd.SysProcAttr = namespaced(os.Getuid(), os.Getgid())
	runtime.LockOSThread() // whose end is the end of the child
	defer runtime.UnlockOSThread()
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Skipf("no process that may mount a file system can be started, which needs root or namespaces for "+
			"everybody: %v", err)
	}
	err := cmd.Wait()
	t.Log(said.String())
	switch {
	case err != nil:
		t.Errorf("in a namespace: %v", err)
	case strings.Contains(said.String(), "--- SKIP: "+t.Name()+" "):
		t.Skip("skipped in a namespace")
	case !strings.Contains(said.String(), "--- PASS: "+t.Name()+" "):
		t.Error("the test did not run in a namespace")
	}
	return false
}

// namespaced returns how to start a process with file systems of its own, for a user who stays who he is.
func namespaced(uid, gid int) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Unshareflags: syscall.CLONE_NEWNS}
	if uid == 0 {
		return attr
	}
	const mount = 21 // CAP_SYS_ADMIN
	attr.Cloneflags = syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	attr.AmbientCaps = []uintptr{mount}
	return attr
}
