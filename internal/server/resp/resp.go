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

// Time limits of a connection: until the first permitted command, for writing a reply, and for draining after an error.
const (
	authTimeout  = 10 * time.Second
	writeTimeout = 10 * time.Second
	drainTimeout = time.Second
)

// Config adjusts a Server. It may be nil, and every field may be zero.
type Config struct {
	// Tokens lists the callers with their tokens, for AUTH or HELLO, and certificates. A caller by a Unix socket needs
	// neither. Nil: every caller may do everything.
	Tokens *auth.File
	// TLS encrypts the connections, and may verify certificates of clients. Nil: connections are not encrypted.
	TLS *tls.Config
	// Load bounds the resources of requests. Nil: load.New(0, 0).
	Load *load.Load
	// Version names the server version in the reply to HELLO.
	Version string
	// MaxConnections is how many connections may be open. Zero: the default of [edge.BoundListener].
	MaxConnections int
}

// Server serves the protocol of Redis, on one or more listeners. It is created with [New], and safe for concurrent use.
type Server struct {
	service *service.Service
	log     *slog.Logger
	config  Config

	mu        sync.Mutex
	stopping  bool                  // guarded by mu
	listeners map[net.Listener]bool // guarded by mu
	conns     map[*conn]bool        // guarded by mu
	connWait  sync.WaitGroup        // for open connections; Add is called under mu, and not after stopping is set
}

// New returns a server. It logs a line for each command that fails by an error of the server, so log should be limited
// by package lograte.
func New(s *service.Service, log *slog.Logger, c *Config) *Server {
	out := &Server{
		service: s, log: log, config: *cmp.Or(c, &Config{}), listeners: map[net.Listener]bool{},
		conns: map[*conn]bool{},
	}
	out.config.Load = cmp.Or(out.config.Load, load.New(0, 0))
	return out
}

// Serve serves the connections of a listener until Shutdown or Close, and then returns nil. Each listener has its own
// bound of connections.
func (s *Server) Serve(l net.Listener) error {
	l = edge.BoundListener(l, s.config.MaxConnections, s.log)
	if !s.addListener(l) {
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
		if c := s.addConn(c); c != nil {
			go func() {
				defer s.connWait.Done()
				defer s.removeConn(c)
				c.serve()
			}()
		}
	}
}

// addListener adds a listener unless the server is stopping, and reports whether it did.
func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.listeners[l] = true
	}
	return !s.stopping
}

// addConn adds a connection, with TLS if that is configured. If the server is stopping, it closes it and returns nil.
func (s *Server) addConn(nc net.Conn) *conn {
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
	_ = nc.SetDeadline(time.Now().Add(authTimeout))
	s.connWait.Add(1)
	s.conns[c] = true
	return c
}

// clearReadDeadline removes the read deadline of a connection, unless the server is stopping; false: it has failed.
func (s *Server) clearReadDeadline(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping || c.SetReadDeadline(time.Time{}) == nil
}

func (s *Server) removeConn(c *conn) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Shutdown stops accepting connections, closes idle connections, and waits for the commands of the others. When ctx
// ends, it closes all.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop(func(c *conn) { _ = c.SetReadDeadline(time.Unix(1, 0)) }) // commands that were read are answered
	done := make(chan struct{})
	go func() { defer close(done); s.connWait.Wait() }()
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

// stop closes the listeners, and calls action for each connection.
func (s *Server) stop(action func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for l := range s.listeners {
		_ = l.Close()
	}
	for c := range s.conns {
		action(c)
	}
}
