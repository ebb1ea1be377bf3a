package headgate_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// slowAnswerStore is a store that applies a batch at once and answers after a delay.
type slowAnswerStore struct {
	store.Store
	delay atomic.Int64 // a time.Duration
}

func (s *slowAnswerStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := s.Store.Apply(ctx, ops, outs)
	select {
	case <-time.After(time.Duration(s.delay.Load())):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestLeaseCountsFromTheRequest delays the answer by 29 s of 30: the 30 s must count from the request.
func TestLeaseCountsFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		m := memory.New(nil)
		s := &slowAnswerStore{Store: m}
		request := charges("k", "1 of concurrency 1 ttl 30s")
		s.delay.Store(int64(29 * time.Second))
		first, err := headgate.New(s, &headgate.Config{Timeout: -1}).Acquire(ctx, request...)
		if err != nil || !first.Decision.Allowed {
			t.Fatal(first, err)
		}
		s.delay.Store(0)
		time.Sleep(2 * time.Second)
		second, err := headgate.New(m, nil).Acquire(ctx, request...)
		if err != nil {
			t.Fatal(err)
		}
		if second.Decision.Allowed != errors.Is(first.Err(), headgate.ErrLeaseLost) {
			t.Errorf("a second lease: %+v, and Err of the first: %v; want one of them held", second, first.Err())
		}
		time.Sleep(time.Minute)
		_, _ = first.Release(ctx), second.Release(ctx)
	})
}

// answerLosingStore is a store that applies batches, but loses the answers while cut is set.
type answerLosingStore struct {
	store.Store
	cut atomic.Bool
}

func (s *answerLosingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := s.Store.Apply(ctx, ops, outs)
	if s.cut.Load() {
		return store.ErrUnknownOutcome
	}
	return err
}

// TestWithLeaseReturnsErrLeaseLost checks that WithLease ends the action's context with ErrLeaseLost and returns that
// error if the answers to all renewals are lost.
func TestWithLeaseReturnsErrLeaseLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &answerLosingStore{Store: memory.New(nil)}
		l := headgate.New(s, nil)
		err := headgate.WithLease(context.Background(), l, func(ctx context.Context) error {
			s.cut.Store(true)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), headgate.ErrLeaseLost) {
				t.Errorf("the context's cause is %v, want ErrLeaseLost", context.Cause(ctx))
			}
			s.cut.Store(false)
			return nil
		}, charges("k", "1 of concurrency 1 ttl 30s")...)
		if !errors.Is(err, headgate.ErrLeaseLost) {
			t.Errorf("WithLease returned %v, want ErrLeaseLost", err)
		}
	})
}

// hangingStore is a store whose calls hang while hang is set, whatever the context, as a statement of SQLite does.
type hangingStore struct {
	store.Store
	resume chan struct{} // closed to let hanging calls go on
	hang   atomic.Bool
}

func (s *hangingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if s.hang.Load() {
		<-s.resume
	}
	return s.Store.Apply(ctx, ops, outs)
}

// TestALostLeaseIsReportedWhileARenewalHangs checks that Err reports a lost lease before another caller can acquire it.
func TestALostLeaseIsReportedWhileARenewalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		m := memory.New(nil)
		s := &hangingStore{Store: m, resume: make(chan struct{})}
		request := charges("k", "1 of concurrency 1 ttl 30s")
		first, err := headgate.New(s, &headgate.Config{Timeout: -1}).Acquire(ctx, request...)
		if err != nil {
			t.Fatal(err)
		}
		s.hang.Store(true)
		time.Sleep(45 * time.Second)
		second, err := headgate.New(m, nil).Acquire(ctx, request...)
		if err != nil {
			t.Fatal(err)
		}
		if !second.Decision.Allowed || !errors.Is(first.Err(), headgate.ErrLeaseLost) {
			t.Errorf("a second lease: %+v, and Err of the first: %v; want it acquired, and ErrLeaseLost", second, first.Err())
		}
		close(s.resume)
		time.Sleep(time.Minute)
		_, _ = first.Release(ctx), second.Release(ctx)
	})
}

// TestQueuedWaitFailsAtOnce checks that behind another waiter Wait returns at once if the start comes after the
// deadline, and Await if the cost can never be held. An Await whose context ends returns a DeniedError.
func TestQueuedWaitFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		l := headgate.New(memory.New(nil), nil)
		window := charges("k", "1 of fixed-window 1/1d")
		jobs := charges("k", "1 of concurrency 1 ttl 30s")
		if err := l.Wait(ctx, window...); err != nil {
			t.Fatal(err)
		}
		lease, err := l.Acquire(ctx, jobs...)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = l.Wait(ctx, window...) }()
		go func() { _, _ = l.Await(ctx, jobs...) }()
		synctest.Wait()
		minuteCtx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		begin := time.Now()
		err = l.Wait(minuteCtx, window...)
		if !errors.Is(err, headgate.ErrDeadline) || time.Since(begin) > 0 {
			t.Errorf("a start after the deadline: %v after %v; want ErrDeadline at once", err, time.Since(begin))
		}
		begin = time.Now()
		minuteCtx, cancel = context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err = l.Await(minuteCtx, charges("k", "2 of concurrency 1 ttl 30s")[0])
		if !errors.Is(err, headgate.ErrDenied) || time.Since(begin) > 0 {
			t.Errorf("a cost that can never be held: %v after %v; want a DeniedError at once", err, time.Since(begin))
		}
		minuteCtx, cancel = context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if _, err = l.Await(minuteCtx, jobs...); !errors.Is(err, headgate.ErrDenied) {
			t.Errorf("the context ended: %v; want a DeniedError", err)
		}
		stop()
		_ = lease.Release(context.Background())
		time.Sleep(time.Second) // lets a renewal end that began with the release
	})
}
