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

// explainWithin bounds how long it takes to find out why a connection failed.
const explainWithin = time.Second

var (
	errSpeaksTLS = errors.New("the server speaks TLS: use rediss://")
	errNoTLS     = errors.New("the server does not speak TLS: use redis://, or turn TLS on there")
)

// connecting wraps an error of the first connection. Where client and server disagree
// about TLS, that error is often no more than a reset or a timeout, since it comes
// before the server's alert is read: so the servers are asked once more.
func connecting(ctx context.Context, o *rueidis.ClientOption, err error) error {
	failed := classifyRead("connect", err)
	if !errors.Is(failed, store.ErrUnavailable) || unconnected(err) {
		return failed
	}
	ctx, cancel := context.WithTimeout(ctx, explainWithin)
	defer cancel()
	for _, address := range o.InitAddress {
		if why := disagreement(ctx, o, address); why != nil {
			return fmt.Errorf("redis: connect: %w: %s: %w", store.ErrSetup, address, why)
		}
	}
	return failed
}

// disagreement returns what a server and the options have different views of; nil if
// that does not show.
func disagreement(ctx context.Context, o *rueidis.ClientOption, address string) error {
	if o.TLSConfig == nil {
		conn, err := handshake(ctx, o, address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // nothing is said
		if err != nil {
			return nil
		}
		_ = conn.Close()
		return errSpeaksTLS
	}
	if speaksPlainly(ctx, o, address) {
		return errNoTLS
	}
	c := o.TLSConfig.Clone()
	c.ServerName, _, _ = net.SplitHostPort(address)
	conn, err := handshake(ctx, o, address, c)
	if err == nil {
		defer func() { _ = conn.Close() }()
		// By TLS 1.3 a server says after the handshake what it has against the client's
		// certificate.
		_, err = conn.Read(make([]byte, 1))
	}
	if tlsconf.Failed(err) {
		return err
	}
	return nil
}

// speaksPlainly reports whether a server answers as Redis does without TLS.
func speaksPlainly(ctx context.Context, o *rueidis.ClientOption, address string) bool {
	conn, err := o.Dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	setDeadline(ctx, conn)
	if _, err = conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	first := make([]byte, 1)
	_, err = conn.Read(first)
	return err == nil && (first[0] == '+' || first[0] == '-')
}

// handshake makes a TLS connection until the context's deadline.
func handshake(ctx context.Context, o *rueidis.ClientOption, address string, c *tls.Config) (net.Conn, error) {
	dialer := tls.Dialer{NetDialer: &o.Dialer, Config: c}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		setDeadline(ctx, conn)
	}
	return conn, err
}

// setDeadline lets nothing wait beyond the context's deadline.
func setDeadline(ctx context.Context, conn net.Conn) {
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
}
