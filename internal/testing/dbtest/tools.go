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
	"strings"
	"syscall"
	"testing"
	"time"
)

// Program returns the path of a program, which the distribution's packages bring if
// it is not there. The test fails where they cannot be installed.
func Program(tb testing.TB, name string, packages ...string) string {
	tb.Helper()
	defer fatal(tb)
	return program(name, "", packages...)
}

// Installed returns the path of a file or folder, which the distribution's packages
// bring if it is not there. The test fails where they cannot be installed.
func Installed(tb testing.TB, path string, packages ...string) string {
	tb.Helper()
	defer fatal(tb)
	return orInstall(existing(path), path, "", packages...)
}

func existing(path string) func() string {
	return func() string {
		if _, err := os.Stat(path); err != nil {
			return ""
		}
		return path
	}
}

// FreePort returns a port of 127.0.0.1 that no other test takes.
func FreePort(tb testing.TB) int {
	tb.Helper()
	defer fatal(tb)
	return freePort(loopback)
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
	defer fatal(tb)
	npm := program("npm", "", "npm")
	files, hash := map[string][]byte{}, sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		files[name] = get(os.ReadFile(filepath.Join(dir, name)))
		hash.Write(files[name])
	}
	const modules = "node_modules"
	kept := cached(fmt.Sprintf("node-%x", hash.Sum(nil)[:8]), modules, func(work string) string {
		for name, text := range files {
			do(os.WriteFile(filepath.Join(work, name), text, 0o600))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		run(ctx, work, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		return work
	})
	return filepath.Join(kept, modules)
}

// Start starts a program that keeps nothing, and waits until ping succeeds with
// it. It is killed when the test ends. Each start is of a command of its own.
func Start(tb testing.TB, command func() *exec.Cmd, ping func() error) *Server {
	tb.Helper()
	defer fatal(tb)
	s := get(Launch(tb.Context(), command, ping))
	tb.Cleanup(s.Stop)
	return s
}

// Launch starts a program and waits until ping succeeds. Stop kills it; else it dies with this process.
func Launch(ctx context.Context, command func() *exec.Cmd, ping func() error) (s *Server, err error) {
	defer rescue(&err)
	return new(Config).start(ctx, "program", "nobody", func(f *folder, _ int) *Server {
		return &Server{polite: syscall.SIGKILL, launch: func(ctx context.Context) *process {
			cmd := command()
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			return f.launch(ctx, cmd, time.Minute, ping)
		}}
	}), nil
}

// program returns the path of an installed program, after installing the
// distribution's packages if need be and allowed. env is the environment
// variable by which a server can be named instead; empty if there is none.
func program(name, env string, packages ...string) string {
	find := func() string {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
		if path := filepath.Join("/usr/sbin", name); executable(path) {
			return path
		}
		return ""
	}
	return orInstall(find, name, env, packages...)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}

// orInstall returns what find finds, before or after installing packages.
func orInstall(find func() string, name, env string, packages ...string) string {
	if path := find(); path != "" {
		return path
	}
	missing := fmt.Errorf("%s is not installed: install it (Debian: apt-get install %s)", name,
		strings.Join(packages, " "))
	if env != "" {
		missing = fmt.Errorf("%w or set %s", missing, env)
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Getuid() != 0 {
		do(missing)
	}
	// Several test processes want it at once: one installs, the others wait
	// for it. The distribution's own servers are neither made nor started.
	const script = `mkdir -p /etc/postgresql-common
conf=/etc/postgresql-common/createcluster.conf
[ -e $conf ] || echo 'create_main_cluster = false' > $conf
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then printf '#!/bin/sh\nexit 101\n' > $policy; chmod +x $policy; trap "rm -f $policy" EXIT; fi
apt=$1; shift
dpkg-query -W -f '${Status}\n' "$@" 2>/dev/null | grep -c '^install ok installed' | grep -qx $# && exit 0
$apt update -q && $apt -o DPkg::Lock::Timeout=300 install -yq --no-install-recommends "$@"`
	lock := filepath.Join(os.TempDir(), "headgate-dbtest.lock")
	cmd := exec.CommandContext(context.Background(), "flock",
		append([]string{lock, "sh", "-c", script, "sh", apt}, packages...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		do(fmt.Errorf("%w; installing it failed: %w\n%s", missing, err, tail(string(out), 20)))
	}
	path := find()
	if path == "" {
		do(missing)
	}
	return path
}
