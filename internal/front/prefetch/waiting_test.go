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

// result is the result of a caller.
type result struct {
	out law.Outcome
	err error
}

// heldStore is a Store on an inner store that holds each answer until the test releases it.
type heldStore struct {
	t *testing.T
	*Store
	inner *recordingStore

	mu      sync.Mutex
	answers []chan error // the held ones, the oldest first
}

// withHeldStore runs a test in a bubble of time, on a heldStore whose answers the test has to release.
func withHeldStore(t *testing.T, test func(t *testing.T, s *heldStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &heldStore{t: t, inner: &recordingStore{Store: memory.New(nil)}}
		s.inner.afterApply = func(ctx context.Context) error {
			answer := make(chan error)
			s.mu.Lock()
			s.answers = append(s.answers, answer)
			s.mu.Unlock()
			select {
			case err := <-answer:
				return err
			case <-ctx.Done():
				s.mu.Lock()
				s.answers = slices.DeleteFunc(s.answers, func(c chan error) bool { return c == answer })
				s.mu.Unlock()
				return ctx.Err()
			}
		}
		s.Store = New(s.inner)
		test(t, s)
		synctest.Wait()
		if len(s.answers) > 0 {
			t.Errorf("got %d answers that no test has released, want none", len(s.answers))
		}
		s.inner.afterApply = nil
		s.Close()
	})
}

// start starts a caller with an op, and returns when the caller waits or has its result.
func (s *heldStore) start(ctx context.Context, op law.Op) <-chan result {
	results := make(chan result, 1)
	go func() {
		outs := make([]law.Outcome, 1)
		err := s.Apply(ctx, []law.Op{op}, outs)
		results <- result{outs[0], err}
	}()
	synctest.Wait()
	return results
}

// release releases the oldest answer, or an error in its place.
func (s *heldStore) release(err error) {
	s.t.Helper()
	s.releaseAt(0, err)
}

// releaseAt releases the answer with an index, or an error in its place.
func (s *heldStore) releaseAt(i int, err error) {
	s.t.Helper()
	s.mu.Lock()
	if i >= len(s.answers) {
		s.mu.Unlock()
		s.t.Fatalf("got no held answer %d, want one", i)
	}
	answer := s.answers[i]
	s.answers = slices.Delete(s.answers, i, i+1)
	s.mu.Unlock()
	answer <- err
	synctest.Wait()
}

// mustReturn fails the test unless a caller has returned with one granted charge, or with this error.
func (s *heldStore) mustReturn(caller string, results <-chan result, wantErr error) law.Outcome {
	s.t.Helper()
	select {
	case r := <-results:
		if !errors.Is(r.err, wantErr) || (r.err == nil) != (wantErr == nil) || r.err == nil && r.out.Granted != 1 {
			s.t.Fatalf("%s: got %+v, %v; want error %v", caller, r.out, r.err, wantErr)
		}
		return r.out
	default:
		s.t.Fatalf("%s waits, want it to return", caller)
		return law.Outcome{}
	}
}

// TestAWaiterFetchesWhenTheFetcherIsCancelled checks that a waiter then fetches, for the other one too.
func TestAWaiterFetchesWhenTheFetcherIsCancelled(t *testing.T) {
	withHeldStore(t, func(t *testing.T, s *heldStore) {
		op := charge(perSecond, 10)
		ctx, cancel := context.WithCancel(t.Context())
		first, second, third := s.start(ctx, op), s.start(t.Context(), op), s.start(t.Context(), op)
		cancel()
		synctest.Wait()
		s.mustReturn("the first", first, context.Canceled)
		s.release(nil)
		if len(second)+len(third) == 1 { // the other began to wait after the call was made
			s.release(nil)
		}
		s.mustReturn("the second", second, nil)
		s.mustReturn("the third", third, nil)
	})
}

// TestNothingIsTakenForCancelledWaiters checks that the cost of a waiter is subtracted when its context ends.
func TestNothingIsTakenForCancelledWaiters(t *testing.T) {
	withHeldStore(t, func(t *testing.T, s *heldStore) {
		op := charge(perSecond, 10)
		ctx, cancel := context.WithCancel(t.Context())
		first, second := s.start(t.Context(), op), s.start(ctx, op)
		cancel()
		synctest.Wait()
		s.mustReturn("the second", second, context.Canceled)
		s.release(nil)
		s.mustReturn("the first", first, nil)
		tokens, _ := s.locals.GetIfPresent(op.Cell)
		if tokens.waitingCredits != 0 {
			t.Errorf("got %d credits of waiters, want 0", tokens.waitingCredits)
		}
	})
}

// TestWaitersFailWithTheStore checks that waiters get the error of the fetch, and that later callers fetch again.
func TestWaitersFailWithTheStore(t *testing.T) {
	withHeldStore(t, func(t *testing.T, s *heldStore) {
		op := charge(perSecond, 10)
		first, second := s.start(t.Context(), op), s.start(t.Context(), op)
		s.release(store.ErrUnavailable)
		s.mustReturn("the first", first, store.ErrUnavailable)
		s.mustReturn("the second", second, store.ErrUnavailable)
		third := s.start(t.Context(), op)
		s.release(nil)
		s.mustReturn("the third", third, nil)
	})
}

// TestWaitersGetTokensOrFetch checks that a waiter for whom the tokens of a fetch do not suffice fetches.
func TestWaitersGetTokensOrFetch(t *testing.T) {
	withHeldStore(t, func(t *testing.T, s *heldStore) {
		op := charge(perSecond, 10)
		first := s.start(t.Context(), op)
		s.release(nil)
		s.mustReturn("the first", first, nil)
		second, third := s.start(t.Context(), op), s.start(t.Context(), op) // five are taken for the second
		large := charge(perSecond, 500)
		fourth := s.start(t.Context(), large)
		s.release(nil)
		s.mustReturn("the second", second, nil)
		out := s.mustReturn("the third", third, nil)
		if out.Via != law.ViaPrefetch || s.HandedOut() != 1 {
			t.Errorf("the third: got %+v and %d charges handed out, want a local charge, 1", out, s.HandedOut())
		}
		s.release(nil)
		if out := s.mustReturn("the fourth", fourth, nil); out.Via != law.ViaStore || s.HandedOut() != 1 {
			t.Errorf("the fourth: got %+v and %d charges handed out, want a charge of the store, 1", out, s.HandedOut())
		}
		fifth := s.start(t.Context(), op)
		if out := s.mustReturn("the fifth", fifth, nil); out.Via != law.ViaPrefetch || s.HandedOut() != 2 {
			t.Errorf("the fifth: got %+v and %d charges handed out, want a local charge, 2", out, s.HandedOut())
		}
	})
}

// TestARefusedFetchRefusesTheSameCost checks that a refusal holds for waiters of its cost; others fetch.
func TestARefusedFetchRefusesTheSameCost(t *testing.T) {
	withHeldStore(t, func(t *testing.T, s *heldStore) {
		outs := make([]law.Outcome, 1)
		if err := s.inner.Store.Apply(t.Context(), []law.Op{charge(perSecond, 9900)}, outs); err != nil {
			t.Fatal(err)
		}
		large, small := charge(perSecond, 200), charge(perSecond, 30)
		first, second, third := s.start(t.Context(), large), s.start(t.Context(), large), s.start(t.Context(), small)
		s.release(nil)
		firstResult, secondResult := <-first, <-second
		if firstResult.err != nil || firstResult.out.Granted != 0 || firstResult.out.RetryAt == 0 ||
			secondResult != firstResult || s.HandedOut() != 0 {
			t.Errorf("the first: got %+v\nthe second: got %+v\nwant the same refusal", firstResult, secondResult)
		}
		s.release(nil)
		s.mustReturn("the third", third, nil)
	})
}

// TestWaitersFetchAfterAStaleAnswer checks that only the fetcher gets a stale outcome, or an error of the cell.
func TestWaitersFetchAfterAStaleAnswer(t *testing.T) {
	for name, firstOutcome := range map[string]law.Outcome{
		"an error": {Err: store.ErrHeld}, "stale": {Stale: true, Clock: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &oddFirstStore{
					recordingStore: recordingStore{Store: memory.New(nil)}, delay: func() { time.Sleep(time.Second) },
					firstOutcome: firstOutcome,
				}
				s := &heldStore{t: t, Store: New(inner)}
				defer s.Close()
				op := charge(perSecond, 10)
				first, second := s.start(t.Context(), op), s.start(t.Context(), op)
				time.Sleep(time.Second)
				synctest.Wait()
				if r := <-first; r.err != nil || r.out != firstOutcome {
					t.Errorf("the fetcher: got %+v, %v; want %+v", r.out, r.err, firstOutcome)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				s.mustReturn("the second", second, nil)
			})
		})
	}
}

// oddFirstStore is a store whose first outcome is a given one.
type oddFirstStore struct {
	recordingStore
	delay        func() // is called before each answer
	firstOutcome law.Outcome
	hasAnswered  bool
}

func (o *oddFirstStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	o.delay()
	if o.hasAnswered {
		return o.recordingStore.Apply(ctx, ops, outs)
	}
	o.hasAnswered, outs[0] = true, o.firstOutcome
	return nil
}

// TestAResetDropsTheTokensOfAFetch resets a key during a fetch: the fetcher keeps its charge, and nothing else.
func TestAResetDropsTheTokensOfAFetch(t *testing.T) {
	withHeldStore(t, func(t *testing.T, s *heldStore) {
		op, reset := charge(perSecond, 10), charge(perSecond, 10)
		reset.Verb = law.Reset
		onlyCaller := s.start(t.Context(), op)
		s.release(nil)
		s.mustReturn("a caller without waiters", onlyCaller, nil)
		first, second := s.start(t.Context(), op), s.start(t.Context(), op) // five are taken
		s.start(t.Context(), reset)
		s.releaseAt(1, nil)
		s.release(nil)
		s.mustReturn("the first", first, nil)
		s.release(nil)
		if out := s.mustReturn("the second", second, nil); out.Via != law.ViaStore {
			t.Errorf("the second: got %+v, want a charge of the store", out)
		}
	})
}

// TestCloseFailsWaiters closes a Store during a fetch: the fetcher keeps its charge, and the waiter gets ErrClosed.
func TestCloseFailsWaiters(t *testing.T) {
	withHeldStore(t, func(t *testing.T, s *heldStore) {
		op := charge(perSecond, 10)
		onlyCaller := s.start(t.Context(), op)
		s.release(nil)
		s.mustReturn("a caller without waiters", onlyCaller, nil)
		first, second := s.start(t.Context(), op), s.start(t.Context(), op)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s.release(nil)
		s.mustReturn("the first", first, nil)
		s.mustReturn("the second", second, store.ErrClosed)
	})
}

// TestAChangedLimitFetchesAnew checks that a charge of a changed limit gets no tokens of the old limit.
func TestAChangedLimitFetchesAnew(t *testing.T) {
	withTokens(t, func(t *testing.T, s *Store, inner *recordingStore) {
		changedOp := charge(perSecond, 10)
		changedOp.Params.Capacity *= 2
		for _, op := range []law.Op{changedOp, charge(perSecond, 10)} {
			before := s.HandedOut()
			if out := mustApply(t, s, op)[0]; out.Granted != 1 || out.Via != law.ViaStore || s.HandedOut() != before {
				t.Errorf("got %+v, want a charge of the store", out)
			}
			if batch, _ := inner.lastBatch(); batch[0].Params != op.Params || batch[0].Count != 1 {
				t.Errorf("the store got %+v, want one charge of the limit", batch)
			}
		}
	})
}
