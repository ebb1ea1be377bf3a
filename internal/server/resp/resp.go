// Package resp serves the part of the Redis protocol that clients of redis-cell use: the command CL.THROTTLE, and the
// commands that client libraries send when they connect: HELLO, AUTH, SELECT, INFO, COMMAND, PING and QUIT.
//
// Consecutive CL.THROTTLE commands of a pipeline are decided as one batch of the store, in order.
//
// Source: https://github.com/brandur/redis-cell and https://redis.io/docs/latest/develop/reference/protocol-spec/.
package resp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/service"
)

// decideWithin bounds the time of a decision. It is shorter than the usual read timeouts of Redis clients, 2 to 5 s:
// after a timeout many of them send the command again, and it would be charged twice.
const decideWithin = 1500 * time.Millisecond

// Time limits of a connection: until the first permitted command, for writing a reply, and for draining the connection
// after an error.
const (
	knownWithin = 10 * time.Second
	writeWithin = 10 * time.Second
	drainWithin = time.Second
)

// Config adjusts a Server. A nil Config, and every zero field, is fine.
type Config struct {
	// Tokens are what callers show with AUTH or HELLO to be let in, unless they come by a Unix socket or show a
	// certificate that is listed there. Nil: everybody may do everything.
	Tokens *auth.File
	// TLS encrypts the connections, and may verify certificates of clients. Nil: they are plain.
	TLS *tls.Config
	// Load bounds what requests take. Nil: one of its own, as load.New(0, 0) returns it.
	Load *load.Load
	// Version names the server version in the reply to HELLO.
	Version string
	// MaxConnections is how many connections may be open: see [edge.Bound]. Zero: what it says.
	MaxConnections int
}

// Server serves the protocol of Redis. Create one with [New]. It may serve several listeners, and is safe for
// concurrent use.
type Server struct {
	service *service.Service
	log     *slog.Logger
	config  Config

	mu        sync.Mutex
	stopping  bool                  // guarded by mu
	listeners map[net.Listener]bool // guarded by mu
	conns     map[*conn]bool        // guarded by mu
	ended     sync.WaitGroup        // connections; it grows under mu while not stopping
}

// New returns a server. What goes wrong is logged, a line for each command that fails: see package lograte for a
// log that stands that.
func New(s *service.Service, log *slog.Logger, c *Config) *Server {
	out := &Server{
		service: s, log: log, config: *cmp.Or(c, &Config{}), listeners: map[net.Listener]bool{},
		conns: map[*conn]bool{},
	}
	out.config.Load = cmp.Or(out.config.Load, load.New(0, 0))
	return out
}

// Serve answers what comes to a listener, until Shutdown or Close. It returns nil then. Of several listeners each
// has its own bound of connections.
func (s *Server) Serve(l net.Listener) error {
	l = edge.Bound(l, s.config.MaxConnections, s.log)
	if !s.opened(l) {
		return l.Close()
	}
	defer l.Close()
	for {
		c, err := l.Accept()
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.listeners, l)
			if s.stopping {
				return nil
			}
			return err
		}
		if c := s.connected(c); c != nil {
			go func() {
				defer s.ended.Done()
				defer s.gone(c)
				c.serve()
			}()
		}
	}
}

// opened notes a listener, and reports whether the server is not stopping.
func (s *Server) opened(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.listeners[l] = true
	}
	return !s.stopping
}

// connected notes a connection; it returns nil if the server is stopping.
func (s *Server) connected(nc net.Conn) *conn {
	unix := nc.LocalAddr().Network() == "unix"
	if s.config.TLS != nil {
		nc = tls.Server(nc, s.config.TLS)
	}
	c := &conn{Conn: nc, server: s, unix: unix}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		_ = nc.Close()
		return nil
	}
	_ = nc.SetDeadline(time.Now().Add(knownWithin))
	s.ended.Add(1)
	s.conns[c] = true
	return c
}

// unhurried removes the read deadline of a connection, unless the server is stopping.
func (s *Server) unhurried(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping || c.SetReadDeadline(time.Time{}) == nil
}

// gone closes a connection.
func (s *Server) gone(c *conn) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Shutdown stops accepting connections, closes those on which nothing is under way, and waits for the commands
// of the others until ctx ends, when it closes all.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop(func(c *conn) { _ = c.SetReadDeadline(time.Unix(1, 0)) }) // what was read is answered
	done := make(chan struct{})
	go func() { defer close(done); s.ended.Wait() }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), s.Close())
	}
}

// Close closes the listeners and all connections at once.
func (s *Server) Close() error {
	s.stop(func(c *conn) { _ = c.Close() })
	return nil
}

// stop closes the listeners, and does the rest to each connection.
func (s *Server) stop(rest func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for l := range s.listeners {
		_ = l.Close()
	}
	for c := range s.conns {
		rest(c)
	}
}
