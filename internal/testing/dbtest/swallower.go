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

// Swallower is a proxy in front of a server. While it loses answers, it cuts the
// connection with the answer in its hand: what a client sees when the network breaks after
// its statement was done. It can also be silent, or cut everything.
type Swallower struct {
	Addr   string // host:port to connect to
	after  []byte // only what holds this is silenced, and answers to it lost; empty: all are
	lose   atomic.Bool
	silent atomic.Bool
	cut    atomic.Bool

	mu   sync.Mutex
	open map[net.Conn]struct{}
}

// Swallow starts a proxy in front of a server, for as long as the test runs. Where a text is named, only what a
// client sends with that in it is silenced, and answers are lost only after it.
func Swallow(tb testing.TB, target string, after ...string) *Swallower {
	tb.Helper()
	defer fatal(tb)
	l := get((&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0"))
	s := &Swallower{
		Addr: l.Addr().String(), open: map[net.Conn]struct{}{},
		after: []byte(strings.Join(after, "")),
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
			if s.keep(client, server) {
				sent := &atomic.Bool{}
				go s.pass(client, server, sent, false)
				go s.pass(server, client, sent, true)
			}
		}
	}()
	return s
}

// Lose says whether answers get lost from now on.
func (s *Swallower) Lose(lose bool) { s.lose.Store(lose) }

// Silence says whether nothing comes through from now on, in either direction. What was sent arrives when it
// ends, as from a server that was stopped.
func (s *Swallower) Silence(silent bool) { s.silent.Store(silent) }

// Cut says whether all connections are closed from now on, those that are open and those that come.
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

// keep notes the two ends of a connection, or closes them.
func (s *Swallower) keep(ends ...net.Conn) bool {
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

// pass passes on what comes from one end, until that ends. sent reports whether what is named was sent while
// answers were to get lost.
func (s *Swallower) pass(from, to net.Conn, sent *atomic.Bool, answers bool) {
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
			return // with the answer in hand
		case !answers && bytes.Contains(buf[:n], s.after):
			sent.Store(true)
		}
		held := len(s.after) == 0 || !answers && bytes.Contains(buf[:n], s.after)
		for held && s.silent.Load() && !s.cut.Load() {
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
