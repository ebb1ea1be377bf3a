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

// load is a name and the keys that it has.
type load struct {
	name string
	keys []string
}

func (l *load) Size() int        { return 1 }
func (l *load) Keys() int        { return len(l.keys) }
func (l *load) Key(i int) string { return l.keys[i] }
func (l *load) Clear()           { *l = load{} }

type passenger = flight.Passenger[string, *load]

// airport is a queue whose flights land when they are told to.
type airport struct {
	*flight.Queue[string, *load]
	mu     sync.Mutex
	flying [][]string // names
	land   map[string]chan error
	held   string // the passenger that is held
}

func open(flights, least, most, waiting int) *airport {
	a := &airport{land: map[string]chan error{}}
	a.Queue = flight.New(flight.Config[string, *load]{
		MaxFlights: flights, MinSize: least, MaxSize: most, MaxWaiting: waiting,
		New: func() *load { return &load{} },
		Fly: func(_ context.Context, passengers []*passenger) error {
			names, landed := []string{}, make(chan error)
			a.mu.Lock()
			for _, p := range passengers {
				names = append(names, p.Load.name)
				a.land[p.Load.name] = landed
			}
			a.flying = append(a.flying, names)
			a.mu.Unlock()
			return <-landed
		},
		Land: func([]*passenger, error) {},
		Held: func(p *passenger) bool { return p.Load.name == a.held },
	})
	return a
}

// come lets a caller queue, and waits until nothing moves any more.
func (a *airport) come(t *testing.T, ctx context.Context, name string, keys ...string) {
	t.Helper()
	p := a.Passenger()
	p.Load.name, p.Load.keys = name, keys
	if err := a.Lock(); err != nil {
		t.Fatal(err)
	}
	start := a.Add(p)
	go func() {
		if p.Wait(ctx, start, func(bool) {}) {
			p.Leave()
		}
	}()
	synctest.Wait()
}

// landed lets the flight with a passenger land.
func (a *airport) landed(name string) {
	a.mu.Lock()
	c := a.land[name]
	a.mu.Unlock()
	c <- nil
	synctest.Wait()
}

func (a *airport) want(t *testing.T, flights ...[]string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.EqualFunc(a.flying, flights, slices.Equal[[]string]) {
		t.Errorf("departed %q, want %q", a.flying, flights)
	}
}

func TestAKeyIsInOneFlightAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ctx := open(3, 1, 8, 100), t.Context()
		a.come(t, ctx, "first", "x")
		a.come(t, ctx, "again", "x")
		a.come(t, ctx, "other", "y")
		a.want(t, []string{"first"}, []string{"other"})
		a.landed("first")
		a.want(t, []string{"first"}, []string{"other"}, []string{"again"})
		a.landed("other")
		a.landed("again")
		a.Close()
	})
}

// A request that stays behind keeps its other keys, or those that come later would pass it
// for ever.
func TestARequestThatStaysBehindIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ctx := open(3, 1, 8, 100), t.Context()
		a.come(t, ctx, "first", "x")
		a.come(t, ctx, "both", "x", "y")
		a.come(t, ctx, "later", "y")
		a.come(t, ctx, "free", "z")
		a.want(t, []string{"first"}, []string{"free"})
		a.landed("first")
		a.want(t, []string{"first"}, []string{"free"}, []string{"both", "later"})
		a.landed("free")
		a.landed("both")
		a.Close()
	})
}

func TestAnotherFlightDepartsWhenEnoughWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ctx := open(2, 3, 8, 100), t.Context()
		for _, name := range []string{"a", "b", "c", "d"} {
			a.come(t, ctx, name, name)
		}
		a.want(t, []string{"a"}, []string{"b", "c", "d"})
		for _, name := range []string{"e", "f", "g", "h"} { // no third one
			a.come(t, ctx, name, name)
		}
		a.want(t, []string{"a"}, []string{"b", "c", "d"})
		a.landed("a")
		a.want(t, []string{"a"}, []string{"b", "c", "d"}, []string{"e", "f", "g", "h"})
		a.landed("b")
		a.landed("e")
		a.Close()
	})
}

func TestALateFlightIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ctx := open(3, 32, 8, 100), t.Context()
		a.come(t, ctx, "stuck", "x")
		a.come(t, ctx, "with it", "x")
		a.come(t, ctx, "b", "y")
		a.want(t, []string{"stuck"})
		time.Sleep(flight.Patience)
		synctest.Wait()
		a.want(t, []string{"stuck"}, []string{"b"})
		a.landed("b")
		a.come(t, ctx, "c", "y") // at once: only the late one is under way
		a.want(t, []string{"stuck"}, []string{"b"}, []string{"c"})
		a.come(t, ctx, "d", "z")
		a.want(t, []string{"stuck"}, []string{"b"}, []string{"c"})
		a.landed("c")
		a.landed("d")
		a.landed("stuck")
		a.want(t, []string{"stuck"}, []string{"b"}, []string{"c"}, []string{"d"}, []string{"with it"})
		a.landed("with it")
		a.Close()
	})
}

// A caller who has joined a passenger need not watch: the flight departs also when the first caller has left.
func TestALateFlightIsNoticedForThoseThatJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(2, 100, 100, 100)
		ctx, leave := context.WithCancel(t.Context())
		a.come(t, t.Context(), "late", "x")
		a.come(t, ctx, "passenger", "y")
		if err := a.Lock(); err != nil {
			t.Fatal(err)
		}
		p := a.Last("y")
		a.Join(p)
		done := make(chan bool)
		go func() { done <- p.Wait(t.Context(), 0, func(bool) {}) }()
		leave()
		synctest.Wait()
		a.want(t, []string{"late"})
		time.Sleep(2 * flight.Patience)
		synctest.Wait()
		a.want(t, []string{"late"}, []string{"passenger"})
		a.landed("passenger")
		if !<-done {
			t.Error("the caller that joined was not served")
		}
		p.Leave()
		a.landed("late")
		a.Close()
	})
}

// A passenger that is held keeps its keys, also those that a passenger had which flew with it and has landed.
func TestAHeldPassengerKeepsItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(1, 1, 100, 100)
		a.held = "held"
		a.come(t, t.Context(), "first", "z")
		a.come(t, t.Context(), "free", "x")
		a.come(t, t.Context(), "held", "x", "y")
		a.landed("first")
		a.landed("free") // and the held one flies again
		a.come(t, t.Context(), "next", "x")
		a.want(t, []string{"first"}, []string{"free", "held"}, []string{"held"})
		a.held = ""
		a.landed("held")
		a.want(t, []string{"first"}, []string{"free", "held"}, []string{"held"}, []string{"next"})
		a.landed("next")
		a.Close()
	})
}

// A caller whose context cannot end flies itself, but not past a late flight with its key.
func TestACallerWhoseKeyIsInALateFlightWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ctx := open(3, 32, 8, 100), context.Background()
		a.come(t, ctx, "stuck", "x")
		a.come(t, ctx, "b", "y")
		time.Sleep(flight.Patience)
		synctest.Wait()
		a.landed("b")
		a.come(t, ctx, "with it", "x")
		a.come(t, ctx, "c", "z")
		a.want(t, []string{"stuck"}, []string{"b"}, []string{"c"})
		a.landed("c")
		a.landed("stuck")
		a.want(t, []string{"stuck"}, []string{"b"}, []string{"c"}, []string{"with it"})
		a.landed("with it")
		a.Close()
	})
}

func TestAFlightIsNoLargerThanItMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ctx := open(1, 1, 2, 100), t.Context()
		for _, name := range []string{"a", "b", "c", "d"} {
			a.come(t, ctx, name, name)
		}
		a.landed("a")
		a.landed("b")
		a.want(t, []string{"a"}, []string{"b", "c"}, []string{"d"})
		a.landed("d")
		a.Close()
	})
}

func TestCancelledCallersLeaveBeforeDeparture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(1, 1, 8, 100)
		a.come(t, t.Context(), "a", "x")
		ctx, leave := context.WithCancel(t.Context())
		for range 40 { // more than are kept until the next departure
			a.come(t, ctx, "gone", "x")
		}
		a.come(t, t.Context(), "b", "x")
		leave()
		synctest.Wait()
		a.landed("a")
		a.want(t, []string{"a"}, []string{"b"})
		a.landed("b")
		a.Close()
	})
}

func TestAQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(1, 1, 8, 1)
		a.come(t, t.Context(), "a")
		a.come(t, t.Context(), "b")
		if err := a.Lock(); !errors.Is(err, flight.ErrFull) {
			t.Errorf("%v, want ErrFull", err)
		}
		a.landed("a")
		a.landed("b")
		a.Close()
		if err := a.Lock(); !errors.Is(err, flight.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	})
}
