package prefetch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// answer is the answer to a caller.
type answer struct {
	out law.Outcome
	err error
}

// queue is a store of which each answer is on its way until it is let through.
type queue struct {
	t *testing.T
	*Store
	inner *recorder

	mu   sync.Mutex
	sent []chan error // of questions that are decided, the oldest first
}

// inQueue runs a test in a bubble of time, over a store of which each answer is on its way until it is let through.
func inQueue(t *testing.T, test func(t *testing.T, q *queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := &queue{t: t, inner: &recorder{Store: memory.New(nil)}}
		q.inner.after = func(ctx context.Context) error {
			arrives := make(chan error)
			q.mu.Lock()
			q.sent = append(q.sent, arrives)
			q.mu.Unlock()
			select {
			case err := <-arrives:
				return err
			case <-ctx.Done():
				q.mu.Lock()
				q.sent = slices.DeleteFunc(q.sent, func(c chan error) bool { return c == arrives })
				q.mu.Unlock()
				return ctx.Err()
			}
		}
		q.Store = New(q.inner)
		test(t, q)
		synctest.Wait()
		if len(q.sent) > 0 {
			t.Errorf("%d answers are on their way", len(q.sent))
		}
		q.inner.after = nil
		q.Close()
	})
}

// ask lets another caller ask for a cost. It returns when the caller waits, or is told.
func (q *queue) ask(ctx context.Context, op law.Op) <-chan answer {
	told := make(chan answer, 1)
	go func() {
		outs := make([]law.Outcome, 1)
		err := q.Apply(ctx, []law.Op{op}, outs)
		told <- answer{outs[0], err}
	}()
	synctest.Wait()
	return told
}

// let lets the answer to the oldest question through, or an error in its place.
func (q *queue) let(err error) {
	q.t.Helper()
	q.letOne(0, err)
}

// letOne answers one of the requests.
func (q *queue) letOne(i int, err error) {
	q.t.Helper()
	q.mu.Lock()
	if i >= len(q.sent) {
		q.mu.Unlock()
		q.t.Fatalf("%d answers are on their way", i)
	}
	arrives := q.sent[i]
	q.sent = slices.Delete(q.sent, i, i+1)
	q.mu.Unlock()
	arrives <- err
	synctest.Wait()
}

// told fails the test unless a caller was told, and was granted a charge or failed so.
func (q *queue) told(who string, told <-chan answer, err error) law.Outcome {
	q.t.Helper()
	select {
	case a := <-told:
		if !errors.Is(a.err, err) || (a.err == nil) != (err == nil) || err == nil && a.out.Granted != 1 {
			q.t.Fatalf("%s: %+v, %v, want error %v", who, a.out, a.err, err)
		}
		return a.out
	default:
		q.t.Fatalf("%s waits", who)
		return law.Outcome{}
	}
}

// TestAWaiterFetchesWhenTheFetcherHasLeft, and takes for all.
func TestAWaiterFetchesWhenTheFetcherHasLeft(t *testing.T) {
	inQueue(t, func(t *testing.T, q *queue) {
		op := charge(perSecond, 10)
		ctx, cancel := context.WithCancel(t.Context())
		first, second, third := q.ask(ctx, op), q.ask(t.Context(), op), q.ask(t.Context(), op)
		cancel()
		synctest.Wait()
		q.told("the first", first, context.Canceled)
		q.let(nil)
		if len(second)+len(third) == 1 { // the other began to wait when that one had asked
			q.let(nil)
		}
		q.told("the second", second, nil)
		q.told("the third", third, nil)
	})
}

// TestNothingIsTakenForCancelledWaiters: the waiter leaves before the answer comes.
func TestNothingIsTakenForCancelledWaiters(t *testing.T) {
	inQueue(t, func(t *testing.T, q *queue) {
		op := charge(perSecond, 10)
		ctx, cancel := context.WithCancel(t.Context())
		first, second := q.ask(t.Context(), op), q.ask(ctx, op)
		cancel()
		synctest.Wait()
		q.told("the second", second, context.Canceled)
		q.let(nil)
		q.told("the first", first, nil)
		h, _ := q.locals.GetIfPresent(op.Cell)
		if h.waitingCost != 0 {
			t.Errorf("%d credits are waited for", h.waitingCost)
		}
	})
}

// TestWaitersFailWithTheStore at once; later callers fetch again.
func TestWaitersFailWithTheStore(t *testing.T) {
	inQueue(t, func(t *testing.T, q *queue) {
		op := charge(perSecond, 10)
		first, second := q.ask(t.Context(), op), q.ask(t.Context(), op)
		q.let(store.ErrUnavailable)
		q.told("the first", first, store.ErrUnavailable)
		q.told("the second", second, store.ErrUnavailable)
		third := q.ask(t.Context(), op)
		q.let(nil)
		q.told("the third", third, nil)
	})
}

// TestWaitersArePaidOrFetch: the grant is handed out and counted; the waiters left over go to the store.
func TestWaitersArePaidOrFetch(t *testing.T) {
	inQueue(t, func(t *testing.T, q *queue) {
		op := charge(perSecond, 10)
		first := q.ask(t.Context(), op)
		q.let(nil)
		q.told("the first", first, nil)
		second, third := q.ask(t.Context(), op), q.ask(t.Context(), op) // five are taken for the second
		large := charge(perSecond, 500)
		fourth := q.ask(t.Context(), large)
		q.let(nil)
		q.told("the second", second, nil)
		out := q.told("the third", third, nil)
		if out.Via != law.ViaPrefetch || q.Handed() != 1 {
			t.Errorf("the third: %+v; %d were handed out", out, q.Handed())
		}
		q.let(nil)
		if out := q.told("the fourth", fourth, nil); out.Via != law.ViaStore || q.Handed() != 1 {
			t.Errorf("the fourth: %+v; %d were handed out", out, q.Handed())
		}
		fifth := q.ask(t.Context(), op)
		if out := q.told("the fifth", fifth, nil); out.Via != law.ViaPrefetch || q.Handed() != 2 {
			t.Errorf("the fifth: %+v; %d were handed out", out, q.Handed())
		}
	})
}

// TestARefusalHoldsForTheSameCostAlone and is what those who waited are told.
func TestARefusalHoldsForTheSameCostAlone(t *testing.T) {
	inQueue(t, func(t *testing.T, q *queue) {
		outs := make([]law.Outcome, 1)
		if err := q.inner.Store.Apply(t.Context(), []law.Op{charge(perSecond, 9900)}, outs); err != nil {
			t.Fatal(err)
		}
		large, small := charge(perSecond, 200), charge(perSecond, 30)
		first, second, third := q.ask(t.Context(), large), q.ask(t.Context(), large), q.ask(t.Context(), small)
		q.let(nil)
		one, two := <-first, <-second
		if one.err != nil || one.out.Granted != 0 || one.out.RetryAt == 0 || two != one || q.Handed() != 0 {
			t.Errorf("the first: %+v\nthe second: %+v", one, two)
		}
		q.let(nil)
		q.told("the third", third, nil)
	})
}

// TestWaitersFetchAfterAStaleAnswer, or after an error of the cell.
func TestWaitersFetchAfterAStaleAnswer(t *testing.T) {
	for name, bad := range map[string]law.Outcome{
		"an error": {Err: store.ErrHeld}, "stale": {Stale: true, Clock: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &odd{
					recorder: recorder{Store: memory.New(nil)}, pause: func() { time.Sleep(time.Second) }, first: bad,
				}
				q := &queue{t: t, Store: New(inner)}
				defer q.Close()
				op := charge(perSecond, 10)
				first, second := q.ask(t.Context(), op), q.ask(t.Context(), op)
				time.Sleep(time.Second)
				synctest.Wait()
				if a := <-first; a.err != nil || a.out != bad {
					t.Errorf("the first: %+v, %v", a.out, a.err)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				q.told("the second", second, nil)
			})
		})
	}
}

// odd is a store that needs a second to answer, the first time with something odd.
type odd struct {
	recorder
	pause func()
	first law.Outcome
	asked bool
}

func (o *odd) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	o.pause()
	if o.asked {
		return o.recorder.Apply(ctx, ops, outs)
	}
	o.asked, outs[0] = true, o.first
	return nil
}

// TestAFetchFromBeforeAResetIsLost, except for the charge of its caller.
func TestAFetchFromBeforeAResetIsLost(t *testing.T) {
	inQueue(t, func(t *testing.T, q *queue) {
		op, reset := charge(perSecond, 10), charge(perSecond, 10)
		reset.Verb = law.Reset
		one := q.ask(t.Context(), op)
		q.let(nil)
		q.told("one who is alone", one, nil)
		first, second := q.ask(t.Context(), op), q.ask(t.Context(), op) // five are taken
		q.ask(t.Context(), reset)
		q.letOne(1, nil)
		q.let(nil)
		q.told("the first", first, nil)
		q.let(nil)
		if out := q.told("the second", second, nil); out.Via != law.ViaStore {
			t.Errorf("%+v", out)
		}
	})
}

// TestCloseFailsWaiters closes a queue with one call under way, which keeps its grant, and one waiter.
func TestCloseFailsWaiters(t *testing.T) {
	inQueue(t, func(t *testing.T, q *queue) {
		op := charge(perSecond, 10)
		one := q.ask(t.Context(), op)
		q.let(nil)
		q.told("one who is alone", one, nil)
		first, second := q.ask(t.Context(), op), q.ask(t.Context(), op)
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		q.let(nil)
		q.told("the first", first, nil)
		q.told("the second", second, store.ErrClosed)
	})
}

// TestAChangedLimit is requested at once, and what is held by the old one is lost.
func TestAChangedLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store, inner *recorder) {
		changed := charge(perSecond, 10)
		changed.Params.Capacity *= 2
		for _, op := range []law.Op{changed, charge(perSecond, 10)} {
			handed := s.Handed()
			if out := ask(t, s, op)[0]; out.Granted != 1 || out.Via != law.ViaStore || s.Handed() != handed {
				t.Errorf("%+v", out)
			}
			if asked, _ := inner.last(); asked[0].Params != op.Params || asked[0].Count != 1 {
				t.Errorf("the store was asked %+v", asked)
			}
		}
	})
}
