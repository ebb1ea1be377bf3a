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

// tunnel forwards connections to a store.
type tunnel struct {
	url      string       // URL of the store through the tunnel
	accepted atomic.Int64 // number of connections
	silent   atomic.Bool  // drop all bytes and end no connection
}

// newTunnel opens a tunnel to the store of a URL.
func newTunnel(t *testing.T, to string) *tunnel {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	host := u.Host
	u.Host = l.Addr().String()
	n := &tunnel{url: u.String()}
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
			got, err := from.Read(buf)
			if !n.silent.Load() {
				_, _ = to.Write(buf[:got])
			}
			if err != nil && !n.silent.Load() {
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
			n.accepted.Add(1)
			d, err := net.Dial("tcp", host)
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
	return n
}

// TestAServerStopsAlthoughItsStoreIsSilent: if the packets of a store get lost, neither requests nor connections to it
// end by themselves soon.
func TestAServerStopsAlthoughItsStoreIsSilent(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]string{
		"PostgreSQL": migrated.Postgres(t), "MariaDB": migrated.MariaDB(t), "Redis": dbtest.Redis(t),
	} {
		t.Run(name, func(t *testing.T) {
			link := newTunnel(t, dsn)
			s := startReady(t, t.TempDir(), "--store", link.url, "--deadline", "500ms")
			link.silent.Store(true)
			var asking sync.WaitGroup
			for i := range 10 {
				asking.Go(func() {
					body := `{"limit":"token-bucket 5/1h","key":"` + strings.Repeat("k", i) + `"}`
					d, status, err := s.take(http.DefaultClient, body)
					if errors.Is(err, syscall.ECONNREFUSED) { // it came after the stop
						return
					}
					if err != nil || status < 500 || d.Allowed {
						t.Errorf("a request under way: status %d, %+v, %v", status, d, err)
					}
				})
			}
			s.waitReady(t, http.StatusServiceUnavailable)
			s.stop(t)
			asking.Wait()
		})
	}
}

// TestASignalWhileAStoreIsOpenedHasItsExitCode: run exits with another code than after an error.
func TestASignalWhileAStoreIsOpenedHasItsExitCode(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"postgres", "mysql", "redis"} {
		l, err := net.Listen("tcp", "127.0.0.1:0") // a new one: the command before may have connected more than once
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
			t.Errorf("%s: code %d", scheme, code)
		}
	}
}
