// Package rivals starts and calls other rate limiting servers.
package rivals

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/testing/dbtest"
)

// program returns the path of a command, which the go command builds once into the user's cache. No go.mod of this
// project requires its module.
func program(ctx context.Context, command, version string) (file string, err error) {
	file, err = cachePath(path.Base(command)+"@"+version, path.Base(command))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	return file, install(ctx, file, "", command+"@"+version)
}

// cachePath returns the path of a file in a folder of the user's cache, and makes the folder.
func cachePath(folder, name string) (file string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	folder = filepath.Join(cache, "headgate-bench", folder)
	return filepath.Join(folder, name), os.MkdirAll(folder, 0o755)
}

// install builds a command into a file, at the version in its path, or without one by the module in the folder.
func install(ctx context.Context, file, folder, command string) error {
	cmd := exec.CommandContext(ctx, "go", "install", command)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOBIN="+filepath.Dir(file))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go install %s: %w: %s", command, err, LastLine(out))
	}
	return nil
}

// StartHeadgate builds headgate and serves the memory store. It appends the address to listen at to args.
func StartHeadgate(ctx context.Context, args ...string) (addr string, stop func(), err error) {
	file, err := cachePath("headgate", "headgate")
	if err != nil {
		return "", nil, err
	}
	if err := install(ctx, file, "..", "./cmd/headgate"); err != nil {
		return "", nil, err
	}
	return start(ctx, file, func(addr string) ([]string, []string) {
		return slices.Concat([]string{"serve", "--store", "memory:"}, args, []string{addr}), nil
	})
}

// Server is a running rate limiting server.
type Server struct {
	// Allow makes one decision for each key (by Envoy's protocol for the first), and reports whether all may pass.
	Allow func(ctx context.Context, keys ...string) (bool, error)

	conns *conns
	stop  func()
}

// connect connects to a server, and stops it if it does not answer within some seconds.
func connect(ctx context.Context, addr string, stop func(),
	allow func(*conns, context.Context, ...string) (bool, error),
) (s *Server, err error) {
	s = &Server{stop: stop}
	if s.conns, err = dial(addr); err != nil {
		stop()
		return nil, err
	}
	s.Allow = func(ctx context.Context, keys ...string) (bool, error) { return allow(s.conns, ctx, keys...) }
	// A server may listen before it has read its limits, or has found itself as its own peer.
	for try := 0; ; try++ {
		if _, err = s.Allow(ctx, "ready"); err == nil {
			return s, nil
		}
		if try == 50 {
			s.Close()
			return nil, fmt.Errorf("the server does not answer: %w", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *Server) Close() {
	for _, conn := range s.conns.list {
		_ = conn.Close()
	}
	s.stop()
}

// start starts a program that listens at a free address. configure returns its arguments and further environment
// variables. start returns when the program accepts connections. The program ends with stop, or with this process.
func start(ctx context.Context, file string, configure func(addr string) (args, env []string)) (
	addr string, stop func(), err error,
) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = l.Addr().String()
	l.Close()
	args, env := configure(addr)
	s, err := dbtest.Launch(ctx, func() *exec.Cmd {
		cmd := exec.CommandContext(context.WithoutCancel(ctx), file, args...)
		cmd.Env = append(os.Environ(), env...)
		return cmd
	}, func() error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err != nil {
		return "", nil, err
	}
	return addr, s.Stop, nil
}

// LastLine returns the last line of the output of a program.
func LastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// tick is the unit of the CPU times in /proc: USER_HZ is 100 on every Linux.
const tick = 10 * time.Millisecond

// CPU returns the CPU time of all running descendants of this process; 0 where there is no /proc. A program that has
// ended counts with its parent.
func CPU() (sum time.Duration) {
	for _, r := range dbtest.Family(os.Getpid())[1:] {
		for _, f := range r.Stat[11:15] { // utime, stime, and those of children that were waited for
			n, _ := strconv.ParseInt(f, 10, 64)
			sum += time.Duration(n) * tick
		}
	}
	return sum
}
