package coalesce_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/coalesce"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// gated is a memory store whose batches wait for a gate, and are remembered.
type gated struct {
	store.Store
	gate    chan struct{}
	mu      sync.Mutex
	batches [][]law.Op
	err     error
}

func newGated() *gated { return &gated{Store: memory.New(nil), gate: make(chan struct{})} }

func (g *gated) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	g.mu.Lock()
	g.batches = append(g.batches, append([]law.Op(nil), ops...))
	g.mu.Unlock()
	<-g.gate
	if g.err != nil {
		return g.err
	}
	return g.Store.Apply(ctx, ops, outs)
}

const now = int64(1_790_000_000_000_000)

func take(key string, units int64) law.Op {
	p := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 10_000, Step: 1000, Drain: 1}
	return law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: key}, Params: p, Cost: units * 1000,
		Count: 1, Now: now,
	}
}

// asked is a caller's result.
type asked struct {
	outs []law.Outcome
	err  error
}

// ask asks in a goroutine of its own, and returns once it waits.
func ask(ctx context.Context, s store.Store, ops ...law.Op) *asked {
	a := &asked{outs: make([]law.Outcome, len(ops))}
	go func() { a.err = s.Apply(ctx, ops, a.outs) }()
	synctest.Wait()
	return a
}

// open lets one batch through.
func (g *gated) open() {
	g.gate <- struct{}{}
	synctest.Wait()
}

func TestWaitersShareTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		s := coalesce.New(g, &coalesce.Config{Flights: 1})
		ctx := context.Background()
		first := ask(ctx, s, take("a", 1))
		var rest []*asked
		for i := range 12 { // 9 fit
			rest = append(rest, ask(ctx, s, take("a", 1)))
			if i < 3 {
				rest = append(rest, ask(ctx, s, take("b", 1)))
			}
		}
		g.open()
		if first.outs[0].Granted != 1 || first.outs[0].Used != 1000 {
			t.Errorf("the first: %+v", first)
		}
		g.open()
		if len(g.batches) != 2 || len(g.batches[1]) != 2 || g.batches[1][0].Count != 12 {
			t.Fatalf("batches %+v, want one op for each key", g.batches)
		}
		if got, want := s.Stats(), (coalesce.Stats{Batches: 2, Ops: 3, Callers: 16}); got != want {
			t.Errorf("Stats: %+v, want %+v", got, want)
		}
		n := int64(0)
		for i, a := range rest {
			if i < 6 && i%2 == 1 {
				continue // key b
			}
			n++
			out := a.outs[0]
			if want := n <= 9; (out.Granted == 1) != want || a.err != nil {
				t.Errorf("caller %d of a: %+v, %v", n, out, a.err)
			} else if want && out.Used != (n+1)*1000 {
				t.Errorf("caller %d sees %d in use, want %d", n, out.Used, (n+1)*1000)
			} else if !want && out.RetryAt != now+1_000_000 {
				t.Errorf("caller %d may come again at %d", n, out.RetryAt-now)
			}
		}
		s.Close()
	})
}

func TestUnequalCostsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		s := coalesce.New(g, &coalesce.Config{Flights: 1})
		ctx := context.Background()
		ask(ctx, s, take("other", 1))
		var got []*asked
		costs := []int64{2, 2, 5, 2, 1, 1, 1}
		for _, c := range costs {
			got = append(got, ask(ctx, s, take("a", c)))
		}
		group := ask(ctx, s, take("a", 1), take("b", 11))
		g.open()
		g.open()
		want := []int64{1, 1, 1, 0, 1, 0, 0} // 2+2+5+1 = 10
		for i, a := range got {
			if a.outs[0].Granted != want[i] {
				t.Errorf("caller %d, cost %d: granted %d, want %d", i, costs[i], a.outs[0].Granted, want[i])
			}
		}
		if group.outs[1].RetryAt != law.Never {
			t.Errorf("the group: %+v", group)
		}
		s.Close()
	})
}

func TestCancelledCallersAreNotCharged(t *testing.T) {
	for _, departed := range []bool{false, true} {
		t.Run(fmt.Sprintf("after departure %v", departed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGated()
				s := coalesce.New(g, &coalesce.Config{Flights: 1})
				stays, leaves := context.Background(), context.Background()
				leaves, leave := context.WithCancel(leaves)
				ask(stays, s, take("other", 1))
				gone := []*asked{ask(leaves, s, take("a", 3)), ask(leaves, s, take("a", 3))}
				kept := ask(stays, s, take("a", 3))
				gone = append(gone, ask(leaves, s, take("a", 1), take("c", 2)))
				if departed {
					g.open()
				}
				leave()
				synctest.Wait()
				for _, a := range gone {
					if !errors.Is(a.err, context.Canceled) {
						t.Errorf("who left got %v", a.err)
					}
				}
				if !departed {
					g.open()
				}
				g.open()
				if departed {
					g.open() // the returns
				}
				if kept.outs[0].Granted != 1 || kept.err != nil {
					t.Errorf("who stayed: %+v", kept)
				}
				for key, want := range map[string]int64{"a": 3000, "c": 0} {
					check := take(key, 1)
					check.Verb = law.Check
					outs := make([]law.Outcome, 1)
					if err := g.Store.Apply(stays, []law.Op{check}, outs); err != nil || outs[0].Used-1000 != want {
						t.Errorf("key %s: %d credits in use, want %d (%v)", key, outs[0].Used-1000, want, err)
					}
				}
				s.Close()
			})
		})
	}
}

func TestNoMoreWaitThanMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		s := coalesce.New(g, coalesce.Waiting(1, 3))
		ctx := context.Background()
		for range 4 { // one is under way
			ask(ctx, s, take("a", 1))
		}
		one := ask(ctx, s, take("a", 1))
		if !errors.Is(one.err, store.ErrBusy) || !errors.Is(one.err, store.ErrUnavailable) {
			t.Errorf("got %v, want ErrBusy", one.err)
		}
		go s.Close()
		synctest.Wait()
		if late := ask(ctx, s, take("a", 1)); !errors.Is(late.err, store.ErrClosed) {
			t.Errorf("after Close: %v", late.err)
		}
		g.open()
		g.open()
	})
}

func TestAnErrorReachesAllPassengers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		g.err = store.ErrUnknownOutcome
		s := coalesce.New(g, &coalesce.Config{Flights: 1})
		a, b, c := ask(context.Background(), s, take("a", 1)), ask(context.Background(), s, take("a", 1)),
			ask(context.Background(), s, take("b", 1))
		g.open()
		g.open()
		for _, x := range []*asked{a, b, c} {
			if !errors.Is(x.err, store.ErrUnknownOutcome) || x.outs[0].Granted != 0 {
				t.Errorf("%+v", x)
			}
		}
		s.Close()
	})
}

func TestAttemptsWithAHistoryAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		s := coalesce.New(g, &coalesce.Config{Flights: 1})
		op := take("a", 1)
		op.Params = law.Params{Kind: law.Log, Unit: 1000, Capacity: 1000, Step: 1_000_000, History: 2_000_000}
		ctx := context.Background()
		ask(ctx, s, take("b", 1))
		a, b := ask(ctx, s, op), ask(ctx, s, op)
		g.open()
		g.open()
		if len(g.batches[1]) != 2 || a.outs[0].EntryNumber == 0 || b.outs[0].EntryNumber <= a.outs[0].EntryNumber {
			t.Errorf("%+v, %+v", a, b)
		}
		s.Close()
	})
}

// TestOversizedRequestsSpoilNothing: together they would pass what the laws can
// count.
func TestOversizedRequestsSpoilNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		s := coalesce.New(g, &coalesce.Config{Flights: 1})
		ctx := context.Background()
		ask(ctx, s, take("b", 1))
		op := take("a", 1)
		op.Cost = law.Max/2 + 1
		all := []*asked{ask(ctx, s, op), ask(ctx, s, op), ask(ctx, s, op)}
		g.open()
		g.open()
		for _, a := range all {
			if a.err != nil || a.outs[0].Err != nil || a.outs[0].RetryAt != law.Never {
				t.Errorf("%+v; want refused, never", a)
			}
		}
		s.Close()
	})
}

// TestACancelThatLeftEarlyIsNotDone cancels a reservation by a caller that leaves before
// its batch does, and hears that nothing was done: so the next cancellation may count, once.
func TestACancelThatLeftEarlyIsNotDone(t *testing.T) {
	t.Parallel()
	inner := memory.New(nil)
	hold, held := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := coalesce.New(through{inner, func(ops []law.Op) {
		if ops[0].Cell.Key == "other" {
			once.Do(func() {
				close(held)
				<-hold
			})
		}
	}}, &coalesce.Config{Flights: 1})
	defer s.Close()
	l := headgate.New(s, nil)
	charge := headgate.Charge{Limit: headgate.MustParse("token-bucket 10/1h"), Key: "k", Cost: headgate.Units(5)}
	if d, err := l.Take(t.Context(), charge); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	r, err := l.Reserve(t.Context(), 0, charge)
	if err != nil || !r.Decision.Allowed {
		t.Fatal(r, err)
	}
	var others sync.WaitGroup
	others.Go(func() {
		_, _ = l.Check(t.Context(), headgate.Charge{Limit: charge.Limit, Key: "other"})
	})
	<-held
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := r.Cancel(ctx); !store.NothingDone(err) {
		t.Errorf("a cancellation that has not left: %v", err)
	}
	close(hold)
	others.Wait()
	for _, want := range []int64{0, 5, 5} {
		if d, err := l.Check(t.Context(), headgate.Charge{Limit: charge.Limit, Key: "k"}); err != nil || d.Remaining != want {
			t.Errorf("%d are free (%v), want %d", d.Remaining, err, want)
		}
		if _, err := r.Cancel(t.Context()); err != nil && !errors.Is(err, headgate.ErrSettled) {
			t.Error(err)
		}
	}
}

// through is a store of which ops are seen before it is asked.
type through struct {
	store.Store
	see func([]law.Op)
}

func (s through) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	s.see(ops)
	return s.Store.Apply(ctx, ops, outs)
}

// TestALoneCallerLeavesWithTheAnswer lets a caller's deadline pass while no goroutine but its own waits for
// the store.
func TestALoneCallerLeavesWithTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		s := coalesce.New(g, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		first := ask(ctx, s, take("a", 7))
		time.Sleep(1600 * time.Millisecond)
		if first.err != nil {
			t.Fatalf("it left before the answer: %v", first.err)
		}
		g.open()
		g.open() // what is given back
		if !errors.Is(first.err, store.ErrUnknownOutcome) || !errors.Is(first.err, context.DeadlineExceeded) {
			t.Errorf("the caller who has left: %v", first.err)
		}
		if n := len(g.batches); n != 2 || g.batches[1][0].Verb != law.Return {
			t.Fatalf("batches: %+v", g.batches)
		}
		next := ask(t.Context(), s, take("a", 10))
		g.open()
		if next.err != nil || next.outs[0].Granted != 1 {
			t.Errorf("the next one has all of it: %+v", next)
		}
	})
}

// TestALoneCallerIsReleasedAtItsDeadline has a store that is silent.
func TestALoneCallerIsReleasedAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coalesce.New(silent{}, nil)
		for deadline, want := range map[time.Duration]time.Duration{
			1500 * time.Millisecond: 2500 * time.Millisecond,
			999 * time.Millisecond:  999 * time.Millisecond, // it leaves the call to others
		} {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			began := time.Now()
			err := s.Apply(ctx, []law.Op{take("a", 1)}, make([]law.Outcome, 1))
			if took := time.Since(began); took != want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("deadline %s: %v after %s, want %s", deadline, err, took, want)
			}
			cancel()
			time.Sleep(time.Minute) // what was left to others has ended
		}
	})
}
