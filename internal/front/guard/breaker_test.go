package guard_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/guard"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// breakerObserver records the errors with which the breaker opens; nil: it closes.
type breakerObserver struct {
	store.Observer
	mu     sync.Mutex
	events []error
}

func (o *breakerObserver) Away(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, err)
}

// observedProcess is a process with a breakerObserver, which takes from one key.
type observedProcess struct {
	*process
	t        *testing.T
	observer breakerObserver
}

// withBreaker runs a test with a process whose store is reachable, in a bubble of time.
func withBreaker(t *testing.T, test func(t *testing.T, p *observedProcess)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &observedProcess{t: t}
		p.process = newProcess(newRemoteStore(), &guard.Config{Observer: &p.observer})
		defer p.guard.Close()
		test(t, p)
	})
}

// take takes once, and fails the test unless it calls the store, or does not, as wantCall says.
func (p *observedProcess) take(wantCall bool) {
	p.t.Helper()
	oldCalls := p.conn.calls.Load()
	if _, err := p.limiter.Allow(p.t.Context(), headgate.MustParse("token-bucket 100000/s away allow"), "k"); err != nil {
		p.t.Error(err)
	}
	if calls := p.conn.calls.Load() - oldCalls; calls > 1 || (calls == 1) != wantCall {
		p.t.Errorf("got %d calls of the store, want a call: %v", calls, wantCall)
	}
}

// takeFailing takes n times while the store fails.
func (p *observedProcess) takeFailing(n int) {
	p.t.Helper()
	p.conn.fail(errCut)
	for range n {
		p.take(true)
	}
	p.conn.fail(nil)
}

// wantEvents checks what the observer received.
func (p *observedProcess) wantEvents(want ...error) {
	p.t.Helper()
	p.observer.mu.Lock()
	defer p.observer.mu.Unlock()
	if len(p.observer.events) != len(want) {
		p.t.Fatalf("got events %v, want %v", p.observer.events, want)
	}
	for i := range want {
		if !errors.Is(p.observer.events[i], want[i]) {
			p.t.Errorf("got events %v, want %v", p.observer.events, want)
		}
	}
}

func TestTheBreakerOpensAfterFiveFailuresInARow(t *testing.T) {
	withBreaker(t, func(t *testing.T, p *observedProcess) {
		p.take(true)
		p.takeFailing(4)
		p.take(true) // a success between them
		p.takeFailing(4)
		p.take(true)
		p.wantEvents()
		p.takeFailing(5)
		p.take(false)
		p.wantEvents(errCut)
	})
}

func TestTheBreakerProbesAnAwayStoreEveryHalfSecond(t *testing.T) {
	withBreaker(t, func(t *testing.T, p *observedProcess) {
		p.takeFailing(5)
		for range 3 {
			time.Sleep(499 * time.Millisecond)
			p.take(false)
			time.Sleep(time.Millisecond)
			p.takeFailing(1)
			p.take(false)
		}
		p.wantEvents(errCut)
		time.Sleep(500 * time.Millisecond)
		p.take(true)
		p.take(true)
		p.wantEvents(errCut, nil)
		p.takeFailing(5) // after a success it takes five failures again
		p.take(false)
		p.wantEvents(errCut, nil, errCut)
	})
}

// TestOneDecisionAtATimeProbesAnAwayStore checks that other decisions do not call the store during a probe.
func TestOneDecisionAtATimeProbesAnAwayStore(t *testing.T) {
	withBreaker(t, func(t *testing.T, p *observedProcess) {
		p.takeFailing(5)
		p.conn.silent.Store(true)
		for range 2 {
			time.Sleep(500 * time.Millisecond)
			go p.take(true)
			synctest.Wait()
			for range 10 {
				p.take(false)
			}
			time.Sleep(guard.DefaultDeadline)
			synctest.Wait()
		}
		p.conn.silent.Store(false)
		time.Sleep(500 * time.Millisecond)
		p.take(true)
		p.wantEvents(errCut, nil)
	})
}

// TestALateAnswerClosesTheBreaker checks that an answer to a call from before the breaker opened closes it.
func TestALateAnswerClosesTheBreaker(t *testing.T) {
	withBreaker(t, func(t *testing.T, p *observedProcess) {
		release := make(chan struct{})
		p.conn.hold = release
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = p.limiter.Allow(t.Context(), headgate.MustParse("token-bucket 1/s"), "k")
		}()
		synctest.Wait()
		p.conn.hold = nil
		p.takeFailing(5)
		p.take(false)
		close(release)
		<-done
		p.wantEvents(errCut, nil)
		p.take(true)
	})
}

// TestCancelledCallsDoNotOpenTheBreaker cancels 20 calls of a silent store.
func TestCancelledCallsDoNotOpenTheBreaker(t *testing.T) {
	withBreaker(t, func(t *testing.T, p *observedProcess) {
		p.conn.silent.Store(true)
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			_, err := p.limiter.Allow(ctx, headgate.MustParse("token-bucket 1/s away allow"), "k")
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want %v", err, context.Canceled)
			}
		}
		p.wantEvents()
	})
}

// TestErrorsOfARequestDoNotOpenTheBreaker checks errors that a store returns though it is reachable.
func TestErrorsOfARequestDoNotOpenTheBreaker(t *testing.T) {
	for _, err := range []error{store.ErrFull, store.ErrConflict, store.ErrSetup} {
		withBreaker(t, func(t *testing.T, p *observedProcess) {
			p.conn.fail(err)
			for range 20 {
				_, _ = p.limiter.Allow(t.Context(), headgate.MustParse("token-bucket 1/s away allow"), "k")
			}
			p.wantEvents()
		})
	}
}

// lateConflictStore returns a conflict at the deadline.
type lateConflictStore struct{ scriptedStore }

func (*lateConflictStore) Apply(ctx context.Context, _ []law.Op, _ []law.Outcome) error {
	<-ctx.Done()
	return store.ErrConflict
}

// TestErrorsThatOpenTheBreaker calls a store five times with three ops, of which some or all fail.
func TestErrorsThatOpenTheBreaker(t *testing.T) {
	for _, c := range []struct {
		name  string
		inner store.Store
		opens bool
	}{
		{"the batch fails", &scriptedStore{err: errA}, true},
		{"each of its groups fails", &scriptedStore{opErrs: []error{errA, errB, errA}}, true},
		{"all but the first", &scriptedStore{opErrs: []error{nil, errB, errA}}, false},
		{"all but the last", &scriptedStore{opErrs: []error{errA, errB}}, false},
		{"each, the last by bad input", &scriptedStore{opErrs: []error{errA, errA, errBad}}, false},
		{"a conflict", &scriptedStore{err: store.ErrConflict}, false},
		{"a conflict until the deadline", &lateConflictStore{}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := guard.New(c.inner, silentConfig(nil))
			defer g.Close()
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_ = g.Apply(ctx, takesOf("a a a"), make([]law.Outcome, 3))
				cancel()
			}
			if got := g.Stats().Away; got != c.opens {
				t.Errorf("%s: got open %v, want %v", c.name, got, c.opens)
			}
		})
	}
}
