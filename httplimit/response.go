package httplimit

import (
	"bufio"
	"net"
	"net/http"

	"github.com/felixge/httpsnoop"
)

// StatusGone is the Status of a [Response] if the client had gone before the handler wrote a status. It is never sent.
const StatusGone = 499

// Response describes the answer of a handler that has returned or panicked.
type Response struct {
	Request *http.Request
	// Status is 101 if the connection was hijacked. If the handler wrote nothing, it is 500 if the
	// handler panicked, else StatusGone if the client had gone, else 0: then net/http sends 200, but
	// echo, and other frameworks whose handlers return errors, derive a status from the error.
	Status  int
	Header  http.Header // as it was or will be sent
	Written int64       // length of the body so far, in bytes
	Gone    bool        // the context of the request had ended: mostly since the client has gone
}

// recorder records the status and the length of what a handler writes.
type recorder struct {
	status  int   // 0: nothing was written
	written int64 // bytes of the body
}

func (rec *recorder) recordStatus(status int) {
	final := status >= 200 || status == http.StatusSwitchingProtocols // after another 1xx a final status follows
	if rec.status == 0 && final {
		rec.status = status
	}
}

// wrap returns a writer that records what passes, with all optional interfaces of w.
func (rec *recorder) wrap(w http.ResponseWriter) http.ResponseWriter {
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) {
				next(status)
				rec.recordStatus(status)
			}
		},
		Write:       func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc { return counted(rec, next) },
		WriteString: func(next httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc { return counted(rec, next) },
		ReadFrom:    func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc { return counted(rec, next) },
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() {
				next()
				rec.recordStatus(http.StatusOK)
			}
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, rw, err := next()
				if err == nil {
					rec.recordStatus(http.StatusSwitchingProtocols)
				}
				return conn, rw, err
			}
		},
	})
}

// counted returns a method of a writer that counts what it has written.
func counted[In any, N int | int64](rec *recorder, write func(In) (N, error)) func(In) (N, error) {
	return func(in In) (N, error) {
		n, err := write(in)
		rec.recordStatus(http.StatusOK)
		rec.written += int64(n)
		return n, err
	}
}

func (rec *recorder) response(r *http.Request, h http.Header, panicked bool) *Response {
	resp := &Response{Request: r, Status: rec.status, Header: h, Written: rec.written, Gone: r.Context().Err() != nil}
	switch {
	case rec.status != 0:
	case panicked:
		resp.Status = http.StatusInternalServerError
	case resp.Gone:
		resp.Status = StatusGone
	}
	return resp
}
