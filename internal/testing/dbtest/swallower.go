package dbtest

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Swallower is a proxy in front of a server. It can lose answers, be silent, or cut all connections. It loses an answer
// by cutting the connection when the answer has come from the server: to the client it looks as if the network broke
// after its statement was done.
type Swallower struct {
	Addr   string // host:port to connect to
	marker []byte // only requests with it are silenced, and only answers to them lost; empty: all
	lose   atomic.Bool
	silent atomic.Bool
	cut    atomic.Bool

	mu   sync.Mutex
	open map[net.Conn]struct{}
}

// Swallow starts a proxy in front of a server until the test ends. With a marker, only requests that contain it are
// silenced, and only answers after such a request are lost.
func Swallow(tb testing.TB, target string, marker ...string) *Swallower {
	tb.Helper()
	defer failTest(tb)
	l := must((&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0"))
	s := &Swallower{Addr: l.Addr().String(), open: map[net.Conn]struct{}{}, marker: []byte(strings.Join(marker, ""))}
	tb.Cleanup(func() {
		_ = l.Close()
		s.Cut(true)
	})
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			if s.register(client, server) {
				sent := &atomic.Bool{}
				go s.relay(client, server, sent, false)
				go s.relay(server, client, sent, true)
			}
		}
	}()
	return s
}

// Lose sets whether answers get lost from now on.
func (s *Swallower) Lose(lose bool) { s.lose.Store(lose) }

// Silence sets whether the proxy holds back all data from now on, in both directions. The data arrive when it ends, as
// from a server that was stopped for a while.
func (s *Swallower) Silence(silent bool) { s.silent.Store(silent) }

// Cut sets whether all connections are closed from now on, open and new ones.
func (s *Swallower) Cut(cut bool) {
	s.cut.Store(cut)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		if cut {
			_ = c.Close()
		}
	}
}

// register notes the two ends of a connection, and reports whether the connection may stay open.
func (s *Swallower) register(ends ...net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range ends {
		s.open[c] = struct{}{}
		if s.cut.Load() {
			_ = c.Close()
		}
	}
	return !s.cut.Load()
}

// relay copies data from one end to the other until the first one is closed. sent is set when a request with the marker
// was sent while answers get lost.
func (s *Swallower) relay(from, to net.Conn, sent *atomic.Bool, answers bool) {
	defer func() {
		_ = to.Close()
		s.mu.Lock()
		delete(s.open, from)
		s.mu.Unlock()
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		switch {
		case !s.lose.Load():
		case answers && sent.Load():
			return // the answer is lost
		case !answers && bytes.Contains(buf[:n], s.marker):
			sent.Store(true)
		}
		silenced := len(s.marker) == 0 || !answers && bytes.Contains(buf[:n], s.marker)
		for silenced && s.silent.Load() && !s.cut.Load() {
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
