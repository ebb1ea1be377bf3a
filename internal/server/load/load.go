// Package load bounds what all requests in flight take together, by whatever protocol they came.
package load

import (
	"cmp"
	"fmt"
	"sync/atomic"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/store"
)

// What a request holds that is not counted, so that a small one passes while large
// ones hold all there is.
const (
	FreeBytes   = 4 << 10 // of a body
	FreeObjects = 8       // of a message, each perhaps a charge
)

// PerObject is about what an object of a message holds while its request is decided: as a charge,
// on its way to the store and back, and in the answer. Measured for batches in JSON: 1.5 to 5 kB are
// allocated for each, of which about half lives at a time.
const PerObject = 2 << 10

// Load counts what requests in flight hold. Create one with [New]. It is safe for concurrent use.
type Load struct {
	maxRequests, maxBytes int64
	requests, bytes       atomic.Int64
}

// New returns a load of at most maxRequests requests that are decided at a time and hold at most maxBytes
// bytes. Zero stands for 4,096 requests, and for 128 MiB.
func New(maxRequests int, maxBytes int64) *Load {
	return &Load{
		maxRequests: int64(cmp.Or(max(maxRequests, 0), 4096)), maxBytes: cmp.Or(max(maxBytes, 0), 128<<20),
	}
}

// InFlight returns how many requests are being decided, and how many bytes those in flight hold.
func (l *Load) InFlight() (requests, bytes int64) { return l.requests.Load(), l.bytes.Load() }

// Share returns the share of a request that has just come. It holds nothing yet.
func (l *Load) Share() Share { return Share{load: l} }

// Share is a request's part of a load, for one goroutine, which must call Release.
type Share struct {
	load    *Load
	bytes   int64
	entered bool
}

// Enter counts the request as one that is being decided, once. The error is store.ErrBusy.
func (s *Share) Enter() error {
	if s.entered {
		return nil
	}
	if s.load.requests.Add(1) > s.load.maxRequests {
		s.load.requests.Add(-1)
		return fmt.Errorf("%w: %d requests are being decided, as many as may", store.ErrBusy, s.load.maxRequests)
	}
	s.entered = true
	return nil
}

// Leave counts it no more: it is decided, and its client may take its time to read.
func (s *Share) Leave() {
	if s.entered {
		s.load.requests.Add(-1)
		s.entered = false
	}
}

// Bytes returns how many bytes it holds.
func (s *Share) Bytes() int64 { return s.bytes }

// Hold counts n more bytes, or fewer if n is negative. The error is store.ErrBusy.
func (s *Share) Hold(n int64) error {
	if s.load.bytes.Add(n) > s.load.maxBytes && n > 0 {
		s.load.bytes.Add(-n)
		return fmt.Errorf("%w: requests hold as many bytes as they may, %d", store.ErrBusy, s.load.maxBytes)
	}
	s.bytes += n
	return nil
}

// HoldObjects counts what it takes to decide a request of n objects, charges mostly. The error is
// store.ErrBusy.
func (s *Share) HoldObjects(n int) error {
	n = min(n, api.MaxCharges) // the rest is refused
	return s.Hold(PerObject * int64(max(0, n-FreeObjects)))
}

// Release ends it.
func (s *Share) Release() {
	s.load.bytes.Add(-s.bytes)
	s.bytes = 0
	s.Leave()
}
