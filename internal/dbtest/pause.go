package dbtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Pause stops all processes of a server that was started here, without ending them, as a machine that stands
// still does; Resume lets them go on.
func (s *Server) Pause() { s.current().signal(syscall.SIGSTOP) }

// Resume lets a server go on that was paused.
func (s *Server) Resume() { s.current().signal(syscall.SIGCONT) }

// signal sends a signal to a process and to all that it has started.
func (p *process) signal(sig syscall.Signal) {
	for _, pid := range family(p.cmd.Process.Pid) {
		_ = syscall.Kill(pid, sig)
	}
}

// kill kills a process and all that it has started, and waits until they are gone: what they share, such as the memory
// of a PostgreSQL, is free then.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGSTOP) // it starts no more
	pids := family(p.cmd.Process.Pid)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	p.end(syscall.SIGKILL)
	for begin := time.Now(); time.Since(begin) < 10*time.Second && slices.ContainsFunc(pids, alive); {
		time.Sleep(time.Millisecond)
	}
}

// alive reports whether there is a process that has not ended.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}

// family returns a process and those that it has started, and they, the first one first.
func family(pid int) []int {
	list := []int{pid}
	children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range children {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		for word := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				list = append(list, family(child)...)
			}
		}
	}
	return list
}
