package main

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/dbtest"
)

// tunnel passes connections on to an address, until it is silent: then nothing comes
// through any more, and nothing ends.
func tunnel(t *testing.T, to string) (addr string, silent *atomic.Bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent = new(atomic.Bool)
	var mu sync.Mutex
	open := []io.Closer{l}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			c.Close()
		}
	})
	pass := func(from, to net.Conn) {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if !silent.Load() {
				_, _ = to.Write(buf[:n])
			}
			if err != nil && !silent.Load() {
				to.Close()
			}
			if err != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			mu.Lock()
			open = append(open, c, d)
			mu.Unlock()
			go pass(c, d)
			go pass(d, c)
		}
	}()
	return l.Addr().String(), silent
}

// TestAServerStopsAlthoughItsStoreIsSilent: the packets of a store may get lost, and then
// neither requests nor connections to it end by themselves soon.
func TestAServerStopsAlthoughItsStoreIsSilent(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]string{
		"PostgreSQL": dbtest.Postgres(t), "MariaDB": dbtest.MariaDB(t),
		"Redis": dbtest.Redis(t),
	} {
		migrate(t, dsn)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most = deadline + closeWithin + 2*time.Second
			took := silence(t, dsn)
			for range 2 {
				if took > most { // the machine may have paused
					took = min(took, silence(t, dsn))
				}
			}
			t.Logf("it ended after %s", took)
			if took > most {
				t.Errorf("it ended after %s, want %s at most", took, most)
			}
		})
	}
}

// silence returns how long a server takes to end with requests under way to a silent store.
func silence(t *testing.T, dsn string) time.Duration {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	var silent *atomic.Bool
	u.Host, silent = tunnel(t, u.Host)
	s := startReady(t, t.TempDir(), "--store", u.String())
	silent.Store(true)
	var asking sync.WaitGroup
	for i := range 10 {
		asking.Go(func() {
			body := `{"limit":"token-bucket 5/1h","key":"` + strings.Repeat("k", i) + `"}`
			if d, status, err := s.take(http.DefaultClient, body); err != nil || status < 500 || d.Allowed {
				t.Errorf("a request under way: status %d, %+v, %v", status, d, err)
			}
		})
	}
	s.ready(t, http.StatusServiceUnavailable)
	begin := time.Now()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-s.over
	err = s.cmd.Wait()
	took := time.Since(begin)
	if err != nil {
		t.Errorf("%v; it said %s", err, s.out.String())
	}
	asking.Wait()
	return took
}

// deadline is that of a request.
const deadline = 10 * time.Second

// TestASignalWhileAStoreIsOpenedIsToldFromAFault by the exit code of run.
func TestASignalWhileAStoreIsOpenedIsToldFromAFault(t *testing.T) {
	t.Parallel()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"postgres", "mysql", "redis"} {
		l, err := net.Listen("tcp", "127.0.0.1:0") // of its own: the command before may have tried more than once
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		cmd := exec.Command(bin, "run", "--limit", "token-bucket 5/s", "--key", "k", "--store",
			scheme+"://"+l.Addr().String()+"/0", "--", "true")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept() // so it has begun
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGTERM) {
			t.Errorf("%s: code %d", scheme, code)
		}
	}
}
