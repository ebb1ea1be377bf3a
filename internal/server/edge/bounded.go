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

// quietFor is how long nothing must have come on a connection for it to make room for another one:
// longer than a request may take.
const quietFor = 15 * time.Second

// Bounded is a listener whose connections are counted, for servers that do not say which of them have
// a request under way. Create one with [Bound].
type Bounded struct {
	net.Listener
	most  int
	log   *slog.Logger
	since time.Time

	mu   sync.Mutex
	open map[*counted]struct{} // guarded by mu
}

// Bound returns a listener that has a bounded number of connections. For one more, the one is closed on
// which nothing has come for longest, if that is longer than a request may take; if there is none, the
// new one is closed. Zero stands for what Config.MaxConnections says.
func Bound(l net.Listener, most int, log *slog.Logger) *Bounded {
	return &Bounded{
		Listener: l, most: mostConnections(most), log: log, since: time.Now(), open: map[*counted]struct{}{},
	}
}

// Accept implements net.Listener. If the process has run out of file descriptors, Accept waits and tries again.
func (b *Bounded) Accept() (net.Conn, error) {
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
		c := &counted{Conn: conn, listener: b}
		c.heard.Store(int64(time.Since(b.since)))
		if b.admit(c) {
			return c, nil
		}
		_ = conn.Close()
	}
}

// admit counts a connection, if there is room for it or can be made.
func (b *Bounded) admit(c *counted) bool {
	b.mu.Lock()
	var quiet *counted
	full := len(b.open) >= b.most
	if full {
		for one := range b.open {
			if quiet == nil || one.heard.Load() < quiet.heard.Load() {
				quiet = one
			}
		}
		if time.Since(b.since)-time.Duration(quiet.heard.Load()) < quietFor {
			quiet = nil
		} else {
			delete(b.open, quiet)
		}
	}
	admitted := !full || quiet != nil
	if admitted {
		b.open[c] = struct{}{}
	}
	b.mu.Unlock()
	if full {
		b.log.Warn("as many connections as may be", "class", "connections", "max", b.most)
	}
	if quiet != nil {
		_ = quiet.Conn.Close()
	}
	return admitted
}

// counted is a connection that is counted.
type counted struct {
	net.Conn
	listener *Bounded
	heard    atomic.Int64 // when something came last, since the listener's beginning
}

// Read implements net.Conn.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(int64(time.Since(c.listener.since)))
	}
	return n, err
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
