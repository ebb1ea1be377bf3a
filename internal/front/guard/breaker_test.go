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

// witness notes when the breaker opens and closes.
type witness struct {
	store.Observer
	mu  sync.Mutex
	saw []error
}

func (w *witness) Away(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.saw = append(w.saw, err)
}

// watched is a process whose breaker is watched, and that asks about one key.
type watched struct {
	*process
	t *testing.T
	witness
}

// withBreaker calls a test with a process, whose store is reached.
func withBreaker(t *testing.T, test func(t *testing.T, w *watched)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{t: t}
		w.process = newProcess(newDistant(), &guard.Config{Observer: &w.witness})
		defer w.guard.Close()
		test(t, w)
	})
}

// take asks once, and fails the test if the store was not asked as expected.
func (w *watched) take(want bool) {
	w.t.Helper()
	before := w.link.asked.Load()
	if _, err := w.limiter.Allow(w.t.Context(), headgate.MustParse("token-bucket 100000/s away allow"), "k"); err != nil {
		w.t.Error(err)
	}
	if asked := w.link.asked.Load() - before; asked > 1 || (asked == 1) != want {
		w.t.Errorf("the store was asked %d times, want %v", asked, want)
	}
}

// fail lets the store fail for some decisions.
func (w *watched) fail(n int) {
	w.t.Helper()
	w.link.cut(errCut)
	for range n {
		w.take(true)
	}
	w.link.cut(nil)
}

// told checks what the observer was told.
func (w *watched) told(want ...error) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.saw) != len(want) {
		w.t.Fatalf("the observer was told %v, want %v", w.saw, want)
	}
	for i := range want {
		if !errors.Is(w.saw[i], want[i]) {
			w.t.Errorf("the observer was told %v, want %v", w.saw, want)
		}
	}
}

func TestTheBreakerOpensAfterFiveFailuresInARow(t *testing.T) {
	withBreaker(t, func(t *testing.T, w *watched) {
		w.take(true)
		w.fail(4)
		w.take(true) // a success between them
		w.fail(4)
		w.take(true)
		w.told()
		w.fail(5)
		w.take(false)
		w.told(errCut)
	})
}

func TestTheBreakerProbesAnAwayStoreEveryHalfSecond(t *testing.T) {
	withBreaker(t, func(t *testing.T, w *watched) {
		w.fail(5)
		for range 3 {
			time.Sleep(499 * time.Millisecond)
			w.take(false)
			time.Sleep(time.Millisecond)
			w.fail(1)
			w.take(false)
		}
		w.told(errCut)
		time.Sleep(500 * time.Millisecond)
		w.take(true)
		w.take(true)
		w.told(errCut, nil)
		w.fail(5) // it opens again as it did at first
		w.take(false)
		w.told(errCut, nil, errCut)
	})
}

// TestOneDecisionAtATimeProbesAnAwayStore has many decide while the call of the store is under way.
func TestOneDecisionAtATimeProbesAnAwayStore(t *testing.T) {
	withBreaker(t, func(t *testing.T, w *watched) {
		w.fail(5)
		w.link.silent.Store(true)
		for range 2 {
			time.Sleep(500 * time.Millisecond)
			go w.take(true)
			synctest.Wait()
			for range 10 {
				w.take(false)
			}
			time.Sleep(guard.DefaultDeadline)
			synctest.Wait()
		}
		w.link.silent.Store(false)
		time.Sleep(500 * time.Millisecond)
		w.take(true)
		w.told(errCut, nil)
	})
}

// TestALateAnswerClosesTheBreaker to a question that was asked before it opened.
func TestALateAnswerClosesTheBreaker(t *testing.T) {
	withBreaker(t, func(t *testing.T, w *watched) {
		release := make(chan struct{})
		w.link.hold = release
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = w.limiter.Allow(t.Context(), headgate.MustParse("token-bucket 1/s"), "k")
		}()
		synctest.Wait()
		w.link.hold = nil
		w.fail(5)
		w.take(false)
		close(release)
		<-done
		w.told(errCut, nil)
		w.take(true)
	})
}

// TestFailuresOfCallersThatLeaveDoNotOpenTheBreaker ends contexts while the store is silent.
func TestFailuresOfCallersThatLeaveDoNotOpenTheBreaker(t *testing.T) {
	withBreaker(t, func(t *testing.T, w *watched) {
		w.link.silent.Store(true)
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			_, err := w.limiter.Allow(ctx, headgate.MustParse("token-bucket 1/s away allow"), "k")
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want the end of the caller's context", err)
			}
		}
		w.told()
	})
}

// TestErrorsOfARequestDoNotOpenTheBreaker: such errors do not mean that the store is away.
func TestErrorsOfARequestDoNotOpenTheBreaker(t *testing.T) {
	for _, err := range []error{store.ErrFull, store.ErrConflict, store.ErrSetup} {
		withBreaker(t, func(t *testing.T, w *watched) {
			w.link.cut(err)
			for range 20 {
				_, _ = w.limiter.Allow(t.Context(), headgate.MustParse("token-bucket 1/s away allow"), "k")
			}
			w.told()
		})
	}
}

// late is a store that finds out about a conflict when the time is over.
type late struct{ scripted }

func (*late) Apply(ctx context.Context, _ []law.Op, _ []law.Outcome) error {
	<-ctx.Done()
	return store.ErrConflict
}

// TestErrorsThatOpenTheBreaker calls a store five times that fails in part, or altogether.
func TestErrorsThatOpenTheBreaker(t *testing.T) {
	for _, c := range []struct {
		name  string
		inner store.Store
		opens bool
	}{
		{"the batch fails", &scripted{err: errA}, true},
		{"each of its groups fails", &scripted{errs: []error{errA, errB, errA}}, true},
		{"all but the first", &scripted{errs: []error{nil, errB, errA}}, false},
		{"all but the last", &scripted{errs: []error{errA, errB}}, false},
		{"each, the last by bad input", &scripted{errs: []error{errA, errA, errBad}}, false},
		{"a conflict", &scripted{err: store.ErrConflict}, false},
		{"a conflict until the deadline", &late{}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := guard.New(c.inner, quiet(nil))
			defer g.Close()
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_ = g.Apply(ctx, asks("a a a"), make([]law.Outcome, 3))
				cancel()
			}
			if got := g.Stats().Away; got != c.opens {
				t.Errorf("%s: open %v, want %v", c.name, got, c.opens)
			}
		})
	}
}
