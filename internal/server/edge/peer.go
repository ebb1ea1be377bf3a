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

// listenerKey is the key of a context for a listenerInfo.
type listenerKey struct{}

// listenerInfo describes the address of a listener.
type listenerInfo struct{ loopback, unix bool }

func infoOf(a net.Addr) listenerInfo {
	tcp, ok := a.(*net.TCPAddr)
	return listenerInfo{loopback: ok && tcp.IP.IsLoopback(), unix: a.Network() == "unix"}
}

func listenerOf(ctx context.Context) listenerInfo {
	l, _ := ctx.Value(listenerKey{}).(listenerInfo)
	return l
}

// OnUnixSocket reports whether a request came by a Unix socket. Only users of this machine with permission for the file
// can connect to it.
func OnUnixSocket(r *http.Request) bool { return listenerOf(r.Context()).unix }

// tlsConnKey is the key of a context for the *tlsConn of a request.
type tlsConnKey struct{}

// Certificate returns the client's verified certificate, or nil. [http.Request.TLS] is nil: connections are wrapped.
func Certificate(r *http.Request) *x509.Certificate {
	if conn, ok := r.Context().Value(tlsConnKey{}).(*tlsConn); ok {
		return auth.VerifiedCertificate(conn.ConnectionState())
	}
	return nil
}

// tlsConn is a connection with TLS. It logs why a handshake fails, which clients seldom report.
type tlsConn struct {
	*tls.Conn
	log           *slog.Logger
	handshakeDone atomic.Bool // done or failed
}

// Read implements net.Conn.
func (c *tlsConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.handshakeDone.Load() {
		return n, err
	}
	c.handshakeDone.Store(true)
	if err != nil && !c.ConnectionState().HandshakeComplete {
		c.log.Warn("no TLS with a client", "class", "tls", "remote", c.RemoteAddr().String(), "error", err)
	}
	return n, err
}
