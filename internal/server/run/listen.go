package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/metrics"
	"github.com/headgate/headgate/internal/server/page"
	"github.com/headgate/headgate/internal/server/resp"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/rpc"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/tlsconf"
)

// listenOn opens an address: of TCP, or unix: and the path of a socket, which it makes usable for its owner and group.
func listenOn(ctx context.Context, addr string) (net.Listener, error) {
	path, unix := strings.CutPrefix(addr, "unix:")
	if !unix {
		return (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	}
	if path == "" {
		return nil, headgate.Invalid("", "%q names no socket; unix:/run/headgate/headgate.sock does", addr)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil { // for the owner and the group
		l.Close()
		return nil, err
	}
	return l, nil
}

// removeStale removes a socket that a killed process left behind. It leaves any other file alone.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there and is not a socket", path)
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("%s is in use by another process", path)
	}
	return os.Remove(path)
}

// checkExposure returns an error if other machines can reach an address without credentials, unless that is meant.
func (srv *server) checkExposure(s config.Setting, l net.Listener) error {
	tcp, ok := l.Addr().(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() || srv.openAccess || srv.tokens != nil || srv.tls != nil && srv.clientCA {
		return nil
	}
	return headgate.Invalid(s.Name, "%s can be reached from other machines, and everybody could take, reset and "+
		"block there: set %s or %s, or %s if that is meant", l.Addr(), config.Tokens.Name, config.TLSClientCA.Name,
		config.Open.Name)
}

type endpoint struct {
	setting  config.Setting
	listener net.Listener
	server   protocolServer // nil until attach
}

// protocolServer is a server of HTTP, gRPC or RESP. Serve returns nil or http.ErrServerClosed after Shutdown or Close.
type protocolServer interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close() error
}

type endpoints []endpoint

// listen opens the addresses without serving them, or takes their Sockets. It replaces such an address in srv.addr.
func (srv *server) listen(ctx context.Context) (endpoints endpoints, err error) {
	defer func() {
		if err != nil {
			endpoints.Close()
		}
	}()
	for _, setting := range addresses {
		listeners := srv.Sockets[setting.Name]
		switch addr := srv.addr[setting.Name]; {
		case len(listeners) > 0:
			srv.addr[setting.Name] = listeners[0].Addr().String()
		case addr != "":
			l, err := listenOn(ctx, addr)
			if err != nil {
				return endpoints, fmt.Errorf("%s: %w", setting.Name, err)
			}
			listeners = append(listeners, l)
		}
		for _, l := range listeners {
			endpoints = append(endpoints, endpoint{setting: setting, listener: l})
			if setting.Name == config.Metrics.Name { // it charges nothing and names no key
				continue
			}
			if err := srv.checkExposure(setting, l); err != nil {
				return endpoints, err
			}
		}
	}
	return endpoints, nil
}

// attach gives each endpoint its server, and makes the service log admin actions.
func (srv *server) attach(endpoints endpoints, s *service.Service, log *slog.Logger) {
	s.OnAdmin(func(a service.AdminAction) { logAction(log, a) })
	public, everything, health := rest.NewHandlers(s, log, &srv.rest)
	if srv.addr[config.Admin.Name] == "" {
		public = everything
	}
	handlers := map[string]http.Handler{
		config.HTTP.Name: page.Beside(public), config.Admin.Name: page.Beside(everything),
		config.Metrics.Name: rest.Beside(health, metrics.Path, srv.metrics.Handler()),
	}
	for i := range endpoints {
		name := endpoints[i].setting.Name
		secure := srv.tls != nil && name != config.Metrics.Name && endpoints[i].listener.Addr().Network() != "unix"
		switch name {
		case config.GRPC.Name:
			endpoints[i].server = srv.rpc(s, log, secure)
			continue
		case config.RESP.Name:
			endpoints[i].server = srv.redis(s, log, secure)
			continue
		}
		c := srv.edge
		if secure {
			c.TLS = srv.tls.Config(tlsconf.HTTP1)
		}
		handler := handlers[name]
		if srv.traces != nil {
			handler = srv.traces.Handler(handler)
		}
		endpoints[i].server = edge.NewServer(handler, log, &c)
	}
}

func (srv *server) rpc(s *service.Service, log *slog.Logger, secure bool) *rpc.Server {
	c := rpc.Config{
		Tokens: srv.tokens, Load: srv.rest.Load, MaxConnections: srv.edge.MaxConnections,
		NoAdmin: srv.addr[config.Admin.Name] != "",
	}
	if secure {
		c.TLS = srv.tls.Config(tlsconf.HTTP2)
	}
	if srv.traces != nil {
		c.Unary = append(c.Unary, srv.traces.Unary)
		c.Stream = append(c.Stream, srv.traces.Stream)
	}
	server := rpc.New(s, log, &c)
	if srv.envoy != nil {
		server.Register(srv.envoy.server.Service())
	}
	return server
}

func (srv *server) redis(s *service.Service, log *slog.Logger, secure bool) *resp.Server {
	c := resp.Config{
		Tokens: srv.tokens, Load: srv.rest.Load, MaxConnections: srv.edge.MaxConnections, Version: srv.Version,
	}
	if secure {
		c.TLS = srv.tls.Config(tlsconf.Unnamed)
	}
	return resp.New(s, log, &c)
}

// serve starts all servers. Each one sends its error when it ends.
func (e endpoints) serve() <-chan error {
	served := make(chan error, len(e))
	for _, endpoint := range e {
		go func() { served <- endpoint.server.Serve(endpoint.listener) }()
	}
	return served
}

// Shutdown stops accepting connections and waits for the requests under way, until ctx ends.
func (e endpoints) Shutdown(ctx context.Context) error {
	errs := make([]error, len(e))
	var wg sync.WaitGroup
	for i, endpoint := range e {
		wg.Go(func() { errs[i] = endpoint.server.Shutdown(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Close closes all listeners and connections at once.
func (e endpoints) Close() {
	for _, endpoint := range e {
		endpoint.listener.Close()
		if endpoint.server != nil {
			_ = endpoint.server.Close()
		}
	}
}

// wait waits until all but ended servers have ended, and returns the first error except http.ErrServerClosed.
func (e endpoints) wait(served <-chan error, ended int) (err error) {
	for range len(e) - ended {
		if serveErr := <-served; err == nil && !errors.Is(serveErr, http.ErrServerClosed) {
			err = serveErr
		}
	}
	return err
}

// logAction logs an admin action: what was done to which key, by which caller, and why.
func logAction(log *slog.Logger, a service.AdminAction) {
	by := cmp.Or(a.Caller, "a caller without a name")
	args := []any{"verb", a.Verb, "limit", a.Limit, "key", a.Key, "by", by, "reason", a.Reason}
	if a.For > 0 {
		args = append(args, "for", a.For)
	}
	if a.Err != nil {
		args = append(args, "error", a.Err)
	}
	if a.Unrecorded != nil {
		args = append(args, "unrecorded", a.Unrecorded)
	}
	log.Info("admin action", args...)
}
