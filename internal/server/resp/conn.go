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

// maxParsed bounds the commands that are parsed before they are answered, and maxBuffered approximately the bytes of
// replies that are buffered before they are written.
const (
	maxParsed   = 512
	maxBuffered = 32 << 10
)

// conn is a connection. Only its own goroutine uses it, but for the methods of net.Conn.
type conn struct {
	net.Conn
	server     *Server
	unix       bool // the connection came by a Unix socket
	token      string
	authorized bool // a command was permitted before
	resp3      bool // replies are in version 3 of the protocol

	in           []byte // input that is not answered yet
	out          []byte // replies that are not written yet
	closing      bool   // the connection is closed after the buffered replies
	discardInput bool   // further input is discarded before the connection is closed
}

// serve answers commands until the client leaves or the server stops.
func (c *conn) serve() {
	if secure, ok := c.Conn.(*tls.Conn); ok && secure.HandshakeContext(context.Background()) != nil {
		return
	}
	c.in = make([]byte, 0, maxCommand)
	for !c.closing {
		n, err := c.Read(c.in[len(c.in):cap(c.in)])
		c.in = c.in[:len(c.in)+n]
		c.answerCommands()
		if !c.flush() || err != nil {
			return
		}
	}
	if c.discardInput { // closing a connection with unread input resets it, and the client could lose the last reply
		_ = c.SetReadDeadline(time.Now().Add(drainTimeout))
		_, _ = io.CopyN(io.Discard, c.Conn, 8*maxCommand)
	}
}

// answerCommands answers all complete commands of the input.
func (c *conn) answerCommands() {
	read := 0
	for !c.closing {
		var commands [][][]byte
		var parseErr error
		for len(commands) < maxParsed {
			words, size, err := parse(c.in[read:])
			if parseErr = err; err != nil || size == 0 {
				break
			}
			if read += size; len(words) > 0 {
				commands = append(commands, words)
			}
		}
		c.runAll(commands)
		if len(c.out) > maxBuffered && !c.flush() {
			c.closing = true
		}
		if parseErr != nil && !c.closing {
			c.error("ERR Protocol error: " + parseErr.Error())
			c.closing, c.discardInput = true, true
		}
		if len(commands) < maxParsed {
			break
		}
	}
	c.in = append(c.in[:0], c.in[read:]...)
}

// flush writes the replies, and reports whether that succeeded.
func (c *conn) flush() bool {
	if len(c.out) == 0 {
		return true
	}
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := c.Write(c.out)
	if c.out = c.out[:0]; cap(c.out) > 2*maxBuffered {
		c.out = nil
	}
	return err == nil
}

// runAll runs commands in their order. Consecutive CL.THROTTLE commands are decided together. After a panic it replies
// with an error, and the connection is closed.
func (c *conn) runAll(list [][][]byte) {
	defer func() {
		if panicked := recover(); panicked != nil {
			c.server.log.Error("request failed", "class", "panic", "path", "RESP",
				"error", fmt.Errorf("panic: %v", panicked), "stack", string(debug.Stack()))
			c.error("ERR internal error; it is not known whether anything was charged")
			c.closing = true
		}
	}()
	for len(list) > 0 && !c.closing {
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

// authorize returns the context of a command, with its caller if the server has tokens, or why that is not permitted.
func (c *conn) authorize() (context.Context, error) {
	ctx := context.Background()
	if tokens := c.server.config.Tokens; tokens != nil {
		caller, err := tokens.Tokens().Caller(auth.Credentials{
			Token: c.token, Certificate: c.certificate, UnixSocket: c.unix,
		})
		if err == nil {
			err = caller.CheckRole(auth.RoleTake)
		}
		if err != nil {
			return ctx, err
		}
		ctx = auth.WithCaller(ctx, caller)
	}
	if !c.authorized { // from now on the client may stay idle
		c.authorized = c.server.clearReadDeadline(c)
	}
	return ctx, nil
}

// certificate returns the verified certificate of the peer, or nil.
func (c *conn) certificate() *x509.Certificate {
	if secure, ok := c.Conn.(*tls.Conn); ok {
		return auth.VerifiedCertificate(secure.ConnectionState())
	}
	return nil
}

// replyForbidden replies that the caller may not use a command. If the caller is unknown, the connection is closed.
func (c *conn) replyForbidden(name string, err error) {
	c.closing = errors.Is(err, auth.ErrUnknown)
	c.discardInput = c.closing
	c.server.log.Warn("request refused", "class", "access", "path", name, "remote", c.RemoteAddr().String(),
		"error", err)
	switch {
	case !errors.Is(err, auth.ErrUnknown):
		c.error("NOPERM " + service.ProblemOf(err).Detail)
	case c.token != "":
		c.error("WRONGPASS " + err.Error())
	default:
		c.error("NOAUTH Authentication required: AUTH takes a token of headgate token new")
	}
}

// replyFailure replies that a command has failed. It does not use errors on which client libraries retry, such as
// TRYAGAIN or LOADING, because the command may have been charged.
func (c *conn) replyFailure(name string, err error) {
	p := service.ProblemOf(err)
	if p.Status >= 500 {
		service.LogFailure(c.server.log, name, err, 1)
	}
	c.error("ERR " + cmp.Or(p.Detail, p.Title))
}
