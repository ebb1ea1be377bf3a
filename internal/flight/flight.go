// Package flight lets callers share one call: a flight is a call, a passenger one caller or several, and a load what a
// passenger asks for.
//
// Callers queue in the order in which they arrive. A flight departs at once when none is under way, and takes those
// that wait, up to a size. Another one departs beside it only when enough callers wait to be worth a call. A lone
// caller never waits. A flight under way for longer than Patience is late: the queue no longer waits for it.
//
// A load may have keys. A key is in one flight at a time, and passengers that have a key in common go in the order in
// which they arrived: a passenger with a key under way waits for that flight, and other passengers overtake it.
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

// Load is the part of a call that one passenger asks for. One goroutine at a time uses it.
type Load[K comparable] interface {
	// Size returns how much the load adds to the size of a flight.
	Size() int
	// Keys returns the number of keys, and Key one of them. Keys do not change while the load waits.
	Keys() int
	Key(i int) K
	// Clear empties the load for reuse.
	Clear()
}

// Config describes a Queue. All fields but CallerFlies and Held are needed.
type Config[K comparable, L Load[K]] struct {
	MaxFlights int // flights under way at once, also late ones; as many more calls can be those of held passengers
	MinSize    int // size of the waiting passengers from which a flight departs beside others
	MaxSize    int // size of a flight, which its last passenger may exceed
	MaxWaiting int // callers who may wait

	New func() L // makes an empty load
	// Fly makes the call, and leaves the answer in each load. An error is the error of all passengers. caller is the
	// context of the caller in whose goroutine Fly runs, or context.Background. The end of caller must not cancel the
	// call, since others may share it.
	Fly func(caller context.Context, passengers []*Passenger[K, L]) error
	// CallerFlies reports whether a caller whose context can end calls Fly itself. Nil: no such caller does.
	CallerFlies func(ctx context.Context) bool
	// Land is called with passengers and the error of their flight, once their callers cannot leave it any more: each
	// has its result, or has left before.
	Land func(passengers []*Passenger[K, L], err error)
	// Held reports whether a passenger that has flown without an error has no answer yet, since another client holds
	// what it needs. A held passenger flies again beside the flights, with other held ones. Only passengers with the
	// same keys wait for it. Nil: no passenger is held.
	Held func(p *Passenger[K, L]) bool
}

// Queue holds callers who wait for flights. It is safe for concurrent use.
type Queue[K comparable, L Load[K]] struct {
	cfg           Config[K, L]
	passengerPool sync.Pool // *Passenger[K, L]

	mu            sync.Mutex
	waiting       []*Passenger[K, L] // in the order of their arrival
	size          int                // total size of waiting
	callers       int                // callers of the waiting passengers
	abandoned     int                // passengers in waiting without callers
	lanes         map[K]*lane[K, L]
	flights       []*flightState
	onTimeFlights int  // flights that are not late
	heldFlights   int  // goroutines that let held passengers fly again
	minToDepart   int  // below this total size, none departs beside others: the last try found too few passengers
	departures    int  // number of the last try to depart
	watching      bool // the goroutine of watchLateness runs
	closed        bool
	drained       bool          // closed, and no caller waits
	noCallers     chan struct{} // closed when drained is set
	activeTasks   int           // flights, heldFlights, and the goroutine of watchLateness
	idle          bool          // closed, and no task is active
	becameIdle    chan struct{} // closed when idle is set
	spareLanes    []*lane[K, L] // for reuse
}

// flightState is a flight under way, or one that a goroutine is about to start. The flights of a goroutine share it.
type flightState struct {
	startedAt time.Time // when it departed or landed last; zero until a goroutine claims it
	late      bool
}

// Patience is how long a flight may be under way before it is late.
const Patience = 20 * time.Millisecond

// lane is the state of a key that waits or flies.
type lane[K comparable, L Load[K]] struct {
	lastWaiting *Passenger[K, L] // the last waiting passenger with the key; nil: none
	passengers  int              // passengers with the key that wait or fly
	inFlight    int              // passengers that fly: all from one flight, but a held one may take longer
	blockedAt   int              // Queue.departures when a passenger with the key last had to wait
}

// New returns a queue.
func New[K comparable, L Load[K]](cfg Config[K, L]) *Queue[K, L] {
	q := &Queue[K, L]{cfg: cfg, lanes: map[K]*lane[K, L]{}}
	q.noCallers, q.becameIdle = make(chan struct{}), make(chan struct{})
	return q
}

// Lock locks the queue for Join or Add, which unlock it. After an error the queue is not locked.
func (q *Queue[K, L]) Lock() error {
	q.mu.Lock()
	switch {
	case q.closed:
		q.mu.Unlock()
		return ErrClosed
	case q.callers >= q.cfg.MaxWaiting:
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

// Last returns the last waiting passenger with a key; nil if there is none. The queue is locked.
func (q *Queue[K, L]) Last(key K) *Passenger[K, L] {
	if l := q.lanes[key]; l != nil {
		return l.lastWaiting
	}
	return nil
}

// Join adds a caller to a passenger that Last returned, and unlocks the queue. The caller has changed the load, and
// calls Wait next.
func (q *Queue[K, L]) Join(p *Passenger[K, L]) {
	p.callers++
	p.refs.Add(1)
	q.callers++
	q.mu.Unlock()
}

// Passenger returns an empty passenger, for Add. The queue need not be locked.
func (q *Queue[K, L]) Passenger() *Passenger[K, L] {
	p, _ := q.passengerPool.Get().(*Passenger[K, L])
	if p == nil {
		p = &Passenger[K, L]{queue: q, Load: q.cfg.New()}
	}
	return p
}

// Start says which flight a new caller has to start.
type Start int

const (
	startNone   Start = iota // none: a flight of another caller takes this one along
	startOwn                 // one of its own: none was under way
	startBeside              // a flight beside others
)

// Add adds a passenger with one caller, has lateness watched, and unlocks the queue. The result is for Wait.
func (q *Queue[K, L]) Add(p *Passenger[K, L]) (start Start) {
	p.arrived = make(chan struct{})
	p.callers = 1
	p.refs.Store(2)
	for i := range p.Load.Keys() {
		l := q.laneOf(p.Load.Key(i))
		l.passengers++
		l.lastWaiting = p
		p.lanes = append(p.lanes, l)
	}
	q.waiting = append(q.waiting, p)
	q.size += p.Load.Size()
	q.callers++
	switch {
	case len(q.flights) >= q.cfg.MaxFlights:
	case len(q.flights) == 0:
		start = startOwn
	case q.onTimeFlights == 0 || q.mayStartBeside(): // if a key of p is under way, it goes without p
		start = startBeside
	}
	if start > startNone {
		q.addFlight()
	}
	watch := start != startOwn && !q.watching
	if watch {
		q.watching = true
		q.activeTasks++
	}
	q.mu.Unlock()
	if watch {
		sched.Go(q.watchLateness)
	}
	return start
}

// mayStartBeside reports whether a flight may depart beside those under way. The queue is locked.
func (q *Queue[K, L]) mayStartBeside() bool {
	return len(q.flights) < q.cfg.MaxFlights && q.size >= max(q.cfg.MinSize, q.minToDepart)
}

// addFlight counts a flight that is about to start. The queue is locked.
func (q *Queue[K, L]) addFlight() {
	q.flights = append(q.flights, &flightState{})
	q.onTimeFlights++
	q.activeTasks++
}

// laneOf returns the lane of a key, and makes it if there is none. The queue is locked.
func (q *Queue[K, L]) laneOf(key K) *lane[K, L] {
	l := q.lanes[key]
	if l != nil {
		return l
	}
	if n := len(q.spareLanes); n > 0 {
		l, q.spareLanes = q.spareLanes[n-1], q.spareLanes[:n-1]
	} else {
		l = &lane[K, L]{}
	}
	q.lanes[key] = l
	return l
}

// Close refuses further callers, and returns when all waiting callers have their answers.
func (q *Queue[K, L]) Close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.signalDrained()
		q.signalIdle()
	}
	q.mu.Unlock()
	sched.Receive(q.becameIdle)
}

// taskDone counts the end of an active task. The queue is locked.
func (q *Queue[K, L]) taskDone() {
	q.activeTasks--
	q.signalIdle()
}

// signalIdle lets Close return once the queue is closed and no task is active. The queue is locked.
func (q *Queue[K, L]) signalIdle() {
	if q.closed && q.activeTasks == 0 && !q.idle {
		q.idle = true
		close(q.becameIdle)
	}
}

// signalDrained stops watchLateness once the queue is closed and no caller waits. It is called when callers becomes 0,
// and when the queue is closed. The queue is locked.
func (q *Queue[K, L]) signalDrained() {
	if q.closed && q.callers == 0 && !q.drained {
		q.drained = true
		close(q.noCallers)
	}
}
