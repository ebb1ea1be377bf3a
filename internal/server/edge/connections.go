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
	freed *sync.Cond // on mu; signals that a connection has ended or is idle, or that a listener is closed
	open  int        // guarded by mu: how many connections are open
	idle  list.List  // guarded by mu: the *headerConn without a request, the longest idle first
}

// connState has the state of a connection, guarded by the mutex of its connections.
type connState struct {
	open        bool
	idleElement *list.Element // element of connections.idle; nil: the connection has a request
}

// listener accepts at most connections.max connections.
type listener struct {
	net.Listener
	*connections
	tls    *tls.Config // nil: not encrypted
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
			conn = &tlsConn{Conn: tls.Server(conn, l.tls), log: l.log}
		}
		h := &headerConn{Conn: conn}
		h.expectHeader()
		if l.admit(h) {
			return h, nil
		}
		_ = conn.Close() // the listener is closed, so the next Accept fails
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

// full reports whether the maximum of connections is reached.
func (c *connections) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open >= c.max
}

// admit adds a connection once there is room for it, and returns false if the listener is closed. To make room it
// closes the connection that has been idle for the longest time: idle connections cost a client nothing, and could
// otherwise keep all others out.
func (l *listener) admit(conn *headerConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && l.open >= l.max {
		element := l.idle.Front()
		if element == nil {
			l.freed.Wait()
			continue
		}
		longestIdle := element.Value.(*headerConn)
		l.forget(longestIdle)
		_ = longestIdle.Close()
	}
	if !l.closed {
		l.open++
		conn.open = true
		conn.idleElement = l.idle.PushBack(conn)
	}
	return !l.closed
}

// onStateChange is the ConnState of http.Server.
func (c *connections) onStateChange(conn net.Conn, state http.ConnState) {
	h, ok := conn.(*headerConn)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !h.open {
		return // the connection was closed to make room
	}
	if state == http.StateIdle {
		h.expectHeader()
	} else {
		h.inHeader.Store(state == http.StateNew)
	}
	switch state {
	case http.StateNew: // admit has added it to idle
	case http.StateActive:
		c.markBusy(h)
	case http.StateIdle:
		h.idleElement = c.idle.PushBack(h)
		c.freed.Broadcast()
	case http.StateHijacked, http.StateClosed:
		c.forget(h)
		c.freed.Broadcast()
	}
}

// markBusy removes a connection from idle. The caller holds mu.
func (c *connections) markBusy(h *headerConn) {
	if h.idleElement != nil {
		c.idle.Remove(h.idleElement)
		h.idleElement = nil
	}
}

// forget removes a connection. The caller holds mu.
func (c *connections) forget(h *headerConn) {
	c.markBusy(h)
	h.open = false
	c.open--
}
