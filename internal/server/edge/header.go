package edge

import (
	"bytes"
	"errors"
	"net"
	"sync/atomic"
)

// A header has at most maxHeaderBytes bytes, 4 KiB more as net/http counts, and
// maxHeaderLines lines. A line of three bytes takes about a hundred of memory once it is read: 64 KiB
// of them were 1.2 MB for each connection.
const (
	maxHeaderBytes = 16 << 10
	maxHeaderLines = 100
)

// heading is a connection that bounds the lines of the header of a request.
type heading struct {
	net.Conn
	connState
	within atomic.Bool // a header is being read, or waited for
	// Of that header, for the goroutine that reads it:
	lines int  // that have ended
	blank bool // there is nothing in the present one
	ended bool
}

var errLines = errors.New("the header has too many lines")

// begin expects a header.
func (h *heading) begin() {
	h.lines, h.blank, h.ended = 0, true, false
	h.within.Store(true)
}

// Read implements net.Conn.
func (h *heading) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if n > 0 && h.within.Load() && !h.count(p[:n]) {
		return 0, errLines
	}
	return n, err
}

// count reports whether the header may go on with what was read.
func (h *heading) count(text []byte) bool {
	for !h.ended {
		i := bytes.IndexByte(text, '\n')
		if i < 0 {
			h.blank = h.blank && len(bytes.TrimRight(text, "\r")) == 0
			return true
		}
		h.ended = h.blank && len(bytes.TrimRight(text[:i], "\r")) == 0
		if h.lines++; h.lines > maxHeaderLines && !h.ended {
			return false
		}
		h.blank, text = true, text[i+1:]
	}
	return true
}

// CloseWrite lets net/http end its side first, so that an answer arrives although the
// rest of a request was not read.
func (h *heading) CloseWrite() error {
	if c, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
