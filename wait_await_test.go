package headgate_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// TestWithLease checks that two of six actions run at once, and which errors WithLease returns.
func TestWithLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		request := charges("k", "1 of concurrency 2 ttl 10s")
		var running, maxRunning, done atomic.Int64
		begin := time.Now()
		for range 6 {
			go func() {
				err := headgate.WithLease(ctx, l, func(context.Context) error {
					maxRunning.Store(max(maxRunning.Load(), running.Add(1)))
					time.Sleep(time.Minute)
					running.Add(-1)
					return nil
				}, request...)
				if err != nil {
					t.Error(err)
				}
				done.Add(1)
			}()
		}
		time.Sleep(3*time.Minute + time.Second)
		synctest.Wait()
		if maxRunning.Load() != 2 || done.Load() != 6 {
			t.Errorf("%d at once, %d done after %v; want 2 and 6", maxRunning.Load(), done.Load(), time.Since(begin))
		}
		actionErr := errors.New("failed")
		if err := headgate.WithLease(ctx, l, func(context.Context) error { return actionErr }, request...); !errors.Is(
			err, actionErr) {
			t.Errorf("got %v, want the action's error", err)
		}
		err := headgate.WithLease(ctx, l, func(ctx context.Context) error {
			if _, err := l.Reset(ctx, request[0].Limit, "k"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}, request...)
		if !errors.Is(err, headgate.ErrLeaseLost) {
			t.Errorf("the key was reset: %v, want ErrLeaseLost", err)
		}
		err = headgate.WithLease(ctx, l, func(context.Context) error {
			shortCtx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			err := headgate.WithLease(shortCtx, l, func(context.Context) error { return nil },
				charges("k", "2 of concurrency 2 ttl 10s")...)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, headgate.ErrDenied) {
				t.Errorf("the context ended first: %v, want its error and ErrDenied", err)
			}
			return nil
		}, request...)
		if err != nil {
			t.Errorf("around that action: %v, want nil", err)
		}
	})
}

// TestWithLeaseWhileTheStoreStaysAway checks that WithLease reports a lost lease even if the store cannot be reached to
// release it.
func TestWithLeaseWhileTheStoreStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cutOffStore{Store: memory.New(nil)}
		l := headgate.New(s, nil)
		err := headgate.WithLease(context.Background(), l, func(ctx context.Context) error {
			s.cut.Store(true)
			<-ctx.Done()
			return nil
		}, charges("k", "1 of concurrency 1 ttl 30s")...)
		if !errors.Is(err, headgate.ErrLeaseLost) {
			t.Errorf("got %v, want ErrLeaseLost", err)
		}
	})
}
