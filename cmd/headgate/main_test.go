package main

import (
	"flag"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/server/run"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

// program is the name of the command for exec.Command. It is this binary, so that tests of processes build nothing, and
// the race detector looks at them.
const program = "headgate"

func TestMain(m *testing.M) {
	quick()
	switch {
	case filepath.Base(os.Args[0]) == program:
		main()
	case dbtest.Task() == commanderTask:
		obey()
	case !child():
		os.Exit(tested(m))
	}
}

// quick sets the pauses for which a test would have to wait.
func quick() {
	pauses = run.Pauses{
		Reload: 20 * time.Millisecond, Catalog: 20 * time.Millisecond, Probe: 500 * time.Millisecond,
		Welcome: 200 * time.Millisecond, Close: 500 * time.Millisecond,
	}
}

// tested runs the tests, which find the command by its name, and then looks for leaks.
func tested(m *testing.M) (code int) {
	completeWithin = time.Minute
	// A server that a test starts does not inherit that SIGHUP is ignored, as below nohup.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	// Most tests wait for what a server does at some time, and compute nothing meanwhile.
	must(flag.Set("test.parallel", "6"))
	// With the race detector a process waits for a second before it ends.
	must(os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")))
	dir, err := os.MkdirTemp("", "headgate-test-")
	must(err)
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	must(err)
	must(os.Symlink(self, filepath.Join(dir, program)))
	must(os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH")))
	return leaktest.Run(m)
}
