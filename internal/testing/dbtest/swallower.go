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
// by cutting the connection when the answer has arrived from the server: for the client, the network breaks after its
// statement was done.
type Swallower struct {
	Addr         string // host:port to connect to
	marker       []byte // only requests with marker are silenced, and only their answers lost; empty: all
	losesAnswers atomic.Bool
	isSilent     atomic.Bool
	isCut        atomic.Bool

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// Swallow starts a proxy in front of a server until the test ends. With a marker, only requests that contain it are
// silenced, and only answers after such a request are lost.
func Swallow(tb testing.TB, target string, marker ...string) *Swallower {
	tb.Helper()
	defer failTest(tb)
	l := must((&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0"))
	s := &Swallower{
		Addr: l.Addr().String(), conns: map[net.Conn]struct{}{},
		marker: []byte(strings.Join(marker, "")),
	}
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
				markerSent := &atomic.Bool{}
				go s.relay(client, server, markerSent, false)
				go s.relay(server, client, markerSent, true)
			}
		}
	}()
	return s
}

// Lose sets whether answers get lost from now on.
func (s *Swallower) Lose(lose bool) { s.losesAnswers.Store(lose) }

// Silence sets whether the proxy holds back all data from now on, in both directions. The data arrive when it ends, as
// from a server that was stopped for a while.
func (s *Swallower) Silence(silent bool) { s.isSilent.Store(silent) }

// Cut sets whether all connections are closed from now on, open and new ones.
func (s *Swallower) Cut(cut bool) {
	s.isCut.Store(cut)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if cut {
			_ = c.Close()
		}
	}
}

// register records the two ends of a connection, and reports whether the connection may stay open.
func (s *Swallower) register(ends ...net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range ends {
		s.conns[c] = struct{}{}
		if s.isCut.Load() {
			_ = c.Close()
		}
	}
	return !s.isCut.Load()
}

// relay copies data from one end to the other until the first end is closed. It sets markerSent when a request with the
// marker was sent while answers get lost.
func (s *Swallower) relay(from, to net.Conn, markerSent *atomic.Bool, answers bool) {
	defer func() {
		_ = to.Close()
		s.mu.Lock()
		delete(s.conns, from)
		s.mu.Unlock()
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		switch {
		case !s.losesAnswers.Load():
		case answers && markerSent.Load():
			return // the answer is lost
		case !answers && bytes.Contains(buf[:n], s.marker):
			markerSent.Store(true)
		}
		silenced := len(s.marker) == 0 || !answers && bytes.Contains(buf[:n], s.marker)
		for silenced && s.isSilent.Load() && !s.isCut.Load() {
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
