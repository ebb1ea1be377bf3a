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

// listeningKey is the key of a context for a listening.
type listeningKey struct{}

// listening describes the address of a listener.
type listening struct{ loopback, unix bool }

func listeningOn(a net.Addr) listening {
	tcp, ok := a.(*net.TCPAddr)
	return listening{loopback: ok && tcp.IP.IsLoopback(), unix: a.Network() == "unix"}
}

func listeningOf(ctx context.Context) listening {
	l, _ := ctx.Value(listeningKey{}).(listening)
	return l
}

// OnUnixSocket reports whether a request came by a Unix socket. Only users of this machine with
// permission for the file can connect to it.
func OnUnixSocket(r *http.Request) bool { return listeningOf(r.Context()).unix }

// tlsConnKey is the key of a context for the *tlsConn of a request.
type tlsConnKey struct{}

// Certificate returns the verified certificate of the client, or nil.
// [http.Request.TLS] is nil here, since connections are wrapped.
func Certificate(r *http.Request) *x509.Certificate {
	if conn, ok := r.Context().Value(tlsConnKey{}).(*tlsConn); ok {
		return auth.Verified(conn.ConnectionState())
	}
	return nil
}

// tlsConn is a connection with TLS. It logs why a handshake fails, which clients
// seldom report.
type tlsConn struct {
	*tls.Conn
	log           *slog.Logger
	handshakeDone atomic.Bool // done or failed
}

// Read implements net.Conn.
func (s *tlsConn) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if s.handshakeDone.Load() {
		return n, err
	}
	s.handshakeDone.Store(true)
	if err != nil && !s.ConnectionState().HandshakeComplete {
		s.log.Warn("no TLS with a client", "class", "tls", "remote", s.RemoteAddr().String(), "error", err)
	}
	return n, err
}
