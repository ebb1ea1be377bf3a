package edge

import (
	"bytes"
	"errors"
	"net"
	"sync/atomic"
)

// A header has at most maxHeaderBytes bytes, to which net/http adds 4 KiB, or 8 KiB after another request, and
// maxHeaderLines lines. A line of three bytes takes a hundred bytes of memory once it is parsed: 64 KiB took 1.2 MB.
const (
	maxHeaderBytes = 16 << 10
	maxHeaderLines = 100
)

// headerConn is a connection that bounds the number of lines in the header of a request.
type headerConn struct {
	net.Conn
	connState
	inHeader atomic.Bool // a header is being read, or waited for
	// State of that header, used only by the goroutine that reads it:
	lines       int  // complete lines
	lineBlank   bool // the current line is blank so far
	headerEnded bool
}

var errTooManyLines = errors.New("the header has too many lines")

// expectHeader resets the state for another header.
func (h *headerConn) expectHeader() {
	h.lines, h.lineBlank, h.headerEnded = 0, true, false
	h.inHeader.Store(true)
}

// Read implements net.Conn.
func (h *headerConn) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if n > 0 && h.inHeader.Load() && !h.countLines(p[:n]) {
		return 0, errTooManyLines
	}
	return n, err
}

// countLines counts the lines of the header in text, with the request line, and reports whether they are not too many.
func (h *headerConn) countLines(text []byte) bool {
	for !h.headerEnded {
		i := bytes.IndexByte(text, '\n')
		if i < 0 {
			h.lineBlank = h.lineBlank && len(bytes.TrimRight(text, "\r")) == 0
			return true
		}
		h.headerEnded = h.lineBlank && len(bytes.TrimRight(text[:i], "\r")) == 0
		if h.lines++; h.lines > maxHeaderLines && !h.headerEnded {
			return false
		}
		h.lineBlank, text = true, text[i+1:]
	}
	return true
}

// CloseWrite lets net/http close its side first, so that the client gets an answer although the rest of the request was
// not read.
func (h *headerConn) CloseWrite() error {
	if c, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
