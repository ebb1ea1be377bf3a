package dbtest

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// keep starts a command on a thread of its own and waits for it to end.
func keep(cmd *exec.Cmd, started chan<- error, ended chan<- struct{}) {
	runtime.LockOSThread()
	err := cmd.Start()
	started <- err
	if err == nil {
		_ = cmd.Wait()
	}
	close(ended)
}

// reap stops the server when this process is interrupted. A test process has
// no hook for its ordinary end: the server then dies by its death signal, and
// the next one removes its files.
func reap(s *Server) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		s.Stop()
		os.Exit(130)
	}()
}

// sweepLeftovers removes the files of servers whose process is gone. They are
// recognised by their lock file's absence of a living owner.
func sweepLeftovers() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "headgate-postgres-*"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		pid, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
		if first, _, _ := strings.Cut(string(pid), "\n"); err != nil || !alive(first) {
			_ = os.RemoveAll(dir)
		}
	}
}

func alive(pid string) bool {
	_, err := os.Stat("/proc/" + pid)
	return pid != "" && err == nil
}
