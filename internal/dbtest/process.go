package dbtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Server is a running database server.
type Server struct {
	DSN  string // of a database or keyspace that is there from the start
	stop func()
}

// Stop ends a server that was started here and removes its files. A server
// from the environment goes on.
func (s *Server) Stop() {
	if s.stop != nil {
		s.stop()
	}
}

// folder makes a folder for a server, owned by whom it is to run as.
func folder(kind string, owner *syscall.Credential) (string, error) {
	sweepLeftovers()
	dir, err := os.MkdirTemp("", "headgate-"+kind+"-")
	if err != nil {
		return "", err
	}
	if owner != nil {
		if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
			os.RemoveAll(dir)
			return "", err
		}
	}
	return dir, nil
}

// command returns a command as the owner of a folder, which dies with us.
func command(ctx context.Context, dir string, owner *syscall.Credential, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TZ=UTC", "HOME="+dir)
	return cmd
}

// process is a server's process.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	log   string
}

// launch starts a server and waits until ping is content with it.
func launch(cmd *exec.Cmd, patience time.Duration, ping func() error) (*process, error) {
	log, err := os.CreateTemp(cmd.Dir, "log-")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	p := &process{cmd: cmd, ended: make(chan struct{}), log: log.Name()}
	started := make(chan error)
	// The death signal of a child follows the thread that started it: keep
	// that thread for as long as the server runs.
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	_ = os.WriteFile(filepath.Join(cmd.Dir, pidFile), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if err = ping(); err == nil {
			return p, nil
		}
		select {
		case <-p.ended:
		default:
			if time.Now().Before(deadline) {
				continue
			}
		}
		text, _ := os.ReadFile(p.log)
		p.end(syscall.SIGKILL)
		return nil, fmt.Errorf("%s does not answer: %w\n%s", filepath.Base(cmd.Path), err, tail(string(text), 30))
	}
}

// end sends a signal and waits for the process to end, which a signal that
// asks politely may take too long to bring about.
func (p *process) end(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// running are the servers to be stopped when this process is interrupted. A
// test process has no hook for its ordinary end: its servers then die by their
// death signal, and the next process removes their files.
var running struct {
	sync.Mutex
	once  sync.Once
	stops []func()
}

// stopper returns a function that stops a server once, now or when this
// process is interrupted.
func stopper(stop func()) func() {
	stop = sync.OnceFunc(stop)
	running.Lock()
	running.stops = append(running.stops, stop)
	running.Unlock()
	running.once.Do(func() {
		interrupted := make(chan os.Signal, 1)
		signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
		go func() {
			<-interrupted
			running.Lock()
			for _, stop := range running.stops {
				stop()
			}
			os.Exit(130)
		}()
	})
	return stop
}

const pidFile = "headgate.pid"

// sweepLeftovers removes the files of servers whose process is gone.
func sweepLeftovers() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "headgate-*-*"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if pid, err := os.ReadFile(filepath.Join(dir, pidFile)); err == nil && !alive(string(pid)) {
			_ = os.RemoveAll(dir)
		}
	}
}

func alive(pid string) bool {
	_, err := os.Stat("/proc/" + pid)
	return pid != "" && err == nil
}

// unprivileged returns whom to run a server as: nil for the present user, who
// must not be root.
func unprivileged(names ...string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range append(names, "nobody") {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("database servers do not run as root, and there is no user to run them as")
}

// freePort returns a port that nobody listens on at an address of loopback.
func freePort(host string) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", host+":0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
