package flight

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/sched"
)

// depart takes the passengers of the next flight out of the queue, none if nobody can go, or
// too few for a flight beside others. The queue is locked, and the flight is counted.
func (q *Queue[K, L]) depart() []*Passenger[K, L] {
	q.scan++
	size, seen, picked := 0, 0, 0
	for _, p := range q.waiting {
		if size >= q.cfg.Most {
			break
		}
		seen++
		if p.picked = p.callers > 0 && !q.staysBehind(p); p.picked {
			size += p.Load.Size()
			picked++
		}
	}
	if picked == 0 || q.flying > 1 && size < q.cfg.Least {
		q.tried = q.size + q.cfg.Least
		return nil
	}
	passengers := make([]*Passenger[K, L], 0, picked)
	kept := q.waiting[:0]
	for i, p := range q.waiting {
		switch {
		case i < seen && p.picked:
			passengers = append(passengers, p)
			q.goes(p)
		case p.callers > 0:
			kept = append(kept, p)
		default:
			q.gone--
			p.Leave()
		}
	}
	clear(q.waiting[len(kept):])
	if q.waiting = kept; q.callers == 0 {
		q.emptied()
	}
	return passengers
}

// staysBehind reports whether a key of a passenger is under way, or waits in a passenger that
// stays behind: then all of its keys do.
func (q *Queue[K, L]) staysBehind(p *Passenger[K, L]) bool {
	for _, l := range p.lanes {
		if l.flying == 0 && l.passed != q.scan {
			continue
		}
		for _, l := range p.lanes {
			l.passed = q.scan
		}
		return true
	}
	return false
}

// goes notes that a passenger departs.
func (q *Queue[K, L]) goes(p *Passenger[K, L]) {
	p.departed = true
	q.callers -= p.callers
	q.size -= p.Load.Size()
	for _, l := range p.lanes {
		if l.flying++; l.last == p {
			l.last = nil
		}
	}
}

// run flies one flight after another, until nothing is to go. In the goroutine of a caller it flies one, and leaves
// what comes then to others; own is the caller's passenger, else nil. It reports whether the caller's context had ended
// when its answer came, which left was told then.
func (q *Queue[K, L]) run(ctx context.Context, own *Passenger[K, L], left func(departed bool)) (gone bool) {
	q.mu.Lock()
	f := q.claim()
	for {
		q.onTime(f)
		passengers := q.depart()
		if passengers == nil {
			q.end(f)
			q.mu.Unlock()
			return false
		}
		more := q.another()
		if more {
			q.begin()
		}
		q.mu.Unlock()
		if more {
			sched.Go(q.fly)
		}
		err := q.cfg.Fly(ctx, passengers)
		free, held := q.split(passengers, err)
		if err == nil && own != nil && ctx.Err() != nil && slices.Contains(free, own) {
			q.mu.Lock()
			left(true)
			q.mu.Unlock()
			gone = true
		}
		if len(held) > 0 && !q.setAside(held) {
			q.settle(free, err)
			q.again(held)
			free = nil
		}
		q.land(f, free, err)
		if own != nil {
			break
		}
		// Callers that have just been let go mostly come again at once. They can
		// run now and join the next flight, if nobody else wants the processor.
		sched.Yield()
		q.mu.Lock()
	}
	q.mu.Lock()
	q.onTime(f)
	next := len(q.waiting) > 0
	if next {
		f.began = time.Time{}
	} else {
		q.end(f)
	}
	q.mu.Unlock()
	if next {
		sched.Go(q.fly)
	}
	return gone
}

// claim returns a flight that was begun, and that nobody flies yet. The queue is locked.
func (q *Queue[K, L]) claim() *flightState {
	i := slices.IndexFunc(q.flights, func(f *flightState) bool { return f.began.IsZero() })
	return q.flights[i]
}

// onTime lets the time of a flight begin: it departs, or has landed. The queue is locked.
func (q *Queue[K, L]) onTime(f *flightState) {
	if f.late {
		f.late = false
		q.flying++
	}
	f.began = sched.Now()
}

// end ends a flight that is not late. The queue is locked.
func (q *Queue[K, L]) end(f *flightState) {
	q.flights = slices.DeleteFunc(q.flights, func(g *flightState) bool { return g == f })
	q.flying--
	q.done()
}

// watch takes flights that are under way for long for late, and lets the next one depart, for as
// long as somebody waits. One goroutine does it for all: each caller by itself would, with very many
// callers behind a store that is silent, do nothing but that.
func (q *Queue[K, L]) watch() {
	for pause := Patience; ; {
		sched.Wait(pause, q.empty, nil, nil)
		q.mu.Lock()
		if q.callers == 0 {
			q.watched = false
			q.done()
			q.mu.Unlock()
			return
		}
		pause = q.lateness()
		start := q.flying == 0 && len(q.flights) < q.cfg.Flights
		if start {
			q.begin()
		}
		q.mu.Unlock()
		if start {
			sched.Go(q.fly)
		}
	}
}

// lateness takes flights for late that are, and returns when the next one will be. The queue is locked.
func (q *Queue[K, L]) lateness() (next time.Duration) {
	next = Patience
	for _, f := range q.flights {
		if f.late || f.began.IsZero() {
			continue
		}
		if left := Patience - sched.Since(f.began); left > 0 {
			next = min(next, left)
			continue
		}
		f.late = true
		q.flying--
	}
	return max(next, time.Millisecond)
}

func (q *Queue[K, L]) fly() { q.run(context.Background(), nil, nil) }

// setAside lets passengers that are held fly again beside the flights. It reports false if as
// many do so already as there may be flights: then they fly again in their own.
func (q *Queue[K, L]) setAside(held []*Passenger[K, L]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.aside >= q.cfg.Flights {
		return false
	}
	q.aside++
	q.busy++
	sched.Go(func() {
		q.again(held)
		q.mu.Lock()
		q.aside--
		q.done()
		q.mu.Unlock()
	})
	return true
}

// again flies passengers that are held until they are answered.
func (q *Queue[K, L]) again(held []*Passenger[K, L]) {
	for len(held) > 0 {
		err := q.cfg.Fly(context.Background(), held)
		free, still := q.split(held, err)
		q.settle(free, err)
		q.wake()
		held = still
	}
}

// wake begins a flight for passengers that waited for a key of one that was held, unless a
// flight is under way, after which they go.
func (q *Queue[K, L]) wake() {
	q.mu.Lock()
	start := len(q.waiting) > 0 && q.flying == 0 && len(q.flights) < q.cfg.Flights
	if start {
		q.begin()
	}
	q.mu.Unlock()
	if start {
		sched.Go(q.fly)
	}
}

// split divides passengers that have flown into those that have an answer, and those that are
// held.
func (q *Queue[K, L]) split(passengers []*Passenger[K, L], err error) (free, held []*Passenger[K, L]) {
	if err != nil || q.cfg.Held == nil || !slices.ContainsFunc(passengers, q.cfg.Held) {
		return passengers, nil
	}
	for _, p := range passengers {
		if q.cfg.Held(p) {
			held = append(held, p)
		} else {
			free = append(free, p)
		}
	}
	return free, held
}

// land lets the callers of a flight go.
func (q *Queue[K, L]) land(f *flightState, passengers []*Passenger[K, L], err error) {
	q.mu.Lock()
	q.onTime(f)
	q.mu.Unlock()
	q.settle(passengers, err)
}

// settle lets the callers of passengers go.
func (q *Queue[K, L]) settle(passengers []*Passenger[K, L], err error) {
	q.mu.Lock()
	for _, p := range passengers {
		p.landed, p.err = true, err
		q.release(p)
	}
	q.tried = 0
	q.mu.Unlock()
	for _, p := range passengers {
		close(p.arrived)
	}
	q.cfg.Land(passengers, err)
	for _, p := range passengers {
		p.Leave()
	}
}

// release ends what a passenger has to do with its keys.
func (q *Queue[K, L]) release(p *Passenger[K, L]) {
	for i, l := range p.lanes {
		if p.departed {
			l.flying--
		}
		if l.last == p {
			l.last = nil
		}
		if l.users--; l.users == 0 {
			delete(q.lanes, p.Load.Key(i))
			if len(q.spare) < 1024 {
				*l = lane[K, L]{}
				q.spare = append(q.spare, l)
			}
		}
	}
	clear(p.lanes)
	p.lanes = p.lanes[:0]
}
