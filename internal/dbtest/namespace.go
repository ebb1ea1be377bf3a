package dbtest

import (
	"flag"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

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
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := "^" + t.Name() + "$"
	if asked := flag.Lookup("test.run"); asked != nil {
		if _, parts, some := strings.Cut(asked.Value.String(), "/"); some {
			run += "/" + parts
		}
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run="+run, "-test.v", "-test.timeout=10m")
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
	err = cmd.Wait()
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
