// Package command builds the command headgate for tests.
//
// Path builds it once in a process, with the race detector if the tests have it: so the packages that both use are
// compiled already.
package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// Path returns the path of the program, which [Build] builds from the present sources.
func Path(tb testing.TB) string {
	tb.Helper()
	path, err := buildOnce()
	if err != nil {
		tb.Fatalf("build the command: %v", err)
	}
	return path
}

var buildOnce = sync.OnceValues(func() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return Build(filepath.Join(root, "bin"), Flags()...)
})

// Build builds the program in a folder with options of the go command, unless it is up to date, and returns its path.
// The folder is an absolute path. Several processes may call Build at the same time.
func Build(folder string, flags ...string) (path string, err error) {
	path = filepath.Join(folder, "headgate.test")
	if slices.Contains(flags, "-race") {
		path = filepath.Join(folder, "headgate.race.test")
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() // closing unlocks the file
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	args := slices.Concat([]string{"build", "-buildvcs=false"}, flags,
		[]string{"-o", path, "github.com/headgate/headgate/cmd/headgate"})
	build := exec.CommandContext(context.Background(), "go", args...)
	if build.Dir, err = Root(); err != nil {
		return "", err
	}
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
}

// Root returns the root folder of the module of the working directory.
func Root() (string, error) {
	file, err := exec.CommandContext(context.Background(), "go", "env", "GOMOD").Output()
	return filepath.Dir(string(file)), err
}

// Flags returns -race if the go command has built these tests with it, and else nothing. Of other options it knows
// nothing. Packages that a test builds with the same options are compiled already.
func Flags() []string {
	info, ok := debug.ReadBuildInfo()
	if ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return []string{"-race"}
	}
	return nil
}
