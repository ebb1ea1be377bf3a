package edge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/headgate/headgate/internal/server/auth"
)

// place is the key of a context for a listening.
type place struct{}

// listening holds for all requests of a listener.
type listening struct{ loopback, unix bool }

func listeningOn(a net.Addr) listening {
	tcp, ok := a.(*net.TCPAddr)
	return listening{loopback: ok && tcp.IP.IsLoopback(), unix: a.Network() == "unix"}
}

func placeOf(ctx context.Context) listening {
	l, _ := ctx.Value(place{}).(listening)
	return l
}

// OnUnixSocket reports whether a request came by a Unix socket, which only users of this machine
// reach to whom its permissions allow it.
func OnUnixSocket(r *http.Request) bool { return placeOf(r.Context()).unix }

// secure is the key of a context for the *secured of a request.
type secure struct{}

// Certificate returns the certificate that the client has shown and that was verified, or nil.
// [http.Request.TLS] is nil here, since connections are wrapped.
func Certificate(r *http.Request) *x509.Certificate {
	if conn, ok := r.Context().Value(secure{}).(*secured); ok {
		return auth.Verified(conn.ConnectionState())
	}
	return nil
}

// secured is a connection with TLS. It logs why a handshake fails, which a client hears too, but
// seldom says.
type secured struct {
	*tls.Conn
	log   *slog.Logger
	shook atomic.Bool
}

// Read implements net.Conn.
func (s *secured) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if s.shook.Load() {
		return n, err
	}
	s.shook.Store(true)
	if err != nil && !s.ConnectionState().HandshakeComplete {
		s.log.Warn("no TLS with a client", "class", "tls", "remote", s.RemoteAddr().String(), "error", err)
	}
	return n, err
}
