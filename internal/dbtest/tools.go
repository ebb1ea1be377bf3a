package dbtest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Program returns the path of a program, which the distribution's packages bring if
// it is not there. The test fails where they cannot be installed.
func Program(tb testing.TB, name string, packages ...string) string {
	tb.Helper()
	path, err := program(name, "", packages...)
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	return path
}

// Installed returns the path of a file or folder, which the distribution's packages
// bring if it is not there. The test fails where they cannot be installed.
func Installed(tb testing.TB, path string, packages ...string) string {
	tb.Helper()
	_, err := orInstall(func() string {
		if _, err := os.Stat(path); err != nil {
			return ""
		}
		return path
	}, path, "", packages...)
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	return path
}

// FreePort returns a port of 127.0.0.1 that no other test takes.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, err := freePort("127.0.0.1")
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	return port
}

// Listen listens on a TCP address until the test ends. It retries while the address
// is in use: a child process inherits open sockets between fork and exec, so a socket
// that was just closed here may live on, and a connection of another program may
// hold the port for a while.
func Listen(tb testing.TB, addr string) net.Listener {
	tb.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", addr)
		if err == nil {
			tb.Cleanup(func() { l.Close() })
			return l
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			tb.Fatalf("dbtest: %v", err)
		}
	}
}

// NodeModules returns the folder node_modules of what a package-lock.json in a folder
// names. It is fetched from npm once, and kept in the cache folder; no script of a
// package runs.
func NodeModules(tb testing.TB, dir string) string {
	tb.Helper()
	path, err := nodeModules(dir)
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	return path
}

func nodeModules(dir string) (string, error) {
	npm, err := program("npm", "", "npm")
	if err != nil {
		return "", err
	}
	files := map[string][]byte{"package.json": nil, "package-lock.json": nil}
	hash := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		files[name] = text
		hash.Write(text)
	}
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	unlock, err := lockFolder(cache)
	if err != nil {
		return "", err
	}
	defer unlock()
	kept := filepath.Join(cache, fmt.Sprintf("node-%x", hash.Sum(nil)[:8]))
	modules := filepath.Join(kept, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules, nil
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(work, name), text, 0o600); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	fetch := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	fetch.Dir = work
	if out, err := fetch.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, tail(string(out), 10))
	}
	_ = os.RemoveAll(kept) // what there is of it is incomplete
	return modules, os.Rename(work, kept)
}

// Start starts a program that serves something and keeps nothing, and waits until ping is content with
// it. It is killed when the test ends.
func Start(tb testing.TB, cmd *exec.Cmd, ping func() error) {
	tb.Helper()
	StartAgain(tb, func() *exec.Cmd { return cmd }, ping)
}

// StartAgain is [Start] for a program that the test breaks: each start is of a command of its own.
func StartAgain(tb testing.TB, command func() *exec.Cmd, ping func() error) *Server {
	tb.Helper()
	f := &folder{path: tb.TempDir()}
	s := &Server{polite: syscall.SIGKILL}
	err := s.run(tb.Context(), f, func(ctx context.Context) (*process, error) {
		cmd := command()
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return f.launch(ctx, cmd, time.Minute, ping)
	})
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	tb.Cleanup(s.Stop)
	return s
}
