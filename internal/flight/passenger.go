package flight

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/headgate/headgate/internal/sched"
)

// Passenger is one caller, or several who share a load.
type Passenger[K comparable, L Load[K]] struct {
	// Load is guarded by the queue until the flight departs. From then on it is Fly's,
	// and after Wait has returned true the callers' to read, until Leave.
	Load L

	queue    *Queue[K, L]
	lanes    []*lane[K, L]
	callers  int // who have not left before departure
	picked   bool
	departed bool
	landed   bool
	err      error         // set before arrived is closed
	arrived  chan struct{} // closed when it has landed
	aboard   atomic.Int32  // callers who have not left, and the queue itself
}

// Wait waits until the passenger's flight has landed, and starts what Add has returned before,
// 0 for a caller who has joined. A caller whose context ends before that leaves it: left
// is called with the queue locked, and with whether the flight has departed. Wait then
// returns false, and the passenger is not to be touched again. If it returns true, the
// caller reads Err and Load, and calls Leave.
//
// A caller who finds no flight under way flies itself, which saves two changes of goroutine: on a busy machine
// each is a wait for a processor. If its context can end, Config.Flies is asked. It notices
// that its context has ended when the call has returned.
func (p *Passenger[K, L]) Wait(ctx context.Context, start Start, left func(departed bool)) (landed bool) {
	q, done := p.queue, ctx.Done()
	switch {
	case start == first && (done == nil || q.cfg.Flies != nil && q.cfg.Flies(ctx)):
		if q.run(ctx, p, left) {
			p.Leave()
			return false
		}
	case start > joined:
		sched.Go(q.fly)
	}
	if sched.Wait(sched.Forever, p.arrived, done, nil) == 0 {
		return true
	}
	q.mu.Lock()
	if p.landed {
		q.mu.Unlock()
		sched.Receive(p.arrived)
		return true
	}
	left(p.departed)
	if !p.departed {
		q.quit(p)
	}
	q.mu.Unlock()
	p.Leave()
	return false
}

// quit takes one caller of a passenger out that waits. The queue is locked.
func (q *Queue[K, L]) quit(p *Passenger[K, L]) {
	if q.callers--; q.callers == 0 {
		q.emptied()
	}
	if p.callers--; p.callers > 0 {
		return
	}
	q.release(p)
	q.size -= p.Load.Size()
	if q.gone++; q.gone < 16 || 2*q.gone < len(q.waiting) {
		return
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(p *Passenger[K, L]) bool {
		if p.callers > 0 {
			return false
		}
		p.Leave() // somebody else may have it from now on
		return true
	})
	q.gone = 0
}

// Err returns the error of a flight that has landed.
func (p *Passenger[K, L]) Err() error { return p.err }

// Leave ends a caller's use of a passenger whose flight has landed.
func (p *Passenger[K, L]) Leave() {
	if p.aboard.Add(-1) > 0 {
		return
	}
	p.Load.Clear()
	p.callers, p.departed, p.landed, p.err = 0, false, false, nil
	p.queue.free.Put(p)
}
