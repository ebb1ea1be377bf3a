package rest

import (
	"bytes"
	"fmt"
	"sync/atomic"

	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/store"
)

// What a request holds that is not counted, so that a small one passes while large
// ones hold all there is.
const (
	freeBytes   = 4 << 10 // of a body
	freeObjects = 8       // of JSON, each perhaps a charge
)

// perObject is about what an object of JSON holds while its request is decided: as a charge,
// on its way to the store and back, and in the answer. Measured for batches: 1.5 to 5 kB are allocated for each, of
// which about half lives at a time.
const perObject = 2 << 10

// load is what the requests in flight hold together.
type load struct {
	maxRequests, maxBytes int64
	requests, bytes       atomic.Int64
}

// share is what one request holds of a load. It is for one goroutine.
type share struct {
	of      *load
	bytes   int64
	entered bool
}

// enter counts the request as one that is being decided.
func (s *share) enter() error {
	if s.of.requests.Add(1) > s.of.maxRequests {
		s.of.requests.Add(-1)
		return fmt.Errorf("%w: %d requests are being decided, as many as may", store.ErrBusy, s.of.maxRequests)
	}
	s.entered = true
	return nil
}

// leave counts it no more: it is decided, and its client may take its time to read.
func (s *share) leave() {
	if s.entered {
		s.of.requests.Add(-1)
		s.entered = false
	}
}

// hold counts n more bytes, or fewer if n is negative.
func (s *share) hold(n int64) error {
	if s.of.bytes.Add(n) > s.of.maxBytes && n > 0 {
		s.of.bytes.Add(-n)
		return fmt.Errorf("%w: requests hold as many bytes as they may, %d", store.ErrBusy, s.of.maxBytes)
	}
	s.bytes += n
	return nil
}

// holdFor counts what it takes to decide a request.
func (s *share) holdFor(body []byte) error {
	objects := min(bytes.Count(body, []byte("{")), api.MaxCharges) // the rest is refused
	return s.hold(perObject * int64(max(0, objects-freeObjects)))
}

// release ends it.
func (s *share) release() {
	s.of.bytes.Add(-s.bytes)
	s.bytes = 0
	s.leave()
}
