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

// Proxy stands in front of a server. It can lose answers, be silent, or cut all connections. It loses an answer by
// cutting the connection when the answer has arrived from the server: for the client, the network breaks after its
// statement was done.
type Proxy struct {
	Addr         string // host:port to connect to
	marker       []byte // only requests with marker are silenced, and only their answers lost; empty: all
	losesAnswers atomic.Bool
	isSilent     atomic.Bool
	isCut        atomic.Bool

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// StartProxy starts a proxy in front of a server until the test ends. With a marker, only requests that contain it are
// silenced, and only answers after such a request are lost.
func StartProxy(tb testing.TB, target string, marker ...string) *Proxy {
	tb.Helper()
	defer failTest(tb)
	l := must((&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0"))
	p := &Proxy{Addr: l.Addr().String(), conns: map[net.Conn]struct{}{}, marker: []byte(strings.Join(marker, ""))}
	tb.Cleanup(func() {
		_ = l.Close()
		p.Cut(true)
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
			if p.register(client, server) {
				markerSent := &atomic.Bool{}
				go p.relay(client, server, markerSent, false)
				go p.relay(server, client, markerSent, true)
			}
		}
	}()
	return p
}

// Lose sets whether answers get lost from now on.
func (p *Proxy) Lose(lose bool) { p.losesAnswers.Store(lose) }

// Silence sets whether the proxy holds back data from now on: in both directions, or with a marker the requests that
// contain it. The data arrive when the silence ends, as from a server that was stopped for a while.
func (p *Proxy) Silence(silent bool) { p.isSilent.Store(silent) }

// Cut sets whether all connections are closed from now on, open and new ones.
func (p *Proxy) Cut(cut bool) {
	p.isCut.Store(cut)
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if cut {
			_ = c.Close()
		}
	}
}

// register records the two ends of a connection, and reports whether the connection may stay open.
func (p *Proxy) register(ends ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range ends {
		p.conns[c] = struct{}{}
		if p.isCut.Load() {
			_ = c.Close()
		}
	}
	return !p.isCut.Load()
}

// relay copies data from one end to the other until the first end is closed. It sets markerSent when a request with the
// marker was sent while answers get lost.
func (p *Proxy) relay(from, to net.Conn, markerSent *atomic.Bool, answers bool) {
	defer func() {
		_ = to.Close()
		p.mu.Lock()
		delete(p.conns, from)
		p.mu.Unlock()
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		switch {
		case !p.losesAnswers.Load():
		case answers && markerSent.Load():
			return // the answer is lost
		case !answers && bytes.Contains(buf[:n], p.marker):
			markerSent.Store(true)
		}
		silenced := len(p.marker) == 0 || !answers && bytes.Contains(buf[:n], p.marker)
		for silenced && p.isSilent.Load() && !p.isCut.Load() {
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
