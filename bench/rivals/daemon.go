package rivals

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// program is a rival that is a server: built by the go command from its
// module, which no go.mod of ours needs to know, and kept in the user's cache.
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
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return "", fmt.Errorf("build %s@%s: %w: %s", p.command, p.version, err, lines[len(lines)-1])
	}
	return file, nil
}

// start starts the program, and returns when it answers at an address.
func (p program) start(ctx context.Context, addr string, args []string, env ...string) (stop func(), err error) {
	file, err := p.build(ctx)
	if err != nil {
		return nil, err
	}
	log, err := os.CreateTemp("", "headgate-bench-")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), file, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended, started := make(chan struct{}), make(chan error)
	go func() { // the death signal comes when the thread ends that started it
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		<-ended
		log.Close()
		os.Remove(log.Name())
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return stop, conn.Close()
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			stop()
			return nil, fmt.Errorf("%s has ended: %s", filepath.Base(file), lastLine(text))
		default:
		}
	}
	stop()
	return nil, errors.New(filepath.Base(file) + " does not answer")
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
