// Package edge is what stands between the network and the handlers of an HTTP server.
// It bounds connections and how long they may take, and keeps web pages out: a page in
// a browser may ask any address that its user's machine reaches, a loopback address
// too.
package edge

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/server/api"
)

// Config adjusts a Server. A nil Config, and every zero field, is fine.
type Config struct {
	// MaxConnections is how many connections may be open. For one more, the one is
	// closed that has not asked for longest; if all have a request under way, it waits until one
	// has ended. Zero: 10,000, or three quarters of the files that the
	// process may open, if these are fewer.
	MaxConnections int
	// Hosts are names by which a server on a loopback address may be asked, beside
	// localhost and IP addresses. If there are some, all other names are refused on
	// other addresses too.
	Hosts []string
	// Proxied are paths, such as /v1/auth, that proxies ask with the headers of an end user, an Origin
	// among them: they are served whatever page the headers name. Their handlers must
	// refuse what a page could send by other means. The Host is checked there as elsewhere.
	Proxied []string
	// TLS encrypts the connections, and may verify certificates of clients. Nil: they are plain.
	TLS *tls.Config
}

// Server serves a handler over HTTP/1.1. Create one with [NewServer].
type Server struct {
	http.Server
	connections *connections
	tls         *tls.Config
}

// NewServer returns a server of h. What it refuses and what goes wrong with a
// connection is logged, which can be many lines a second.
func NewServer(h http.Handler, log *slog.Logger, c *Config) *Server {
	c = cmp.Or(c, &Config{})
	open := newConnections(mostConnections(c.MaxConnections), log)
	return &Server{connections: open, tls: c.TLS, Server: http.Server{
		Handler:           newPages(h, log, c),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		BaseContext: func(l net.Listener) context.Context {
			return context.WithValue(context.Background(), place{}, listeningOn(l.Addr()))
		},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			if h, ok := conn.(*heading); ok {
				if s, ok := h.Conn.(*secured); ok {
					return context.WithValue(ctx, secure{}, s)
				}
			}
			return ctx
		},
		ConnState: open.changed,
	}}
}

// mostConnections returns how many there may be, where a configuration says most.
func mostConnections(most int) int {
	return cmp.Or(max(most, 0), min(10_000, openFiles()/4*3))
}

// Serve answers what comes to a listener, until Shutdown. It returns
// http.ErrServerClosed then.
func (s *Server) Serve(l net.Listener) error {
	return s.Server.Serve(&listener{Listener: l, connections: s.connections, tls: s.tls})
}

// WriteProblem answers with a problem.
func WriteProblem(w http.ResponseWriter, p *api.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may be gone
}
