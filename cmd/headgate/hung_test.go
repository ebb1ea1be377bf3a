package main

import (
	"errors"
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

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
)

// tunnel is a proxy that forwards connections to a store, and can fall silent.
type tunnel struct {
	url      string       // URL of the store through the tunnel
	accepted atomic.Int64 // number of connections
	silent   atomic.Bool  // it drops all bytes, and ends no connection
}

func newTunnel(t *testing.T, storeURL string) *tunnel {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(storeURL)
	if err != nil {
		t.Fatal(err)
	}
	host := u.Host
	u.Host = l.Addr().String()
	storeTunnel := &tunnel{url: u.String()}
	var mu sync.Mutex
	closers := []io.Closer{l}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range closers {
			c.Close()
		}
	})
	forward := func(from, to net.Conn) {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if !storeTunnel.silent.Load() {
				_, _ = to.Write(buf[:n])
			}
			if err != nil && !storeTunnel.silent.Load() {
				to.Close()
			}
			if err != nil {
				return
			}
		}
	}
	go func() {
		for {
			downstream, err := l.Accept()
			if err != nil {
				return
			}
			storeTunnel.accepted.Add(1)
			upstream, err := net.Dial("tcp", host)
			if err != nil {
				downstream.Close()
				continue
			}
			mu.Lock()
			closers = append(closers, downstream, upstream)
			mu.Unlock()
			go forward(downstream, upstream)
			go forward(upstream, downstream)
		}
	}()
	return storeTunnel
}

// TestServeStopsWhileTheStoreIsSilent checks that a server stops although its calls and connections to the store hang.
func TestServeStopsWhileTheStoreIsSilent(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]string{
		"PostgreSQL": migrated.Postgres(t), "MariaDB": migrated.MariaDB(t), "Redis": dbtest.Redis(t),
	} {
		t.Run(name, func(t *testing.T) {
			storeTunnel := newTunnel(t, dsn)
			s := startReady(t, t.TempDir(), "--store", storeTunnel.url, "--deadline", "500ms")
			storeTunnel.silent.Store(true)
			var callers sync.WaitGroup
			for i := range 10 {
				callers.Go(func() {
					body := `{"limit":"token-bucket 5/1h","key":"` + strings.Repeat("k", i) + `"}`
					d, status, err := s.take(http.DefaultClient, body)
					if errors.Is(err, syscall.ECONNREFUSED) { // the server had stopped before the request
						return
					}
					if err != nil || status < 500 || d.Allowed {
						t.Errorf("a request under way: status %d, %+v, %v", status, d, err)
					}
				})
			}
			s.waitReady(t, http.StatusServiceUnavailable)
			s.stop(t)
			callers.Wait()
		})
	}
}

// TestSignalWhileOpeningTheStoreSetsTheExitCode checks that headgate run exits with 128+15 after SIGTERM.
func TestSignalWhileOpeningTheStoreSetsTheExitCode(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"postgres", "mysql", "redis"} {
		l, err := net.Listen("tcp", "127.0.0.1:0") // one for each command: a command may connect more than once
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		cmd := exec.Command(program, "run", "--limit", "token-bucket 5/s", "--key", "k", "--store",
			scheme+"://"+l.Addr().String()+"/0", "--", "true")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept() // the command opens its store
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGTERM) {
			t.Errorf("%s: got code %d, want %d", scheme, code, 128+int(syscall.SIGTERM))
		}
	}
}
