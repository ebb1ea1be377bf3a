package flight_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/flight"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// load is the load of a passenger: a name, and keys.
type load struct {
	name string
	keys []string
}

func (l *load) Size() int        { return 1 }
func (l *load) Keys() int        { return len(l.keys) }
func (l *load) Key(i int) string { return l.keys[i] }
func (l *load) Clear()           { *l = load{} }

type passenger = flight.Passenger[string, *load]

// testQueue is a queue whose flights end when the test calls land.
type testQueue struct {
	*flight.Queue[string, *load]
	mu       sync.Mutex
	flights  [][]string // the names of the passengers of each flight that has departed
	landings map[string]chan error
	heldName string // the passenger that is held
}

func newTestQueue(maxFlights, minSize, maxSize, maxWaiting int) *testQueue {
	q := &testQueue{landings: map[string]chan error{}}
	q.Queue = flight.New(flight.Config[string, *load]{
		MaxFlights: maxFlights, MinSize: minSize, MaxSize: maxSize, MaxWaiting: maxWaiting,
		New: func() *load { return &load{} },
		Fly: func(_ context.Context, passengers []*passenger) error {
			names, landing := []string{}, make(chan error)
			q.mu.Lock()
			for _, p := range passengers {
				names = append(names, p.Load.name)
				q.landings[p.Load.name] = landing
			}
			q.flights = append(q.flights, names)
			q.mu.Unlock()
			return <-landing
		},
		Land: func([]*passenger, error) {},
		Held: func(p *passenger) bool { return p.Load.name == q.heldName },
	})
	return q
}

// enqueue starts a caller, and waits until it is in the queue or in a flight.
func (q *testQueue) enqueue(t *testing.T, ctx context.Context, name string, keys ...string) {
	t.Helper()
	p := q.Passenger()
	p.Load.name, p.Load.keys = name, keys
	if err := q.Lock(); err != nil {
		t.Fatal(err)
	}
	start := q.Add(p)
	go func() {
		if p.Wait(ctx, start, func(bool) {}) {
			p.Leave()
		}
	}()
	synctest.Wait()
}

// land ends the flight of a passenger.
func (q *testQueue) land(name string) {
	q.mu.Lock()
	landing := q.landings[name]
	q.mu.Unlock()
	landing <- nil
	synctest.Wait()
}

// wantFlights fails the test unless these flights have departed so far.
func (q *testQueue) wantFlights(t *testing.T, flights ...[]string) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if !slices.EqualFunc(q.flights, flights, slices.Equal[[]string]) {
		t.Errorf("got flights %q, want %q", q.flights, flights)
	}
}

func TestAKeyIsInOneFlightAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, ctx := newTestQueue(3, 1, 8, 100), t.Context()
		q.enqueue(t, ctx, "first", "x")
		q.enqueue(t, ctx, "again", "x")
		q.enqueue(t, ctx, "other", "y")
		q.wantFlights(t, []string{"first"}, []string{"other"})
		q.land("first")
		q.wantFlights(t, []string{"first"}, []string{"other"}, []string{"again"})
		q.land("other")
		q.land("again")
		q.Close()
	})
}

// TestARequestThatStaysBehindIsNotOvertaken checks that a request which waits for a key reserves its other keys.
func TestARequestThatStaysBehindIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, ctx := newTestQueue(3, 1, 8, 100), t.Context()
		q.enqueue(t, ctx, "first", "x")
		q.enqueue(t, ctx, "both", "x", "y")
		q.enqueue(t, ctx, "later", "y")
		q.enqueue(t, ctx, "free", "z")
		q.wantFlights(t, []string{"first"}, []string{"free"})
		q.land("first")
		q.wantFlights(t, []string{"first"}, []string{"free"}, []string{"both", "later"})
		q.land("free")
		q.land("both")
		q.Close()
	})
}

func TestAnotherFlightDepartsWhenEnoughWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, ctx := newTestQueue(2, 3, 8, 100), t.Context()
		for _, name := range []string{"a", "b", "c", "d"} {
			q.enqueue(t, ctx, name, name)
		}
		q.wantFlights(t, []string{"a"}, []string{"b", "c", "d"})
		for _, name := range []string{"e", "f", "g", "h"} { // no third flight departs
			q.enqueue(t, ctx, name, name)
		}
		q.wantFlights(t, []string{"a"}, []string{"b", "c", "d"})
		q.land("a")
		q.wantFlights(t, []string{"a"}, []string{"b", "c", "d"}, []string{"e", "f", "g", "h"})
		q.land("b")
		q.land("e")
		q.Close()
	})
}

func TestAnotherFlightDepartsAfterPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, ctx := newTestQueue(3, 32, 8, 100), t.Context()
		q.enqueue(t, ctx, "stuck", "x")
		q.enqueue(t, ctx, "with it", "x")
		q.enqueue(t, ctx, "b", "y")
		q.wantFlights(t, []string{"stuck"})
		time.Sleep(flight.Patience)
		synctest.Wait()
		q.wantFlights(t, []string{"stuck"}, []string{"b"})
		q.land("b")
		q.enqueue(t, ctx, "c", "y") // departs at once: only the late flight is under way
		q.wantFlights(t, []string{"stuck"}, []string{"b"}, []string{"c"})
		q.enqueue(t, ctx, "d", "z")
		q.wantFlights(t, []string{"stuck"}, []string{"b"}, []string{"c"})
		q.land("c")
		q.land("d")
		q.land("stuck")
		q.wantFlights(t, []string{"stuck"}, []string{"b"}, []string{"c"}, []string{"d"}, []string{"with it"})
		q.land("with it")
		q.Close()
	})
}

// TestAJoinedPassengerDepartsAfterALateFlight checks that a passenger departs also if only a joined caller is left.
func TestAJoinedPassengerDepartsAfterALateFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(2, 100, 100, 100)
		ctx, cancel := context.WithCancel(t.Context())
		q.enqueue(t, t.Context(), "late", "x")
		q.enqueue(t, ctx, "passenger", "y")
		if err := q.Lock(); err != nil {
			t.Fatal(err)
		}
		p := q.Last("y")
		q.Join(p)
		done := make(chan bool)
		go func() { done <- p.Wait(t.Context(), 0, func(bool) {}) }()
		cancel()
		synctest.Wait()
		q.wantFlights(t, []string{"late"})
		time.Sleep(2 * flight.Patience)
		synctest.Wait()
		q.wantFlights(t, []string{"late"}, []string{"passenger"})
		q.land("passenger")
		if !<-done {
			t.Error("the caller that joined was not served")
		}
		p.Leave()
		q.land("late")
		q.Close()
	})
}

// TestAHeldPassengerKeepsItsKeys checks that a held passenger keeps its keys until it has landed.
func TestAHeldPassengerKeepsItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(1, 1, 100, 100)
		q.heldName = "held"
		q.enqueue(t, t.Context(), "first", "z")
		q.enqueue(t, t.Context(), "free", "x")
		q.enqueue(t, t.Context(), "held", "x", "y")
		q.land("first")
		q.land("free") // the held passenger departs again
		q.enqueue(t, t.Context(), "next", "x")
		q.wantFlights(t, []string{"first"}, []string{"free", "held"}, []string{"held"})
		q.heldName = ""
		q.land("held")
		q.wantFlights(t, []string{"first"}, []string{"free", "held"}, []string{"held"}, []string{"next"})
		q.land("next")
		q.Close()
	})
}

// TestAKeyInALateFlightIsWaitedFor checks that a caller does not depart before a late flight with its key has landed.
func TestAKeyInALateFlightIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, ctx := newTestQueue(3, 32, 8, 100), context.Background()
		q.enqueue(t, ctx, "stuck", "x")
		q.enqueue(t, ctx, "b", "y")
		time.Sleep(flight.Patience)
		synctest.Wait()
		q.land("b")
		q.enqueue(t, ctx, "with it", "x")
		q.enqueue(t, ctx, "c", "z")
		q.wantFlights(t, []string{"stuck"}, []string{"b"}, []string{"c"})
		q.land("c")
		q.land("stuck")
		q.wantFlights(t, []string{"stuck"}, []string{"b"}, []string{"c"}, []string{"with it"})
		q.land("with it")
		q.Close()
	})
}

func TestMaxSizeBoundsAFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, ctx := newTestQueue(1, 1, 2, 100), t.Context()
		for _, name := range []string{"a", "b", "c", "d"} {
			q.enqueue(t, ctx, name, name)
		}
		q.land("a")
		q.land("b")
		q.wantFlights(t, []string{"a"}, []string{"b", "c"}, []string{"d"})
		q.land("d")
		q.Close()
	})
}

func TestCancelledCallersLeaveBeforeDeparture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(1, 1, 8, 100)
		q.enqueue(t, t.Context(), "a", "x")
		ctx, cancel := context.WithCancel(t.Context())
		for range 40 { // more than the queue keeps until the next departure
			q.enqueue(t, ctx, "gone", "x")
		}
		q.enqueue(t, t.Context(), "b", "x")
		cancel()
		synctest.Wait()
		q.land("a")
		q.wantFlights(t, []string{"a"}, []string{"b"})
		q.land("b")
		q.Close()
	})
}

func TestMaxWaitingBoundsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(1, 1, 8, 1)
		q.enqueue(t, t.Context(), "a")
		q.enqueue(t, t.Context(), "b")
		if err := q.Lock(); !errors.Is(err, flight.ErrFull) {
			t.Errorf("got %v, want ErrFull", err)
		}
		q.land("a")
		q.land("b")
		q.Close()
		if err := q.Lock(); !errors.Is(err, flight.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	})
}
