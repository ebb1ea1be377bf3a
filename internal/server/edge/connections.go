package edge

import (
	"container/list"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
)

// connections are the open connections of a server.
type connections struct {
	max int
	log *slog.Logger

	mu    sync.Mutex
	freed *sync.Cond // on mu: a connection has ended, or waits for a request; or a listener was closed
	open  int        // guarded by mu: how many are counted
	quiet list.List  // guarded by mu: of *heading without a request, the longest first
}

// connState has the state of a connection, guarded by the mutex of its connections.
type connState struct {
	open  bool
	quiet *list.Element // in the list of those; nil: it has a request
}

func newConnections(most int, log *slog.Logger) *connections {
	c := &connections{max: most, log: log}
	c.freed = sync.NewCond(&c.mu)
	return c
}

// listener accepts connections as long as there may be more.
type listener struct {
	net.Listener
	*connections
	tls    *tls.Config // nil: plain
	closed bool        // guarded by mu
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.full() {
			l.log.Warn("as many connections as may be", "class", "connections", "max", l.max)
		}
		if l.tls != nil { // the handshake is part of the first read, which has a deadline
			conn = &secured{Conn: tls.Server(conn, l.tls), log: l.log}
		}
		h := &heading{Conn: conn}
		h.begin()
		if l.admit(h) {
			return h, nil
		}
		_ = conn.Close() // the listener is closed, as Accept will say
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.freed.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

// full reports whether there may be no more connections.
func (c *connections) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open >= c.max
}

// admit counts a connection once there is room for it, and reports false if there will be
// none any more. To make room it closes the connection that has not asked for longest:
// idle ones cost the client that opens them nothing, and would keep all others out.
func (l *listener) admit(conn *heading) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && l.open >= l.max {
		first := l.quiet.Front()
		if first == nil {
			l.freed.Wait()
			continue
		}
		longest := first.Value.(*heading)
		l.forget(longest)
		_ = longest.Close()
	}
	if !l.closed {
		l.open++
		conn.open = true
		conn.quiet = l.quiet.PushBack(conn)
	}
	return !l.closed
}

// changed follows the states of connections, as http.Server reports them.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	h, ok := conn.(*heading)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !h.open {
		return // it was closed to make room
	}
	if state == http.StateIdle {
		h.begin()
	} else {
		h.within.Store(state == http.StateNew)
	}
	switch state {
	case http.StateNew: // quiet, since it was admitted
	case http.StateActive:
		c.hears(h)
	case http.StateIdle:
		h.quiet = c.quiet.PushBack(h)
		c.freed.Broadcast()
	case http.StateHijacked, http.StateClosed:
		c.forget(h)
		c.freed.Broadcast()
	}
}

// hears notes that a connection is not quiet. The caller holds mu.
func (c *connections) hears(h *heading) {
	if h.quiet != nil {
		c.quiet.Remove(h.quiet)
		h.quiet = nil
	}
}

// forget stops counting a connection. The caller holds mu.
func (c *connections) forget(h *heading) {
	c.hears(h)
	h.open = false
	c.open--
}
