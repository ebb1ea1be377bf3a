// Package rivals starts and calls other rate limiting servers.
package rivals

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/testing/dbtest"
)

// program is a server that the go command builds from its module, which no go.mod of ours requires. The user's cache
// keeps it.
type program struct{ module, version, command string }

// build returns the path of the program's file.
func (p program) build(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "headgate-bench", filepath.Base(p.command)+"@"+p.version)
	file := filepath.Join(dir, filepath.Base(p.command))
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	text := fmt.Sprintf("module rival\n\ngo 1.26.0\n\nrequire %s %s\n", p.module, p.version)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o644); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=mod", "-o", file, p.command)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s@%s: %w: %s", p.command, p.version, err, lastLine(out))
	}
	return file, nil
}

// StartHeadgate builds headgate and serves the memory store. It appends an address to args.
func StartHeadgate(ctx context.Context, args ...string) (addr string, stop func(), err error) {
	home, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/headgate/headgate").Output()
	if err != nil {
		return "", nil, fmt.Errorf("find the module: %w", err)
	}
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return "", nil, err
	}
	file := filepath.Join(dir, "headgate")
	build := exec.CommandContext(ctx, "go", "build", "-o", file, "./cmd/headgate")
	build.Dir = strings.TrimSpace(string(home))
	var end func()
	if out, errBuild := build.CombinedOutput(); errBuild != nil {
		err = fmt.Errorf("build headgate: %w: %s", errBuild, out)
	} else if addr, err = freeAddr(ctx); err == nil {
		end, err = start(ctx, file, addr, append(append([]string{"serve", "--store", "memory:"}, args...), addr))
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	return addr, func() { end(); os.RemoveAll(dir) }, nil
}

// start returns when the program accepts connections at addr. The program ends with stop, or with this process.
func start(ctx context.Context, file, addr string, args []string, env ...string) (stop func(), err error) {
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
		return nil, err
	}
	return s.Stop, nil
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// freeAddr returns an address of this machine at which nobody listens.
func freeAddr(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// tick is the unit of the CPU times in /proc: USER_HZ is 100 on every Linux.
const tick = 10 * time.Millisecond

// CPU returns the CPU time of all running descendants of this process; 0 where there is no /proc. A program that has
// ended counts with its parent.
func CPU() (sum time.Duration) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	parent, spent := map[int]int{}, map[int]time.Duration{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// The name, in parentheses, may contain spaces.
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || len(fields) < 15 {
			continue
		}
		parent[pid], _ = strconv.Atoi(fields[1])
		for _, f := range fields[11:15] { // utime, stime, and those of children that were waited for
			n, _ := strconv.ParseInt(f, 10, 64)
			spent[pid] += time.Duration(n) * tick
		}
	}
	for pid := range parent {
		for up := parent[pid]; up > 1; up = parent[up] {
			if up == os.Getpid() {
				sum += spent[pid]
				break
			}
		}
	}
	return sum
}
