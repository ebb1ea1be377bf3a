package flight

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/sched"
)

// takePassengers removes the passengers of the next flight from the queue, and marks them departed: none if none can
// go, or too few for a flight beside others. The queue is locked, and the flight is already counted.
func (q *Queue[K, L]) takePassengers() []*Passenger[K, L] {
	q.departures++
	size, examined, picked := 0, 0, 0
	for _, p := range q.waiting {
		if size >= q.cfg.MaxSize {
			break
		}
		examined++
		if p.picked = p.callers > 0 && !q.mustWait(p); p.picked { // without callers it was abandoned
			size += p.Load.Size()
			picked++
		}
	}
	if picked == 0 || q.onTimeFlights > 1 && size < q.cfg.MinSize {
		q.minToDepart = q.size + q.cfg.MinSize
		return nil
	}
	passengers := make([]*Passenger[K, L], 0, picked)
	remaining := q.waiting[:0]
	for i, p := range q.waiting {
		switch {
		case i < examined && p.picked: // of others, picked is from an earlier try
			passengers = append(passengers, p)
			q.markDeparted(p)
		case p.callers > 0:
			remaining = append(remaining, p)
		default:
			q.abandoned--
			p.Leave()
		}
	}
	clear(q.waiting[len(remaining):])
	if q.waiting = remaining; q.callers == 0 {
		q.signalDrained()
	}
	return passengers
}

// mustWait reports whether a key of a passenger is under way, or blocked by a passenger before it that must wait. If
// so, it blocks all keys of this passenger for this try to depart.
func (q *Queue[K, L]) mustWait(p *Passenger[K, L]) bool {
	for _, l := range p.lanes {
		if l.inFlight == 0 && l.blockedAt != q.departures {
			continue
		}
		for _, l := range p.lanes {
			l.blockedAt = q.departures
		}
		return true
	}
	return false
}

// markDeparted updates the counts for a passenger that departs.
func (q *Queue[K, L]) markDeparted(p *Passenger[K, L]) {
	p.departed = true
	q.callers -= p.callers
	q.size -= p.Load.Size()
	for _, l := range p.lanes {
		if l.inFlight++; l.lastWaiting == p {
			l.lastWaiting = nil
		}
	}
}

// run runs one flight after another, until no passenger can go. In the goroutine of a caller, whose passenger is then
// ownPassenger, it runs one flight only, and starts a goroutine for the next. If the caller's context has ended when an
// answer without an error comes, run calls onLeave and returns true.
func (q *Queue[K, L]) run(ctx context.Context, ownPassenger *Passenger[K, L], onLeave func(departed bool)) (left bool) {
	q.mu.Lock()
	// A flight that is counted and that no goroutine runs yet.
	f := q.flights[slices.IndexFunc(q.flights, func(f *flightState) bool { return f.startedAt.IsZero() })]
	for {
		q.startClock(f)
		passengers := q.takePassengers()
		if passengers == nil {
			q.endFlight(f)
			q.mu.Unlock()
			return false
		}
		startAnother := q.mayStartBeside()
		if startAnother {
			q.addFlight()
		}
		q.mu.Unlock()
		if startAnother {
			sched.Go(q.runFlights)
		}
		err := q.cfg.Fly(ctx, passengers)
		answered, held := q.splitHeld(passengers, err)
		if err == nil && ownPassenger != nil && ctx.Err() != nil && slices.Contains(answered, ownPassenger) {
			q.mu.Lock()
			onLeave(true)
			q.mu.Unlock()
			left = true
		}
		if len(held) > 0 && !q.flyHeldAside(held) {
			q.deliver(answered, err)
			q.flyHeld(held)
			answered = nil
		}
		q.land(f, answered, err)
		if ownPassenger != nil {
			break
		}
		// Callers that have just been answered mostly come again at once. They can run now and join the next flight.
		sched.Yield()
		q.mu.Lock()
	}
	q.mu.Lock()
	q.startClock(f)
	goOn := len(q.waiting) > 0
	if goOn {
		f.startedAt = time.Time{}
	} else {
		q.endFlight(f)
	}
	q.mu.Unlock()
	if goOn {
		sched.Go(q.runFlights)
	}
	return left
}

// startClock restarts the time of a flight that departs or has landed, so that it is not late. The queue is locked.
func (q *Queue[K, L]) startClock(f *flightState) {
	if f.late {
		f.late = false
		q.onTimeFlights++
	}
	f.startedAt = sched.Now()
}

// endFlight removes a flight that is not late. The queue is locked.
func (q *Queue[K, L]) endFlight(f *flightState) {
	q.flights = slices.DeleteFunc(q.flights, func(g *flightState) bool { return g == f })
	q.onTimeFlights--
	q.taskDone()
}

// watchLateness marks flights that take too long as late, and then lets the next flight depart, as long as callers
// wait. One goroutine does it for all callers: with a timer for each caller, very many callers behind a silent store
// would leave no time for anything else.
func (q *Queue[K, L]) watchLateness() {
	for pause := Patience; ; {
		sched.Wait(pause, q.noCallers, nil, nil)
		q.mu.Lock()
		if q.callers == 0 {
			q.watching = false // the next caller who waits starts the goroutine again
			q.taskDone()
			q.mu.Unlock()
			return
		}
		pause = q.markLate()
		start := q.onTimeFlights == 0 && len(q.flights) < q.cfg.MaxFlights
		if start {
			q.addFlight()
		}
		q.mu.Unlock()
		if start {
			sched.Go(q.runFlights)
		}
	}
}

// markLate marks the flights that are late, and returns after how long to look again. The queue is locked.
func (q *Queue[K, L]) markLate() (next time.Duration) {
	next = Patience
	for _, f := range q.flights {
		if f.late || f.startedAt.IsZero() {
			continue
		}
		if untilLate := Patience - sched.Since(f.startedAt); untilLate > 0 {
			next = min(next, untilLate)
			continue
		}
		f.late = true
		q.onTimeFlights--
	}
	return max(next, time.Millisecond)
}

// runFlights runs flights in a goroutine of its own.
func (q *Queue[K, L]) runFlights() { q.run(context.Background(), nil, nil) }

// flyHeldAside lets held passengers fly again in a goroutine of their own, beside the flights. It returns false if
// MaxFlights such goroutines run: then the caller has to let them fly again.
func (q *Queue[K, L]) flyHeldAside(held []*Passenger[K, L]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.heldFlights >= q.cfg.MaxFlights {
		return false
	}
	q.heldFlights++
	q.activeTasks++
	sched.Go(func() {
		q.flyHeld(held)
		q.mu.Lock()
		q.heldFlights--
		q.taskDone()
		q.mu.Unlock()
	})
	return true
}

// flyHeld lets held passengers fly again until all are answered.
func (q *Queue[K, L]) flyHeld(held []*Passenger[K, L]) {
	for len(held) > 0 {
		err := q.cfg.Fly(context.Background(), held)
		answered, stillHeld := q.splitHeld(held, err)
		q.deliver(answered, err)
		q.startIfWaiting()
		held = stillHeld
	}
}

// startIfWaiting starts a flight for passengers that waited for a key of a held passenger. It does nothing if a
// flight is under way: they go after it.
func (q *Queue[K, L]) startIfWaiting() {
	q.mu.Lock()
	start := len(q.waiting) > 0 && q.onTimeFlights == 0 && len(q.flights) < q.cfg.MaxFlights
	if start {
		q.addFlight()
	}
	q.mu.Unlock()
	if start {
		sched.Go(q.runFlights)
	}
}

// splitHeld divides passengers that have flown into answered and held ones.
func (q *Queue[K, L]) splitHeld(passengers []*Passenger[K, L], err error) (answered, held []*Passenger[K, L]) {
	if err != nil || q.cfg.Held == nil || !slices.ContainsFunc(passengers, q.cfg.Held) {
		return passengers, nil
	}
	for _, p := range passengers {
		if q.cfg.Held(p) {
			held = append(held, p)
		} else {
			answered = append(answered, p)
		}
	}
	return answered, held
}

// land restarts the time of a flight that has landed, and wakes the callers of its passengers.
func (q *Queue[K, L]) land(f *flightState, passengers []*Passenger[K, L], err error) {
	q.mu.Lock()
	q.startClock(f)
	q.mu.Unlock()
	q.deliver(passengers, err)
}

// deliver records the result of passengers, wakes their callers, calls Land, and gives up the references of the queue.
func (q *Queue[K, L]) deliver(passengers []*Passenger[K, L], err error) {
	q.mu.Lock()
	for _, p := range passengers {
		p.landed, p.err = true, err
		q.releaseKeys(p)
	}
	q.minToDepart = 0
	q.mu.Unlock()
	for _, p := range passengers {
		close(p.arrived)
	}
	q.cfg.Land(passengers, err)
	for _, p := range passengers {
		p.Leave()
	}
}

// maxSpareLanes is how many lanes are kept for reuse.
const maxSpareLanes = 1024

// releaseKeys removes a passenger from the lanes of its keys. The queue is locked.
func (q *Queue[K, L]) releaseKeys(p *Passenger[K, L]) {
	for i, l := range p.lanes {
		if p.departed {
			l.inFlight--
		}
		if l.lastWaiting == p {
			l.lastWaiting = nil
		}
		if l.passengers--; l.passengers == 0 {
			delete(q.lanes, p.Load.Key(i))
			if len(q.spareLanes) < maxSpareLanes {
				*l = lane[K, L]{}
				q.spareLanes = append(q.spareLanes, l)
			}
		}
	}
	clear(p.lanes)
	p.lanes = p.lanes[:0]
}
