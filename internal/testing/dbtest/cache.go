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

// lockCache returns the folder for what is fetched once, in which no other process works until it is unlocked. It is
// the user's own: in a folder that others write to, they could plant a server. Servers do not run as root, so they
// could not read what is kept in root's home.
func lockCache() (dir string, unlock func()) {
	dir = "/var/cache"
	if os.Getuid() != 0 {
		dir = get(os.UserCacheDir())
	}
	dir = filepath.Join(dir, "headgate-dbtest")
	do(os.MkdirAll(dir, 0o755))
	lock := locked(filepath.Join(dir, "lock"))
	return dir, func() { lock.Close() }
}

// locked opens a file that no other process has open in this way, until it is closed.
func locked(path string) *os.File {
	file := get(os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600))
	do(syscall.Flock(int(file.Fd()), syscall.LOCK_EX))
	return file
}

// cached returns the path of what the cache folder has by a name. It is complete if has is there, which is a path
// within it. Otherwise make makes it in a folder that is removed afterwards, and returns its path there.
func cached(name, has string, make func(work string) string) string {
	cache, unlock := lockCache()
	defer unlock()
	kept := filepath.Join(cache, name)
	if _, err := os.Stat(filepath.Join(kept, has)); err == nil {
		return kept
	}
	work := get(os.MkdirTemp(cache, "fetch-"))
	defer os.RemoveAll(work)
	made := make(work)
	do(os.RemoveAll(kept))
	do(os.Rename(made, kept))
	return kept
}

// run runs a command in a folder, with no flags of the go command that are for tests, and returns what it prints.
func run(ctx context.Context, dir, name string, args ...string) []byte {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), args[0], err, tail(string(exit.Stderr), 20))
	}
	return get(out, err)
}
