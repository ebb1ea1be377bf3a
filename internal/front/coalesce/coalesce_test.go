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

// gatedStore is a memory store that records its batches, each of which waits for releaseBatch.
type gatedStore struct {
	store.Store
	gate    chan struct{}
	mu      sync.Mutex
	batches [][]law.Op
	err     error
}

func newGatedStore() *gatedStore {
	return &gatedStore{Store: memory.New(nil), gate: make(chan struct{})}
}

func (g *gatedStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	g.mu.Lock()
	g.batches = append(g.batches, append([]law.Op(nil), ops...))
	g.mu.Unlock()
	<-g.gate
	if g.err != nil {
		return g.err
	}
	return g.Store.Apply(ctx, ops, outs)
}

const testTime = int64(1_790_000_000_000_000) // the Now of takes, in us

// take returns a take of some units.
func take(key string, units int64) law.Op {
	p := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 10_000, Step: 1000, Drain: 1}
	return law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: key}, Params: p, Cost: units * 1000,
		Count: 1, Now: testTime,
	}
}

// call is a call of Apply with its result.
type call struct {
	outs []law.Outcome
	err  error
}

// startCall calls Apply in a goroutine, and returns once the caller waits or has its result.
func startCall(ctx context.Context, s store.Store, ops ...law.Op) *call {
	c := &call{outs: make([]law.Outcome, len(ops))}
	go func() { c.err = s.Apply(ctx, ops, c.outs) }()
	synctest.Wait()
	return c
}

// releaseBatch releases one batch.
func (g *gatedStore) releaseBatch() {
	g.gate <- struct{}{}
	synctest.Wait()
}

// TestWaitersShareTheNextBatch checks that the waiters of a key share one op, which is granted in their order.
func TestWaitersShareTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedStore()
		s := coalesce.New(g, &coalesce.Config{Flights: 1})
		ctx := context.Background()
		first := startCall(ctx, s, take("a", 1))
		var waiters []*call
		for i := range 12 { // 9 of 10 units are left
			waiters = append(waiters, startCall(ctx, s, take("a", 1)))
			if i < 3 {
				waiters = append(waiters, startCall(ctx, s, take("b", 1)))
			}
		}
		g.releaseBatch()
		if first.outs[0].Granted != 1 || first.outs[0].Used != 1000 {
			t.Errorf("the first: got %+v, want it granted with 1000 used", first)
		}
		g.releaseBatch()
		if len(g.batches) != 2 || len(g.batches[1]) != 2 || g.batches[1][0].Count != 12 {
			t.Fatalf("got batches %+v, want one op for each key", g.batches)
		}
		if got, want := s.Stats(), (coalesce.Stats{Batches: 2, Ops: 3, Callers: 16}); got != want {
			t.Errorf("got Stats %+v, want %+v", got, want)
		}
		n := int64(0)
		for i, waiter := range waiters {
			if i < 6 && i%2 == 1 {
				continue // key b
			}
			n++
			out := waiter.outs[0]
			if want := n <= 9; (out.Granted == 1) != want || waiter.err != nil {
				t.Errorf("caller %d of a: got %+v, %v; want granted %v", n, out, waiter.err, want)
			} else if want && out.Used != (n+1)*1000 {
				t.Errorf("caller %d: got %d in use, want %d", n, out.Used, (n+1)*1000)
			} else if !want && out.RetryAt != testTime+1_000_000 {
				t.Errorf("caller %d: got a retry after %d, want 1,000,000", n, out.RetryAt-testTime)
			}
		}
		s.Close()
	})
}

func TestUnequalCostsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedStore()
		s := coalesce.New(g, &coalesce.Config{Flights: 1})
		ctx := context.Background()
		startCall(ctx, s, take("other", 1))
		var calls []*call
		costs := []int64{2, 2, 5, 2, 1, 1, 1}
		for _, c := range costs {
			calls = append(calls, startCall(ctx, s, take("a", c)))
		}
		group := startCall(ctx, s, take("a", 1), take("b", 11))
		g.releaseBatch()
		g.releaseBatch()
		want := []int64{1, 1, 1, 0, 1, 0, 0} // 2+2+5+1 = 10, the capacity
		for i, c := range calls {
			if c.outs[0].Granted != want[i] {
				t.Errorf("caller %d, cost %d: got granted %d, want %d", i, costs[i], c.outs[0].Granted, want[i])
			}
		}
		if group.outs[1].RetryAt != law.Never {
			t.Errorf("the request of two charges: got %+v, want refused for ever", group)
		}
		s.Close()
	})
}

func TestCancelledCallersAreNotCharged(t *testing.T) {
	for _, departed := range []bool{false, true} {
		t.Run(fmt.Sprintf("after departure %v", departed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGatedStore()
				s := coalesce.New(g, &coalesce.Config{Flights: 1})
				ctx := context.Background()
				cancelledCtx, cancel := context.WithCancel(ctx)
				startCall(ctx, s, take("other", 1))
				cancelled := []*call{startCall(cancelledCtx, s, take("a", 3)), startCall(cancelledCtx, s, take("a", 3))}
				waiter := startCall(ctx, s, take("a", 3))
				cancelled = append(cancelled, startCall(cancelledCtx, s, take("a", 1), take("c", 2)))
				if departed {
					g.releaseBatch()
				}
				cancel()
				synctest.Wait()
				for _, c := range cancelled {
					if !errors.Is(c.err, context.Canceled) {
						t.Errorf("a cancelled caller: got %v, want %v", c.err, context.Canceled)
					}
				}
				if !departed {
					g.releaseBatch()
				}
				g.releaseBatch()
				if departed {
					g.releaseBatch() // the returns
				}
				if waiter.outs[0].Granted != 1 || waiter.err != nil {
					t.Errorf("the other caller: got %+v, want it granted", waiter)
				}
				for key, want := range map[string]int64{"a": 3000, "c": 0} {
					check := take(key, 1)
					check.Verb = law.Check
					outs := make([]law.Outcome, 1)
					if err := g.Store.Apply(ctx, []law.Op{check}, outs); err != nil || outs[0].Used-1000 != want {
						t.Errorf("key %s: got %d credits in use, want %d (%v)", key, outs[0].Used-1000, want, err)
					}
				}
				s.Close()
			})
		})
	}
}

func TestCallersBeyondMaxWaitingAreBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedStore()
		s := coalesce.New(g, coalesce.ConfigWithMaxWaiting(1, 3))
		ctx := context.Background()
		for range 4 { // one under way, and three that wait
			startCall(ctx, s, take("a", 1))
		}
		fifth := startCall(ctx, s, take("a", 1))
		if !errors.Is(fifth.err, store.ErrBusy) || !errors.Is(fifth.err, store.ErrUnavailable) {
			t.Errorf("got %v, want ErrBusy", fifth.err)
		}
		go s.Close()
		synctest.Wait()
		if c := startCall(ctx, s, take("a", 1)); !errors.Is(c.err, store.ErrClosed) {
			t.Errorf("after Close: got %v, want %v", c.err, store.ErrClosed)
		}
		g.releaseBatch()
		g.releaseBatch()
	})
}

func TestAnErrorOfABatchReachesAllCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedStore()
		g.err = store.ErrUnknownOutcome
		s := coalesce.New(g, &coalesce.Config{Flights: 1})
		a, b, c := startCall(context.Background(), s, take("a", 1)), startCall(context.Background(), s, take("a", 1)),
			startCall(context.Background(), s, take("b", 1))
		g.releaseBatch()
		g.releaseBatch()
		for _, caller := range []*call{a, b, c} {
			if !errors.Is(caller.err, store.ErrUnknownOutcome) || caller.outs[0].Granted != 0 {
				t.Errorf("got %+v, want %v", caller, store.ErrUnknownOutcome)
			}
		}
		s.Close()
	})
}

func TestAttemptsWithAHistoryAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedStore()
		s := coalesce.New(g, &coalesce.Config{Flights: 1})
		op := take("a", 1)
		op.Params = law.Params{Kind: law.Log, Unit: 1000, Capacity: 1000, Step: 1_000_000, History: 2_000_000}
		ctx := context.Background()
		startCall(ctx, s, take("b", 1))
		a, b := startCall(ctx, s, op), startCall(ctx, s, op)
		g.releaseBatch()
		g.releaseBatch()
		if len(g.batches[1]) != 2 || a.outs[0].EntryNumber == 0 || b.outs[0].EntryNumber <= a.outs[0].EntryNumber {
			t.Errorf("got %+v, %+v; want two ops with entries of their own", a, b)
		}
		s.Close()
	})
}

// TestOversizedCostsAreRefused checks that costs whose sum is above law.Max are refused, and are no error.
func TestOversizedCostsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedStore()
		s := coalesce.New(g, &coalesce.Config{Flights: 1})
		ctx := context.Background()
		startCall(ctx, s, take("b", 1))
		op := take("a", 1)
		op.Cost = law.Max/2 + 1
		calls := []*call{startCall(ctx, s, op), startCall(ctx, s, op), startCall(ctx, s, op)}
		g.releaseBatch()
		g.releaseBatch()
		for _, c := range calls {
			if c.err != nil || c.outs[0].Err != nil || c.outs[0].RetryAt != law.Never {
				t.Errorf("got %+v, want refused for ever", c)
			}
		}
		s.Close()
	})
}

// TestCancelAtADeadlineIsNotDone calls Cancel with a deadline that passes before its batch goes out. The error must say
// that nothing was done, and the next Cancel must give back the charge once.
func TestCancelAtADeadlineIsNotDone(t *testing.T) {
	t.Parallel()
	inner := memory.New(nil)
	release, underWay := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := coalesce.New(hookedStore{inner, func(ops []law.Op) {
		if ops[0].Cell.Key == "other" {
			once.Do(func() {
				close(underWay)
				<-release
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
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = l.Check(t.Context(), headgate.Charge{Limit: charge.Limit, Key: "other"})
	})
	<-underWay
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := r.Cancel(ctx); !store.NothingDone(err) {
		t.Errorf("Cancel at the deadline: got %v, want that nothing was done", err)
	}
	close(release)
	wg.Wait()
	for _, want := range []int64{0, 5, 5} { // before the first Cancel, and after each of two
		if d, err := l.Check(t.Context(), headgate.Charge{Limit: charge.Limit, Key: "k"}); err != nil || d.Remaining != want {
			t.Errorf("got %d free (%v), want %d", d.Remaining, err, want)
		}
		if _, err := r.Cancel(t.Context()); err != nil && !errors.Is(err, headgate.ErrSettled) {
			t.Error(err)
		}
	}
}

// hookedStore calls a hook before Apply.
type hookedStore struct {
	store.Store
	hook func([]law.Op)
}

func (s hookedStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	s.hook(ops)
	return s.Store.Apply(ctx, ops, outs)
}

// TestASingleCallerReturnsWithTheAnswer checks that a single caller, which calls the store itself, waits beyond its
// deadline for the answer. It gets ErrUnknownOutcome, and its charge is given back.
func TestASingleCallerReturnsWithTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedStore()
		s := coalesce.New(g, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		first := startCall(ctx, s, take("a", 7))
		time.Sleep(1600 * time.Millisecond)
		if first.err != nil {
			t.Fatalf("it returned before the answer: %v", first.err)
		}
		g.releaseBatch()
		g.releaseBatch() // the return
		if !errors.Is(first.err, store.ErrUnknownOutcome) || !errors.Is(first.err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", first.err, store.ErrUnknownOutcome)
		}
		if n := len(g.batches); n != 2 || g.batches[1][0].Verb != law.Return {
			t.Fatalf("got batches %+v, want a take and a return", g.batches)
		}
		next := startCall(t.Context(), s, take("a", 10))
		g.releaseBatch()
		if next.err != nil || next.outs[0].Granted != 1 {
			t.Errorf("the next caller: got %+v, want all 10 units granted", next)
		}
	})
}

// TestASingleCallerReturnsAfterItsDeadline checks when a single caller of a silent store returns: at a deadline below a
// second, as it leaves the call to another goroutine, else a second after the deadline.
func TestASingleCallerReturnsAfterItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coalesce.New(silentStore{}, nil)
		for deadline, want := range map[time.Duration]time.Duration{
			1500 * time.Millisecond: 2500 * time.Millisecond,
			999 * time.Millisecond:  999 * time.Millisecond, // another goroutine calls
		} {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			begin := time.Now()
			err := s.Apply(ctx, []law.Op{take("a", 1)}, make([]law.Outcome, 1))
			if took := time.Since(begin); took != want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("deadline %s: got %v after %s, want %s", deadline, err, took, want)
			}
			cancel()
			time.Sleep(time.Minute) // the calls of other goroutines have ended
		}
	})
}
