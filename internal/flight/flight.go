// Package flight lets callers who wait for the same thing share one call.
//
// While one flight is under way, newcomers join the next one; it departs as
// soon as the one before has landed. There is no timer: a caller who comes
// alone leaves at once. Callers join in the order in which they come.
package flight

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/internal/sched"
)

// The errors of Board.
var (
	ErrFull   = errors.New("too many callers are waiting")
	ErrClosed = errors.New("no flight leaves any more")
)

// Batch is what the callers of one flight bring along. Its methods are called
// by one goroutine at a time.
type Batch interface {
	// Full reports whether nobody else can join.
	Full() bool
	// Clear makes the batch empty, to be used again.
	Clear()
}

// Line is a queue of flights with batch C, of which one is in the air at a
// time. It is safe for concurrent use.
type Line[C Batch] struct {
	load func() C        // makes an empty batch
	fly  func(C) error   // flies it
	land func(C, error)  // after its callers were let go: sees to callers that had left before
	room int             // callers who may wait
	free sync.Pool       // *Flight[C]
	done *sync.WaitGroup // counts lines with flights

	mu      sync.Mutex
	queue   []*Flight[C] // not yet departed; the last one is filling
	waiting int          // callers in queue
	flying  bool
	closed  bool
}

// Flight is one call for many.
type Flight[C Batch] struct {
	Batch C // the callers' to read after Wait has returned nil or the flight's error, until Leave

	line     *Line[C]
	callers  int           // guarded by line.mu
	departed bool          // guarded by line.mu
	landed   bool          // guarded by line.mu
	err      error         // set before arrived is closed
	arrived  chan struct{} // closed when it has landed
	aboard   atomic.Int32  // callers who have not left, and the line itself
}

// NewLine returns a line. load makes empty batch, fly flies it, and land is
// called after each flight with what became of it, once no caller can leave it
// any more without having seen its end. done counts the lines that are in use.
func NewLine[C Batch](room int, done *sync.WaitGroup, load func() C, fly func(C) error, land func(C, error)) *Line[C] {
	return &Line[C]{load: load, fly: fly, land: land, room: room, done: done}
}

// Board returns the flight that a caller can join, with the line locked: the
// caller adds to its Batch and calls Boarded. With an error nothing is locked.
func (l *Line[C]) Board() (*Flight[C], error) {
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return nil, ErrClosed
	case l.waiting >= l.room:
		l.mu.Unlock()
		return nil, ErrFull
	}
	if n := len(l.queue); n > 0 && !l.queue[n-1].Batch.Full() {
		return l.queue[n-1], nil
	}
	f, _ := l.free.Get().(*Flight[C])
	if f == nil {
		f = &Flight[C]{line: l, Batch: l.load()}
	}
	f.arrived = make(chan struct{})
	f.aboard.Store(1)
	l.queue = append(l.queue, f)
	return f, nil
}

// Boarded ends Board: the caller is aboard, and calls Wait next.
func (f *Flight[C]) Boarded() {
	l := f.line
	f.callers++
	f.aboard.Add(1)
	l.waiting++
	start := !l.flying
	if start {
		l.flying = true
		l.done.Add(1)
	}
	l.mu.Unlock()
	if start {
		sched.Go(l.run)
	}
}

// run flies what is queued, until nothing is.
func (l *Line[C]) run() {
	defer l.done.Done()
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.flying = false
			l.mu.Unlock()
			return
		}
		f := l.queue[0]
		n := copy(l.queue, l.queue[1:])
		l.queue[n] = nil
		l.queue = l.queue[:n]
		l.waiting -= f.callers
		f.departed = true
		l.mu.Unlock()

		f.err = l.fly(f.Batch)
		l.mu.Lock()
		f.landed = true
		l.mu.Unlock()
		close(f.arrived)
		l.land(f.Batch, f.err)
		f.Leave()
		// Callers that have just been let go mostly come again at once. They can
		// run now and join the next flight, if nobody else wants the processor.
		sched.Yield()
	}
}

// Wait waits until the flight has landed. A caller whose context ends before
// that leaves it: left is called with the line locked, and told whether the
// flight has departed. Wait then returns false, and the flight is not to be
// touched again. If it returns true, the caller reads Err and Batch, and calls
// Leave.
func (f *Flight[C]) Wait(ctx context.Context, left func(c C, departed bool)) (landed bool) {
	if done := ctx.Done(); done != nil {
		if sched.Either(f.arrived, done) {
			return true
		}
		f.line.mu.Lock()
		if !f.landed {
			left(f.Batch, f.departed)
			if !f.departed {
				f.callers--
				f.line.waiting--
			}
			f.line.mu.Unlock()
			f.Leave()
			return false
		}
		f.line.mu.Unlock()
	}
	sched.Receive(f.arrived)
	return true
}

// Err returns the error of a flight that has landed.
func (f *Flight[C]) Err() error { return f.err }

// Close refuses further callers. Those that wait are still answered.
func (l *Line[C]) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
}

// Leave ends a caller's use of a flight that has landed.
func (f *Flight[C]) Leave() {
	if f.aboard.Add(-1) > 0 {
		return
	}
	f.Batch.Clear()
	f.callers, f.departed, f.landed, f.err = 0, false, false, nil
	f.line.free.Put(f)
}
