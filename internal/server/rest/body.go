package rest

import (
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

// The most that a request may send, in bytes.
const (
	maxList = 4 << 20  // where there may be many charges: 400 bytes for each of as many as may be
	maxBody = 64 << 10 // where there is one key
)

// Bodies are read into buffers of these sizes, each after the one before it is full:
// what was announced and has not come takes no memory. What is longer takes more of
// the last size.
var sizes = [...]int{load.FreeBytes, 16 << 10, 64 << 10}

var pools [len(sizes)]sync.Pool

// body is what a request has sent.
type body struct {
	text []byte
	kept []*[]byte // buffers from the pools
}

// free gives the buffers back. The text is invalid then.
func (b *body) free() {
	for _, buf := range b.kept {
		for i, size := range sizes {
			if len(*buf) == size {
				pools[i].Put(buf)
			}
		}
	}
	*b = body{}
}

// read reads a request's body of at most limit bytes, and counts it in a share.
func (b *body) read(w http.ResponseWriter, r *http.Request, limit int64, s *load.Share) error {
	if r.ContentLength > limit {
		return &http.MaxBytesError{Limit: limit}
	}
	in := http.MaxBytesReader(w, r.Body, limit)
	buf, n, total := b.next(0), 0, 0
	for {
		m, err := in.Read(buf[n:])
		n, total = n+m, total+m
		switch {
		case errors.Is(err, io.EOF):
			return b.join(buf[:n], total, s)
		case err != nil:
			return unread(r, total, err)
		case n < len(buf):
			continue
		}
		class := min(len(b.kept), len(sizes)-1)
		if err := s.Hold(int64(sizes[class])); err != nil {
			return err
		}
		larger := b.next(class)
		if len(larger) > len(buf) {
			copy(larger, buf) // n goes on
		} else {
			n = 0
		}
		buf = larger
	}
}

// next takes a buffer.
func (b *body) next(class int) []byte {
	buf, ok := pools[class].Get().(*[]byte)
	if !ok {
		buf = new(make([]byte, sizes[class]))
	}
	b.kept = append(b.kept, buf)
	return *buf
}

// join makes one text of the buffers of which the last is given.
func (b *body) join(last []byte, total int, s *load.Share) error {
	if len(last) == total {
		b.text = last
		return nil
	}
	if err := s.Hold(int64(total)); err != nil {
		return err
	}
	b.text = make([]byte, 0, total)
	for _, buf := range b.kept[len(sizes)-1 : len(b.kept)-1] {
		b.text = append(b.text, *buf...)
	}
	b.text = append(b.text, last...)
	return nil
}

// unread says why a body was not read to its end.
func unread(r *http.Request, after int, err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w after byte %d", errSlow, after)
	case errors.Is(err, io.ErrUnexpectedEOF) && r.ContentLength > 0:
		return headgate.Invalid("body", "ends after byte %d of %d that were announced", after, r.ContentLength)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return headgate.Invalid("body", "ends in the middle (after byte %d)", after)
	}
	return headgate.Invalid("body", "%v", err)
}

// errSlow: the body did not come in time.
var errSlow = errors.New("the rest of the body did not arrive in time,")

// invalid makes an error of what a body is wrong about.
func invalid(err error) error {
	var wrong *api.ReadError
	if errors.As(err, &wrong) {
		return headgate.Invalid(wrong.Field, "%s", wrong.Detail)
	}
	return err
}
