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

// slowAnswerStore is a store whose answers arrive after a delay.
type slowAnswerStore struct {
	store.Store
	delay atomic.Int64
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

// TestALeaseCountsFromBeforeASlowAnswer delays the answer to an Acquire: the lease must be renewed in time, counted
// from before the request.
func TestALeaseCountsFromBeforeASlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		m := memory.New(nil)
		s := &slowAnswerStore{Store: m}
		ask := charges("k", "1 of concurrency 1 ttl 30s")
		s.delay.Store(int64(29 * time.Second))
		a, err := headgate.New(s, &headgate.Config{Timeout: -1}).Acquire(ctx, ask...)
		if err != nil || !a.Decision.Allowed {
			t.Fatal(a, err)
		}
		s.delay.Store(0)
		time.Sleep(2 * time.Second)
		b, err := headgate.New(m, nil).Acquire(ctx, ask...)
		if err != nil {
			t.Fatal(err)
		}
		if b.Decision.Allowed && a.Err() == nil {
			t.Error("two hold a lease of concurrency 1, and the first does not know that it is lost")
		}
		time.Sleep(time.Minute)
		_, _ = a.Release(ctx), b.Release(ctx)
	})
}

// lostAnswersStore is a store that applies batches, but whose answers are lost.
type lostAnswersStore struct {
	store.Store
	cut atomic.Bool
}

func (s *lostAnswersStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := s.Store.Apply(ctx, ops, outs)
	if s.cut.Load() {
		return store.ErrUnknownOutcome
	}
	return err
}

// TestWithLeaseReturnsErrLeaseLost checks that the error of WithLease includes ErrLeaseLost if the lease was lost.
func TestWithLeaseReturnsErrLeaseLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &lostAnswersStore{Store: memory.New(nil)}
		l := headgate.New(s, nil)
		err := headgate.WithLease(context.Background(), l, func(ctx context.Context) error {
			s.cut.Store(true)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), headgate.ErrLeaseLost) {
				t.Error(context.Cause(ctx))
			}
			s.cut.Store(false)
			return nil
		}, charges("k", "1 of concurrency 1 ttl 30s")...)
		if !errors.Is(err, headgate.ErrLeaseLost) {
			t.Errorf("the action was told that its lease is lost, Hold says %v", err)
		}
	})
}

// stuckStore is a store that ignores the context, as SQLite does once it has begun.
type stuckStore struct {
	store.Store
	until chan struct{}
	on    atomic.Bool
}

func (s *stuckStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if s.on.Load() {
		<-s.until
	}
	return s.Store.Apply(ctx, ops, outs)
}

func TestALostLeaseIsReportedWhileARenewalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		m := memory.New(nil)
		s := &stuckStore{Store: m, until: make(chan struct{})}
		ask := charges("k", "1 of concurrency 1 ttl 30s")
		a, err := headgate.New(s, &headgate.Config{Timeout: -1}).Acquire(ctx, ask...)
		if err != nil {
			t.Fatal(err)
		}
		s.on.Store(true)
		time.Sleep(45 * time.Second)
		b, err := headgate.New(m, nil).Acquire(ctx, ask...)
		if err != nil {
			t.Fatal(err)
		}
		if b.Decision.Allowed && a.Err() == nil {
			t.Error("two hold a lease of concurrency 1 while a renewal hangs")
		}
		close(s.until)
		time.Sleep(time.Minute)
		_, _ = a.Release(ctx), b.Release(ctx)
	})
}

// TestQueuedCallersFailAtOnceWhenTheyMust checks that a caller behind another one in a queue gets at once the errors
// that Wait and Await promise to return at once.
func TestQueuedCallersFailAtOnceWhenTheyMust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		l := headgate.New(memory.New(nil), nil)
		window := charges("k", "1 of fixed-window 1/1d")
		held := charges("k", "1 of concurrency 1 ttl 30s")
		if err := l.Wait(ctx, window...); err != nil {
			t.Fatal(err)
		}
		lease, err := l.Acquire(ctx, held...)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = l.Wait(ctx, window...) }()
		go func() { _, _ = l.Await(ctx, held...) }()
		synctest.Wait()
		minute, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		begin := time.Now()
		err = l.Wait(minute, window...)
		if !errors.Is(err, headgate.ErrDeadline) || time.Since(begin) > 0 {
			t.Errorf("a start after the deadline: %v after %v; want ErrDeadline at once", err, time.Since(begin))
		}
		begin = time.Now()
		minute, cancel2 := context.WithTimeout(ctx, time.Minute)
		defer cancel2()
		_, err = l.Await(minute, charges("k", "2 of concurrency 1 ttl 30s")[0])
		if !errors.Is(err, headgate.ErrDenied) || time.Since(begin) > 0 {
			t.Errorf("a cost that can never be held: %v after %v; want a DeniedError at once", err, time.Since(begin))
		}
		minute, cancel3 := context.WithTimeout(ctx, time.Minute)
		defer cancel3()
		if _, err = l.Await(minute, held...); !errors.Is(err, headgate.ErrDenied) {
			t.Errorf("the context ended: %v; want that of the context and a DeniedError", err)
		}
		stop()
		_ = lease.Release(context.Background())
		time.Sleep(time.Second) // for a renewal that waits for a turn in the store
	})
}
