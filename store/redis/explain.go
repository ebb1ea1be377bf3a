package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/tlsconf"
	"github.com/headgate/headgate/store"
)

// explainTimeout bounds the time to find out why a connection failed.
const explainTimeout = time.Second

var (
	errSpeaksTLS = errors.New("the server speaks TLS: use rediss://")
	errNoTLS     = errors.New("the server does not speak TLS: use redis://, or turn TLS on there")
)

// explainConnectError wraps an error of the first connection. If client and server disagree about TLS, it is often
// only a reset or a timeout, which comes before the server's alert: so each server is connected to once more.
func explainConnectError(ctx context.Context, o *rueidis.ClientOption, err error) error {
	connectErr := classifyRead("connect", err)
	if !errors.Is(connectErr, store.ErrUnavailable) || unconnected(err) {
		return connectErr
	}
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	for _, address := range o.InitAddress {
		if mismatch := tlsMismatch(ctx, o, address); mismatch != nil {
			return fmt.Errorf("redis: connect: %w: %s: %w", store.ErrSetup, address, mismatch)
		}
	}
	return connectErr
}

// tlsMismatch returns the error if a server and the options disagree about TLS; nil if it finds none.
func tlsMismatch(ctx context.Context, o *rueidis.ClientOption, address string) error {
	if o.TLSConfig == nil {
		conn, err := handshake(ctx, o, address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // nothing is said
		if err != nil {
			return nil
		}
		_ = conn.Close()
		return errSpeaksTLS
	}
	if speaksPlaintext(ctx, o, address) {
		return errNoTLS
	}
	c := o.TLSConfig.Clone()
	c.ServerName, _, _ = net.SplitHostPort(address)
	conn, err := handshake(ctx, o, address, c)
	if err == nil {
		defer func() { _ = conn.Close() }()
		// In TLS 1.3 a server refuses the client's certificate only after the handshake.
		_, err = conn.Read(make([]byte, 1))
	}
	if tlsconf.IsHandshakeError(err) {
		return err
	}
	return nil
}

// speaksPlaintext reports whether a server answers Redis' protocol without TLS.
func speaksPlaintext(ctx context.Context, o *rueidis.ClientOption, address string) bool {
	conn, err := o.Dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	setDeadline(ctx, conn)
	if _, err = conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	reply := make([]byte, 1)
	_, err = conn.Read(reply)
	return err == nil && (reply[0] == '+' || reply[0] == '-')
}

// handshake makes a TLS connection, whose reads and writes fail after the context's deadline.
func handshake(ctx context.Context, o *rueidis.ClientOption, address string, c *tls.Config) (net.Conn, error) {
	dialer := tls.Dialer{NetDialer: &o.Dialer, Config: c}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		setDeadline(ctx, conn)
	}
	return conn, err
}

// setDeadline gives a connection the context's deadline.
func setDeadline(ctx context.Context, conn net.Conn) {
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
}
