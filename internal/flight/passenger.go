package flight

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/headgate/headgate/internal/sched"
)

// Passenger is one caller, or several who share a load.
type Passenger[K comparable, L Load[K]] struct {
	// Load is guarded by the queue until the flight departs. Then only Fly and Held use it, and after Wait has returned
	// true the callers may read it until Leave.
	Load L

	queue    *Queue[K, L]
	lanes    []*lane[K, L]
	callers  int  // callers who have not left before departure
	picked   bool // takePassengers has chosen it for a flight, if it has examined it in this try
	departed bool
	landed   bool
	err      error         // set before arrived is closed
	arrived  chan struct{} // closed when landed is set
	refs     atomic.Int32  // callers who have not called Leave, and the queue itself
}

// Wait waits until the passenger's flight has landed. First it starts the flight that start names: the result of Add,
// or 0 for a caller who has joined. A caller whose context ends before the landing leaves: onLeave is called with the
// queue locked, and with whether the flight has departed. Wait then returns false, and the caller must not use the
// passenger again. If Wait returns true, the caller reads Err and Load, and calls Leave.
//
// A caller who finds no flight under way calls Fly itself, which saves two changes of goroutine: on a busy machine
// each is a wait for a processor. If its context can end, Config.CallerFlies decides. Such a caller notices the end
// of its context only when the call has returned.
func (p *Passenger[K, L]) Wait(ctx context.Context, start Start, onLeave func(departed bool)) (landed bool) {
	q, done := p.queue, ctx.Done()
	switch {
	case start == startOwn && (done == nil || q.cfg.CallerFlies != nil && q.cfg.CallerFlies(ctx)):
		if q.run(ctx, p, onLeave) {
			p.Leave()
			return false
		}
	case start > startNone:
		sched.Go(q.runFlights)
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
	onLeave(p.departed)
	if !p.departed {
		q.dropCaller(p)
	}
	q.mu.Unlock()
	p.Leave()
	return false
}

// dropCaller removes one caller from a waiting passenger, and at times passengers without callers. The queue is locked.
func (q *Queue[K, L]) dropCaller(p *Passenger[K, L]) {
	if q.callers--; q.callers == 0 {
		q.signalDrained()
	}
	if p.callers--; p.callers > 0 {
		return
	}
	q.releaseKeys(p)
	q.size -= p.Load.Size()
	if q.abandoned++; q.abandoned < 16 || 2*q.abandoned < len(q.waiting) {
		return // too few to be worth a pass over all that wait
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(p *Passenger[K, L]) bool {
		if p.callers > 0 {
			return false
		}
		p.Leave() // it may be reused from now on
		return true
	})
	q.abandoned = 0
}

// Err returns the error of the passenger's flight, once that has landed.
func (p *Passenger[K, L]) Err() error { return p.err }

// Leave gives up a reference: each caller has one, and so has the queue. The last one empties the passenger for reuse.
func (p *Passenger[K, L]) Leave() {
	if p.refs.Add(-1) > 0 {
		return
	}
	p.Load.Clear()
	p.callers, p.departed, p.landed, p.err = 0, false, false, nil
	p.queue.passengerPool.Put(p)
}
