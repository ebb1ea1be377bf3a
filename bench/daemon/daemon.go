// Package daemon starts servers that are programs of their own.
package daemon

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

// Build builds a program of the module in a folder; "" is the module of this program. remove removes its file.
func Build(ctx context.Context, module, command string) (file string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return "", nil, err
	}
	file = filepath.Join(dir, filepath.Base(command))
	build := exec.CommandContext(ctx, "go", "build", "-o", file, command)
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", nil, fmt.Errorf("build %s: %w: %s", command, err, out)
	}
	return file, func() { os.RemoveAll(dir) }, nil
}

// Start starts a program, and returns when it answers at an address. It ends
// with stop, or with this process.
func Start(ctx context.Context, file, addr string, args []string, env ...string) (stop func(), err error) {
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

// FreeAddr returns an address of this machine at which nobody listens.
func FreeAddr(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
