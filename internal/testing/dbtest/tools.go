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

// Program returns the path of a program. If it is missing, the distribution's packages are installed; the test fails if
// they cannot be.
func Program(tb testing.TB, name string, packages ...string) string {
	tb.Helper()
	defer failTest(tb)
	return program(name, "", packages...)
}

// InstalledPath returns the path of a file or folder. If it is missing, the distribution's packages are installed; the
// test fails if they cannot be.
func InstalledPath(tb testing.TB, path string, packages ...string) string {
	tb.Helper()
	defer failTest(tb)
	return findOrInstall(pathFinder(path), path, "", packages...)
}

// pathFinder returns a function that returns the path if it exists, or else "".
func pathFinder(path string) func() string {
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
	defer failTest(tb)
	return freePort(loopback)
}

// Listen listens on a TCP address until the test ends. It retries while the address is in use: a child process inherits
// open sockets between fork and exec, so a socket that was just closed here may live on. A connection of another
// program may hold the port for a while, too.
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

// NodeModules returns the folder node_modules with the packages that package-lock.json in a folder names. They are
// fetched from npm once, and kept in the cache folder. No script of a package runs.
func NodeModules(tb testing.TB, dir string) string {
	tb.Helper()
	defer failTest(tb)
	npm := program("npm", "", "npm")
	files, hash := map[string][]byte{}, sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		files[name] = must(os.ReadFile(filepath.Join(dir, name)))
		hash.Write(files[name])
	}
	const modules = "node_modules"
	kept := fetchOnce(fmt.Sprintf("node-%x", hash.Sum(nil)[:8]), modules, func(work string) string {
		for name, text := range files {
			check(os.WriteFile(filepath.Join(work, name), text, 0o600))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		run(ctx, work, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		return work
	})
	return filepath.Join(kept, modules)
}

// Start starts a program that keeps no files, and waits until ping succeeds. The program is killed when the test ends.
// command makes a command for each start and restart.
func Start(tb testing.TB, command func() *exec.Cmd, ping func() error) *Server {
	tb.Helper()
	defer failTest(tb)
	s := must(Launch(tb.Context(), command, ping))
	tb.Cleanup(s.Stop)
	return s
}

// Launch starts a program and waits until ping succeeds. The program dies by Stop, or with this process.
func Launch(ctx context.Context, command func() *exec.Cmd, ping func() error) (s *Server, err error) {
	defer returnFailure(&err)
	return new(Config).start(ctx, "program", "nobody", func(f *folder, _ int) *Server {
		return &Server{stopSignal: syscall.SIGKILL, launch: func(ctx context.Context) *process {
			cmd := command()
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			return f.launch(ctx, cmd, time.Minute, ping)
		}}
	}), nil
}

// program returns the path of an installed program, after installing the distribution's packages if it is missing. env
// is the environment variable that can name a server instead; empty if there is none.
func program(name, env string, packages ...string) string {
	find := func() string {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
		if path := filepath.Join("/usr/sbin", name); isExecutable(path) {
			return path
		}
		return ""
	}
	return findOrInstall(find, name, env, packages...)
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}

// findOrInstall returns the path that find finds, before or after packages are installed.
func findOrInstall(find func() string, name, env string, packages ...string) string {
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
		check(missing)
	}
	// If several test processes need packages at once, one installs them and the others wait. The script keeps the
	// packages from creating and starting servers.
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
		check(fmt.Errorf("%w; installing it failed: %w\n%s", missing, err, tail(string(out), 20)))
	}
	path := find()
	if path == "" {
		check(missing)
	}
	return path
}
