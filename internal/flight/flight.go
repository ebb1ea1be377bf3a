// Package flight lets callers who wait for the same thing share one call.
//
// Callers queue in the order in which they arrive. A flight departs at once when none is
// under way, and takes all that wait. Another flight departs beside it only when enough
// callers wait to be worth a call of their own. A lone caller never waits. A flight that has
// been under way for longer than Patience is late: the queue does not wait for it any more.
//
// A load may have keys. A key is in one flight at a time, and passengers that have a key in
// common go in the order in which they arrived: a passenger with a key that is under way waits
// for that flight, and other passengers pass it.
package flight

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/sched"
)

// The errors of Lock.
var (
	ErrFull   = errors.New("too many callers are waiting")
	ErrClosed = errors.New("no flight leaves any more")
)

// Load is what a passenger brings to a flight. Its methods are called by one goroutine at a
// time.
type Load[K comparable] interface {
	// Size is how much room it takes in a flight.
	Size() int
	// Keys returns how many keys it has, and Key each of them. They do not change
	// while it waits.
	Keys() int
	Key(i int) K
	// Clear makes it empty, to be used again.
	Clear()
}

// Config describes a Queue. All fields but Held are needed.
type Config[K comparable, L Load[K]] struct {
	Flights int // under way at once, at most
	Least   int // the size of passengers for which a flight departs beside others
	Most    int // the size of a flight, but for its last passenger
	Waiting int // callers who may wait

	New func() L // makes an empty load
	// Fly makes the call, and leaves the answer in each load. What it returns is the
	// error of all of them. by is the context of the caller in whose goroutine it runs, or
	// context.Background. The call is not to be cut off when by ends, since others may share it.
	Fly func(by context.Context, passengers []*Passenger[K, L]) error
	// Flies reports whether a caller whose context can end flies itself. Nil: none does.
	Flies func(ctx context.Context) bool
	// Land is called after each flight with what became of it, once no caller can
	// leave it any more without having seen its end.
	Land func(passengers []*Passenger[K, L], err error)
	// Held reports whether a passenger that has flown without an error has no answer yet,
	// since somebody else holds what it needs. It flies again beside the flights, with
	// others like it, and nobody waits for it but for its keys. Nil: none is.
	Held func(p *Passenger[K, L]) bool
}

// Queue is callers who wait for flights. It is safe for concurrent use.
type Queue[K comparable, L Load[K]] struct {
	cfg  Config[K, L]
	free sync.Pool // *Passenger[K, L]

	mu      sync.Mutex
	waiting []*Passenger[K, L] // in the order in which they came
	size    int                // of those that wait
	callers int                // who wait
	gone    int                // passengers in waiting that everybody has left
	lanes   map[K]*lane[K, L]
	flights []*flightState
	flying  int  // of flights: those that are not late
	aside   int  // flights of passengers that are held
	tried   int  // the size of those that wait below which nothing new can depart
	scan    int  // number of the last departure
	watched bool // somebody sees to it that late flights are noticed
	closed  bool
	over    bool          // closed, and no caller waits
	empty   chan struct{} // closed with over
	busy    int           // flights, those beside them, and the goroutine that watches
	quiet   bool          // closed, and nothing is busy any more
	landed  chan struct{} // closed with quiet
	spare   []*lane[K, L]
}

// flightState is a flight under way.
type flightState struct {
	began time.Time
	late  bool
}

// Patience is how long a flight may be under way until it is late.
const Patience = 20 * time.Millisecond

// lane is the state of a key that waits or flies.
type lane[K comparable, L Load[K]] struct {
	last   *Passenger[K, L] // that waits, and came last; nil: none
	users  int              // passengers that wait or fly
	flying int              // passengers: several of one flight, one of which may be held longer
	passed int              // the number of the departure at which a passenger of this key stayed behind
}

// New returns a queue.
func New[K comparable, L Load[K]](cfg Config[K, L]) *Queue[K, L] {
	return &Queue[K, L]{cfg: cfg, lanes: map[K]*lane[K, L]{}, empty: make(chan struct{}), landed: make(chan struct{})}
}

// Lock locks the queue for a caller who wants to join a passenger, or to come with a new one:
// Join or Add end it. With an error nothing is locked.
func (q *Queue[K, L]) Lock() error {
	q.mu.Lock()
	switch {
	case q.closed:
		q.mu.Unlock()
		return ErrClosed
	case q.callers >= q.cfg.Waiting:
		q.mu.Unlock()
		return ErrFull
	}
	return nil
}

// Waiting returns how many callers wait for a flight that has not departed.
func (q *Queue[K, L]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.callers
}

// Last returns the passenger that waits with a key and came last; nil if there is none. The
// queue is locked.
func (q *Queue[K, L]) Last(key K) *Passenger[K, L] {
	if l := q.lanes[key]; l != nil {
		return l.last
	}
	return nil
}

// Join adds a caller to a passenger that Last returned, and unlocks the queue. The caller has
// changed the load, and calls Wait next.
func (q *Queue[K, L]) Join(p *Passenger[K, L]) {
	p.callers++
	p.aboard.Add(1)
	q.callers++
	q.mu.Unlock()
}

// Passenger returns an empty passenger, for Add. The queue need not be locked.
func (q *Queue[K, L]) Passenger() *Passenger[K, L] {
	p, _ := q.free.Get().(*Passenger[K, L])
	if p == nil {
		p = &Passenger[K, L]{queue: q, Load: q.cfg.New()}
	}
	return p
}

// Start is what a new caller has to start.
type Start int

const (
	joined Start = iota // nothing: the next flight takes it along
	first               // a flight, which takes it along: none was under way
	beside              // a flight beside others
)

// Add adds a passenger of one caller, and unlocks the queue. The caller calls Wait next, and
// passes on what Add has returned.
func (q *Queue[K, L]) Add(p *Passenger[K, L]) (start Start) {
	p.arrived = make(chan struct{})
	p.callers = 1
	p.aboard.Store(2)
	for i := range p.Load.Keys() {
		l := q.lane(p.Load.Key(i))
		l.users++
		l.last = p
		p.lanes = append(p.lanes, l)
	}
	q.waiting = append(q.waiting, p)
	q.size += p.Load.Size()
	q.callers++
	switch {
	case len(q.flights) >= q.cfg.Flights:
	case len(q.flights) == 0:
		start = first
	case q.flying == 0 || q.another(): // it goes without the passenger, if a key of it is under way
		start = beside
	}
	if start > joined {
		q.begin()
	}
	watch := start != first && !q.watched
	if watch {
		q.watched = true
		q.busy++
	}
	q.mu.Unlock()
	if watch {
		sched.Go(q.watch)
	}
	return start
}

// another reports whether a flight may depart beside those under way. The queue is locked.
func (q *Queue[K, L]) another() bool {
	return len(q.flights) < q.cfg.Flights && q.size >= max(q.cfg.Least, q.tried)
}

// begin counts a flight. The queue is locked.
func (q *Queue[K, L]) begin() {
	q.flights = append(q.flights, &flightState{})
	q.flying++
	q.busy++
}

func (q *Queue[K, L]) lane(key K) *lane[K, L] {
	l := q.lanes[key]
	if l != nil {
		return l
	}
	if n := len(q.spare); n > 0 {
		l, q.spare = q.spare[n-1], q.spare[:n-1]
	} else {
		l = &lane[K, L]{}
	}
	q.lanes[key] = l
	return l
}

// Close refuses further callers, and returns when those that wait have their answers.
func (q *Queue[K, L]) Close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.emptied()
		q.quieted()
	}
	q.mu.Unlock()
	sched.Receive(q.landed)
}

// done counts the end of a goroutine that was busy. The queue is locked.
func (q *Queue[K, L]) done() {
	q.busy--
	q.quieted()
}

// quieted lets Close return once the queue is closed and nothing is busy. While callers wait, a
// flight is busy. The queue is locked.
func (q *Queue[K, L]) quieted() {
	if q.closed && q.busy == 0 && !q.quiet {
		q.quiet = true
		close(q.landed)
	}
}

// emptied stops the goroutine that watches once the queue is closed and no caller waits. It is
// called when callers becomes 0, and when the queue is closed. The queue is locked.
func (q *Queue[K, L]) emptied() {
	if q.closed && q.callers == 0 && !q.over {
		q.over = true
		close(q.empty)
	}
}
