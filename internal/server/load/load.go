// Package load bounds the number and the memory of all requests in flight, over all protocols.
package load

import (
	"cmp"
	"fmt"
	"sync/atomic"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/store"
)

// The part of a request whose memory is not counted, so that small requests pass while large ones hold all memory.
const (
	FreeBytes   = 4 << 10 // bytes of a body
	FreeObjects = 8       // objects of a message, such as charges
)

// BytesPerObject is about how many bytes an object of a message takes while its request is decided: as a charge, on its
// way to the store and back, and in the answer. Measured for batches in JSON: 1.5 to 5 kB are allocated for an object,
// of which about half is in use at a time.
const BytesPerObject = 2 << 10

// Load counts the requests in flight and their memory. It is created with [New] and safe for concurrent use.
type Load struct {
	maxRequests, maxBytes int64
	requests, bytes       atomic.Int64
}

// New returns a Load that admits at most maxRequests requests to be decided at a time, and at most maxBytes bytes
// for all requests in flight. Zero or less stands for 4,096 requests, and for 128 MiB.
func New(maxRequests int, maxBytes int64) *Load {
	return &Load{maxRequests: int64(cmp.Or(max(maxRequests, 0), 4096)), maxBytes: cmp.Or(max(maxBytes, 0), 128<<20)}
}

// InFlight returns how many requests are being decided, and how many bytes all requests in flight hold.
func (l *Load) InFlight() (requests, bytes int64) { return l.requests.Load(), l.bytes.Load() }

// Share returns an empty share for a new request.
func (l *Load) Share() Share { return Share{load: l} }

// Share is the part of a Load that one request holds. It is for one goroutine, which must call Release.
type Share struct {
	load    *Load
	bytes   int64
	entered bool
}

// Enter counts the request as being decided, until Leave. Further calls do nothing. The error is store.ErrBusy.
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

// Leave ends Enter: the request is decided, and its client may read the answer slowly.
func (s *Share) Leave() {
	if s.entered {
		s.load.requests.Add(-1)
		s.entered = false
	}
}

// Bytes returns how many bytes the share holds.
func (s *Share) Bytes() int64 { return s.bytes }

// Hold counts n more bytes, or fewer if n is negative. The error is store.ErrBusy, and then nothing is counted.
func (s *Share) Hold(n int64) error {
	if s.load.bytes.Add(n) > s.load.maxBytes && n > 0 {
		s.load.bytes.Add(-n)
		return fmt.Errorf("%w: requests hold as many bytes as they may, %d", store.ErrBusy, s.load.maxBytes)
	}
	s.bytes += n
	return nil
}

// HoldObjects holds the memory to decide n objects, mostly charges, but for FreeObjects. The error is store.ErrBusy.
func (s *Share) HoldObjects(n int) error {
	n = min(n, api.MaxCharges) // a request with more is rejected
	return s.Hold(BytesPerObject * int64(max(0, n-FreeObjects)))
}

// Release gives back everything that the share holds.
func (s *Share) Release() {
	s.load.bytes.Add(-s.bytes)
	s.bytes = 0
	s.Leave()
}
