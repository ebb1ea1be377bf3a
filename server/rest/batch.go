package rest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/server/service"
)

// buffers hold requests and answers of batches.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxKept is how large a buffer may be that is used again.
const maxKept = 1 << 20

func free(b *bytes.Buffer) {
	if b.Cap() <= maxKept {
		b.Reset()
		buffers.Put(b)
	}
}

// batch serves batches. They carry most decisions where there are many, so
// what is usual goes a faster way.
func (d *door) batch(w http.ResponseWriter, r *http.Request, s *service.Service) {
	in := buffers.Get().(*bytes.Buffer)
	defer free(in)
	if r.ContentLength > 0 && r.ContentLength < maxKept {
		in.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	if _, err := in.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		if large := (*http.MaxBytesError)(nil); !errors.As(err, &large) {
			err = service.Invalid("body", "%v", err)
		}
		d.fail(w, r, err)
		return
	}
	b := new(api.Batch)
	if !b.ScanJSON(in.Bytes()) {
		*b = api.Batch{}
		if err := decode(bytes.NewReader(in.Bytes()), b); err != nil {
			d.fail(w, r, err)
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	answers, err := s.Batch(ctx, b)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	out := buffers.Get().(*bytes.Buffer)
	defer free(out)
	out.Grow(128 * len(answers.Answers))
	out.Write(append(answers.AppendJSON(out.AvailableBuffer()), '\n'))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(out.Len()))
	if _, err := w.Write(out.Bytes()); err != nil {
		d.log.Debug("write answer", "error", err)
	}
}
