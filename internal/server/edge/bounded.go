package edge

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// minIdle is how long a connection must have received nothing before it is closed to make room for another one: longer
// than a request may take.
const minIdle = 15 * time.Second

// BoundedListener is a listener with a bounded number of connections, for servers that do not report which connections
// have a request under way. It is created with [BoundListener].
type BoundedListener struct {
	net.Listener
	max       int
	log       *slog.Logger
	startTime time.Time

	mu   sync.Mutex
	open map[*boundedConn]struct{} // guarded by mu
}

// BoundListener returns a listener with at most max open connections. To accept a further one, it closes the connection
// that has received nothing for the longest time, if that is longer than a request may take; else it closes the new
// one. If max is zero, the default of Config.MaxConnections applies.
func BoundListener(l net.Listener, max int, log *slog.Logger) *BoundedListener {
	return &BoundedListener{
		Listener: l, max: maxConnections(max), log: log, startTime: time.Now(), open: map[*boundedConn]struct{}{},
	}
}

// Accept implements net.Listener. It waits and tries again if there are no file descriptors, or the client has gone.
func (b *BoundedListener) Accept() (net.Conn, error) {
	const shortest, longest = 5 * time.Millisecond, time.Second
	for wait := shortest; ; {
		conn, err := b.Listener.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED) {
			b.log.Error("no connection can be accepted", "class", "connections", "error", err)
			time.Sleep(wait)
			wait = min(2*wait, longest)
			continue
		}
		if err != nil {
			return nil, err
		}
		wait = shortest
		c := &boundedConn{Conn: conn, listener: b}
		c.lastRead.Store(int64(time.Since(b.startTime)))
		if b.admit(c) {
			return c, nil
		}
		_ = conn.Close()
	}
}

// admit adds a connection if there is room for it, or an idle connection that it can close. It reports whether it did.
func (b *BoundedListener) admit(c *boundedConn) bool {
	b.mu.Lock()
	var idlest *boundedConn
	full := len(b.open) >= b.max
	if full {
		for conn := range b.open {
			if idlest == nil || conn.lastRead.Load() < idlest.lastRead.Load() {
				idlest = conn
			}
		}
		if time.Since(b.startTime)-time.Duration(idlest.lastRead.Load()) < minIdle {
			idlest = nil
		} else {
			delete(b.open, idlest)
		}
	}
	admitted := !full || idlest != nil
	if admitted {
		b.open[c] = struct{}{}
	}
	b.mu.Unlock()
	if full {
		b.log.Warn("as many connections as may be", "class", "connections", "max", b.max)
	}
	if idlest != nil {
		_ = idlest.Conn.Close()
	}
	return admitted
}

// boundedConn is a connection of a BoundedListener.
type boundedConn struct {
	net.Conn
	listener *BoundedListener
	lastRead atomic.Int64 // time of the last read, since the listener's startTime
}

// Read implements net.Conn.
func (c *boundedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.lastRead.Store(int64(time.Since(c.listener.startTime)))
	}
	return n, err
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
