// Package edge protects the handlers of an HTTP server from the network. It bounds the number of connections and their
// time, and refuses requests of web pages: a page in a browser can send requests to any address that its user's machine
// reaches, also to loopback addresses.
package edge

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/server/api"
)

// Config adjusts a Server. It may be nil, and every field may be zero.
type Config struct {
	// MaxConnections is how many connections may be open. To accept a further one, the server closes the connection
	// that has been without a request for the longest time; if all have a request under way, the new one waits until
	// one has ended. Zero: 10,000, or three quarters of the files that the process may open, if that is less.
	MaxConnections int
	// Hosts are the Host names of a server on a loopback address, beside localhost and IP addresses. If there are some,
	// all other names are refused on other addresses too.
	Hosts []string
	// Proxied are paths, such as /v1/auth, that proxies request with the headers of an end user, an Origin among them.
	// So the origin is not checked there, and their handlers must refuse requests of pages in another way. The Host is
	// checked.
	Proxied []string
	// TLS encrypts the connections, and may verify certificates of clients. Nil: connections are not encrypted.
	TLS *tls.Config
}

// Server serves a handler over HTTP/1.1. It is created with [NewServer].
type Server struct {
	http.Server
	connections *connections
	tls         *tls.Config
}

// NewServer returns a server of h. It logs refused requests and errors of connections: perhaps many lines a second.
func NewServer(h http.Handler, log *slog.Logger, c *Config) *Server {
	c = cmp.Or(c, &Config{})
	connections := &connections{max: maxConnections(c.MaxConnections), log: log}
	connections.freed = sync.NewCond(&connections.mu)
	return &Server{connections: connections, tls: c.TLS, Server: http.Server{
		Handler:           newPageGuard(h, log, c),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		BaseContext: func(l net.Listener) context.Context {
			return context.WithValue(context.Background(), listenerKey{}, infoOf(l.Addr()))
		},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			if h, ok := conn.(*headerConn); ok {
				if s, ok := h.Conn.(*tlsConn); ok {
					return context.WithValue(ctx, tlsConnKey{}, s)
				}
			}
			return ctx
		},
		ConnState: connections.onStateChange,
	}}
}

// maxConnections returns the maximum of connections for a configured value, which may be zero.
func maxConnections(configured int) int {
	return cmp.Or(max(configured, 0), min(10_000, maxOpenFiles()/4*3))
}

// Serve serves the connections of a listener until Shutdown, and then returns http.ErrServerClosed.
func (s *Server) Serve(l net.Listener) error {
	return s.Server.Serve(&listener{Listener: l, connections: s.connections, tls: s.tls})
}

// WriteProblem answers with a problem. Status 503 has the header Retry-After.
func WriteProblem(w http.ResponseWriter, p *api.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may be gone
}
