package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/felixge/httpsnoop"
)

// StatusGone is the Status of a [Response] if the client had gone before the handler wrote one. Nobody
// gets it.
const StatusGone = 499

// Response is what a handler has answered, when it has returned or panicked.
type Response struct {
	Request *http.Request
	// Status is 101 if the connection was hijacked. If the handler wrote nothing, it is 500 if the
	// handler panicked, else StatusGone if the client had gone, else 0: then net/http sends 200,
	// but echo, and others whose handlers return errors, send what they make of the error.
	Status  int
	Header  http.Header // as it was sent, or will be
	Written int64       // bytes of the body
	Gone    bool        // the context of the request had ended: mostly since the client has gone
}

// recorder notes what a handler writes.
type recorder struct {
	status  int // 0: nothing was written
	written int64
}

func (c *recorder) wrote(status int) {
	final := status >= 200 || status == http.StatusSwitchingProtocols // those of 1xx come before another
	if c.status == 0 && final {
		c.status = status
	}
}

// wrap returns a writer that can do what w can.
func (c *recorder) wrap(w http.ResponseWriter) http.ResponseWriter {
	count := func(n int64) {
		c.wrote(http.StatusOK)
		c.written += n
	}
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) {
				next(status)
				c.wrote(status)
			}
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) {
				n, err := next(b)
				count(int64(n))
				return n, err
			}
		},
		WriteString: func(next httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) {
				n, err := next(s)
				count(int64(n))
				return n, err
			}
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) {
				n, err := next(src)
				count(n)
				return n, err
			}
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() {
				next()
				c.wrote(http.StatusOK)
			}
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, rw, err := next()
				if err == nil {
					c.wrote(http.StatusSwitchingProtocols)
				}
				return conn, rw, err
			}
		},
	})
}

// response returns what was written.
func (c *recorder) response(r *http.Request, h http.Header, panicked bool) *Response {
	resp := &Response{Request: r, Status: c.status, Header: h, Written: c.written, Gone: r.Context().Err() != nil}
	switch {
	case c.status != 0:
	case panicked:
		resp.Status = http.StatusInternalServerError
	case resp.Gone:
		resp.Status = StatusGone
	}
	return resp
}
