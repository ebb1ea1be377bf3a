package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// lockCache returns the cache folder, for downloads, and locks it against other processes until unlock is called. The
// folder belongs to the user: in a folder that others can write to, they could plant a server. For root it is not the
// home folder, since servers do not run as root and could not read it.
func lockCache() (dir string, unlock func()) {
	dir = "/var/cache"
	if os.Getuid() != 0 {
		dir = must(os.UserCacheDir())
	}
	dir = filepath.Join(dir, "headgate-dbtest")
	check(os.MkdirAll(dir, 0o755))
	lock := openAndLock(filepath.Join(dir, "lock"))
	return dir, func() { lock.Close() }
}

// openAndLock opens a file and locks it against other processes until it is closed.
func openAndLock(path string) *os.File {
	file := must(os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600))
	check(syscall.Flock(int(file.Fd()), syscall.LOCK_EX))
	return file
}

// fetchOnce returns the path of a file or folder in the cache folder, which is complete if it contains the path marker.
// Otherwise fetch makes the file or folder in work, which is removed afterwards, and returns its path there.
func fetchOnce(name, marker string, fetch func(work string) string) string {
	cache, unlock := lockCache()
	defer unlock()
	cached := filepath.Join(cache, name)
	if _, err := os.Stat(filepath.Join(cached, marker)); err == nil {
		return cached
	}
	work := must(os.MkdirTemp(cache, "fetch-"))
	defer os.RemoveAll(work)
	newPath := fetch(work)
	check(os.RemoveAll(cached))
	check(os.Rename(newPath, cached))
	return cached
}

// run runs a command in a folder, without the go flags of the test, and returns its output.
func run(ctx context.Context, dir, name string, args ...string) []byte {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), args[0], err, tail(string(exit.Stderr), 20))
	}
	return must(out, err)
}
