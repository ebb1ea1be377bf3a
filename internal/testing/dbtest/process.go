package dbtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

type Server struct {
	DSN  string // names a database or keyspace that exists from the start
	stop func() // nil: the server is from the environment

	faults     *os.File // control file of the fault library; nil: the server was started without Config.Faults
	launch     func(context.Context) *process
	stopSignal syscall.Signal

	mu      sync.Mutex
	process *process // guarded by mu
}

// start starts a server. describe returns its DSN and how to launch it, for the server's own folder and a port.
func (c *Config) start(ctx context.Context, kind, user string, describe func(f *folder, port int) *Server) *Server {
	f := c.folder(kind, user)
	defer onFailure(f.remove)
	s := describe(f, freePort(loopback))
	s.process, s.faults = s.launch(ctx), f.faults
	s.stop = sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.process.end(s.stopSignal)
		f.remove()
	})
	return s
}

// Crash kills all processes of a server that this process started. Its files stay.
func (s *Server) Crash() { s.current().kill() }

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// Ended reports whether a server that this process started has ended, by itself or by Crash.
func (s *Server) Ended() bool {
	select {
	case <-s.current().ended:
		return true
	default:
		return false
	}
}

// Restart starts a server that has crashed, at the same address.
func (s *Server) Restart(ctx context.Context) (err error) {
	defer returnFailure(&err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = s.launch(ctx)
	return nil
}

// Stop ends a server that this process started, and removes its files. A server from the environment goes on. Stopping
// twice is harmless.
func (s *Server) Stop() {
	if s.stop != nil {
		s.stop()
	}
}

// process is a server that runs. A test process has no hook for its end, nor for an interrupt: its servers then die by
// their death signal, and the next process removes their files.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
	log   string        // the file of its output
}

// lastLines returns the last lines of the output that contain a text.
func (p *process) lastLines(text string) string {
	output, _ := os.ReadFile(p.log)
	var lines []string
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return tail(strings.Join(lines, ""), 30)
}

// launch starts a server and waits until ping succeeds. The context bounds the wait, not the life of the server.
func (f *folder) launch(ctx context.Context, cmd *exec.Cmd, maxWait time.Duration, ping func() error) *process {
	check(ctx.Err()) // otherwise a server that starts quickly would answer before the context is looked at
	log := must(os.CreateTemp(f.path, "log-"))
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	p := &process{cmd: cmd, ended: make(chan struct{}), log: log.Name()}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	started := make(chan error)
	// A child gets its death signal when the thread that started it ends, not the process: keep that thread for as long
	// as the server runs. The thread is unlocked then, since it may have started other children too.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(p.ended)
		giveUp(fmt.Errorf("it has ended: %s", cmd.ProcessState))
	}()
	check(<-started)
	if err := waitFor(ctx, maxWait, ping); err != nil {
		p.end(syscall.SIGKILL)
		check(fmt.Errorf("%s does not answer: %w\n%s", filepath.Base(cmd.Path), err, p.lastLines("")))
	}
	return p
}

// end sends a signal and waits for the process to end. After ten seconds it kills the process.
func (p *process) end(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// waitFor calls attempt until it returns no error, for maxWait at most, or until the context ends.
func waitFor(ctx context.Context, maxWait time.Duration, attempt func() error) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	for ; ; time.Sleep(20 * time.Millisecond) {
		err := attempt()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

func tail(s string, lines int) string {
	list := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(list[max(0, len(list)-lines):], "\n")
}

// Pause stops all processes of a server that this process started, as when its machine stands still. Resume lets them
// go on.
func (s *Server) Pause() { s.current().signal(syscall.SIGSTOP) }

func (s *Server) Resume() { s.current().signal(syscall.SIGCONT) }

// signal sends a signal to a process and to all its descendants.
func (p *process) signal(sig syscall.Signal) {
	for _, r := range Family(p.cmd.Process.Pid) {
		_ = syscall.Kill(r.ID, sig)
	}
}

// kill kills a process and all its descendants, and waits until they have ended: then their shared resources are free,
// such as the memory of a PostgreSQL.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGSTOP) // it starts no more
	family := Family(p.cmd.Process.Pid)
	for _, r := range family {
		_ = syscall.Kill(r.ID, syscall.SIGKILL)
	}
	p.end(syscall.SIGKILL)
	for begin := time.Now(); time.Since(begin) < 10*time.Second && slices.ContainsFunc(family, Relative.alive); {
		time.Sleep(time.Millisecond)
	}
}

// Relative is a process of a family.
type Relative struct {
	ID   int
	Stat []string // the fields in /proc, from the state on; nil: there are none
}

func (r Relative) alive() bool {
	stat := statOf(fmt.Sprintf("/proc/%d/stat", r.ID))
	return stat != nil && stat[0] != "Z"
}

// statOf returns the fields of a stat file in /proc after the name, which stands in parentheses and may contain spaces.
func statOf(file string) []string {
	text, _ := os.ReadFile(file) // the file is gone once the process has ended
	_, rest, _ := strings.Cut(string(text), ") ")
	if fields := strings.Fields(rest); len(fields) > 15 {
		return fields
	}
	return nil
}

// Family returns a process and its descendants. The process itself comes first.
func Family(pid int) []Relative {
	children := map[string][]Relative{} // by the ids of their parents
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		id, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if stat := statOf(file); stat != nil {
			children[stat[1]] = append(children[stat[1]], Relative{id, stat})
		}
	}
	list := []Relative{{ID: pid}}
	for i := 0; i < len(list); i++ {
		list = append(list, children[strconv.Itoa(list[i].ID)]...)
	}
	return list
}
