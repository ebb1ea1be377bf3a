package resp

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"time"

	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/service"
)

// maxFlight bounds the commands that are parsed before they are answered, and maxOut the bytes of replies that are
// buffered before they are written, approximately.
const (
	maxFlight = 512
	maxOut    = 32 << 10
)

// conn is a connection.
type conn struct {
	net.Conn
	server *Server
	unix   bool // it came by a Unix socket
	token  string
	known  bool // a command was permitted before
	resp3  bool // answers are in version 3 of the protocol

	in   []byte // input that was not answered
	out  []byte // replies that were not written
	done bool   // the connection is closed after these replies
	lost bool   // input that follows is not read as commands
}

// serve answers commands until the client goes or the server stops.
func (c *conn) serve() {
	if secure, ok := c.Conn.(*tls.Conn); ok && secure.HandshakeContext(context.Background()) != nil {
		return
	}
	c.in = make([]byte, 0, maxCommand)
	for !c.done {
		n, err := c.Read(c.in[len(c.in):cap(c.in)])
		c.in = c.in[:len(c.in)+n]
		c.answer()
		if !c.flush() || err != nil {
			return
		}
	}
	if c.lost { // closing a connection with unread input resets it, and the client could lose the last reply
		_ = c.SetReadDeadline(time.Now().Add(drainWithin))
		_, _ = io.CopyN(io.Discard, c.Conn, 8*maxCommand)
	}
}

// answer answers all commands that are whole.
func (c *conn) answer() {
	read := 0
	for !c.done {
		var flight [][][]byte
		var wrong error
		for len(flight) < maxFlight {
			words, size, err := parse(c.in[read:])
			if wrong = err; err != nil || size == 0 {
				break
			}
			if read += size; len(words) > 0 {
				flight = append(flight, words)
			}
		}
		c.commands(flight)
		if len(c.out) > maxOut && !c.flush() {
			c.done = true
		}
		if wrong != nil && !c.done {
			c.error("ERR Protocol error: " + wrong.Error())
			c.done, c.lost = true, true
		}
		if len(flight) < maxFlight {
			break
		}
	}
	c.in = append(c.in[:0], c.in[read:]...)
}

// flush writes the answers, and reports whether the client has taken them.
func (c *conn) flush() bool {
	if len(c.out) == 0 {
		return true
	}
	_ = c.SetWriteDeadline(time.Now().Add(writeWithin))
	_, err := c.Write(c.out)
	if c.out = c.out[:0]; cap(c.out) > 2*maxOut {
		c.out = nil
	}
	return err == nil
}

// commands answers commands in their order: charges that follow one another together.
func (c *conn) commands(list [][][]byte) {
	defer func() {
		if panicked := recover(); panicked != nil {
			c.recovered(panicked)
		}
	}()
	for len(list) > 0 && !c.done {
		n := 0
		for n < len(list) && isCommand(list[n], throttleName) {
			n++
		}
		if n == 0 {
			c.command(list[0])
			list = list[1:]
			continue
		}
		c.throttle(list[:n])
		list = list[n:]
	}
}

// caller returns the context of commands, with their caller if callers are known.
func (c *conn) caller() (context.Context, error) {
	ctx := context.Background()
	if tokens := c.server.config.Tokens; tokens != nil {
		caller, err := tokens.Tokens().Caller(auth.Shown{
			Token: c.token, Certificate: c.certificate, UnixSocket: c.unix,
		})
		if err == nil {
			err = caller.Can(auth.RoleTake)
		}
		if err != nil {
			return ctx, err
		}
		ctx = auth.With(ctx, caller)
	}
	if !c.known { // from now on the client may be idle
		c.known = c.server.unhurried(c)
	}
	return ctx, nil
}

// certificate returns the certificate that the peer has shown and that was verified, or nil.
func (c *conn) certificate() *x509.Certificate {
	if secure, ok := c.Conn.(*tls.Conn); ok {
		return auth.Verified(secure.ConnectionState())
	}
	return nil
}

// forbidden replies to a command that the caller may not use. If the caller is unknown, the connection is closed.
func (c *conn) forbidden(name string, err error) {
	c.done = errors.Is(err, auth.ErrUnknown)
	c.lost = c.done
	c.server.log.Warn("request refused", "class", "access", "path", name, "remote", c.RemoteAddr().String(),
		"error", err)
	switch {
	case !errors.Is(err, auth.ErrUnknown):
		c.error("NOPERM " + service.Problem(err).Detail)
	case c.token != "":
		c.error("WRONGPASS " + err.Error())
	default:
		c.error("NOAUTH Authentication required: AUTH takes a token of headgate token new")
	}
}

// failed replies to a command that has failed. It does not use errors on which client libraries retry, such as TRYAGAIN
// or LOADING, because the command may have been charged.
func (c *conn) failed(name string, err error) {
	p := service.Problem(err)
	if p.Status >= 500 {
		service.LogFailure(c.server.log, name, err, 1)
	}
	c.error("ERR " + cmp.Or(p.Detail, p.Title))
}

// recovered replies after a panic and closes the connection.
func (c *conn) recovered(panicked any) {
	c.server.log.Error("request failed", "class", "panic", "path", "RESP", "error", fmt.Errorf("panic: %v", panicked),
		"stack", string(debug.Stack()))
	c.error("ERR internal error; it is not known whether anything was charged")
	c.done = true
}
