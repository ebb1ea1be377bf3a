package rest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/load"
)

// The maximum size of a body.
const (
	maxListBytes = 4 << 20  // of requests with many charges: 400 bytes for each of api.MaxCharges
	maxBodyBytes = 64 << 10 // of requests with one key
)

// bodyBuffers are buffers for small bodies. A larger body takes memory as it arrives, not by its Content-Length.
var bodyBuffers = sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, load.FreeBytes)) }}

type body struct{ *bytes.Buffer }

// free returns the buffer to the pool. The text is invalid then.
func (b *body) free() {
	if b.Buffer != nil && b.Cap() == load.FreeBytes {
		b.Reset()
		bodyBuffers.Put(b.Buffer)
	}
	b.Buffer = nil
}

// read reads a request's body of at most limit bytes, and counts in a share what it takes beyond load.FreeBytes.
func (b *body) read(w http.ResponseWriter, r *http.Request, limit int64, s *load.Share) error {
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	in := http.MaxBytesReader(w, r.Body, limit)
	b.Buffer = bodyBuffers.Get().(*bytes.Buffer)
	for {
		if b.Available() == 0 {
			more := b.Cap()
			if err := s.Hold(int64(more)); err != nil {
				return err
			}
			b.Buffer = bytes.NewBuffer(append(make([]byte, 0, b.Cap()+more), b.Bytes()...))
		}
		room := b.AvailableBuffer()
		n, err := in.Read(room[:cap(room)])
		b.Write(room[:n])
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return readError(r, b.Len(), err)
		}
	}
}

// readError returns what to answer a client whose body could be read to byte after, and then failed with err.
func readError(r *http.Request, after int, err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return tooLarge(large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &api.Problem{
			Title: "Request timeout", Status: http.StatusRequestTimeout,
			Detail: fmt.Sprintf("the rest of the body did not arrive in time (after byte %d); nothing was charged",
				after),
		}
	case errors.Is(err, io.ErrUnexpectedEOF) && r.ContentLength > 0:
		return headgate.Invalid("body", "ends after byte %d of %d that were announced", after, r.ContentLength)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return headgate.Invalid("body", "ends in the middle (after byte %d)", after)
	}
	return headgate.Invalid("body", "%v", err)
}

// tooLarge returns the problem of a body that is larger than limit.
func tooLarge(limit int64) error {
	return &api.Problem{
		Title: "Request too large", Status: http.StatusRequestEntityTooLarge,
		Detail: fmt.Sprintf("at most %d bytes are read", limit),
	}
}
