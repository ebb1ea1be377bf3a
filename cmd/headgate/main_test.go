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

// program is the name of the command for exec.Command. It runs this binary, so that tests of processes build nothing
// and have the race detector.
const program = "headgate"

func TestMain(m *testing.M) {
	shortenPauses()
	switch {
	case filepath.Base(os.Args[0]) == program:
		main()
	case dbtest.Task() == commanderTask:
		runCommander()
	case !runCaller():
		os.Exit(runTests(m))
	}
}

// shortenPauses sets the pauses of servers, so that tests do not wait long.
func shortenPauses() {
	pauses = run.Pauses{
		Reload: 20 * time.Millisecond, Catalog: 20 * time.Millisecond, Probe: 500 * time.Millisecond,
		Welcome: 200 * time.Millisecond, Close: 500 * time.Millisecond,
	}
}

// runTests runs the tests, with the command in PATH, and then looks for leaks.
func runTests(m *testing.M) (code int) {
	completeTimeout = time.Minute
	// If this process ignores SIGHUP, as under nohup, the servers that tests start must not inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	// Most tests wait for a server, and compute nothing meanwhile.
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
