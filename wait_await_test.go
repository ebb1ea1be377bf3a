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

func TestWithLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		ask := charges("k", "1 of concurrency 2 ttl 10s")
		var inside, most, done atomic.Int64
		begin := time.Now()
		for range 6 {
			go func() {
				err := headgate.WithLease(ctx, l, func(context.Context) error {
					most.Store(max(most.Load(), inside.Add(1)))
					time.Sleep(time.Minute)
					inside.Add(-1)
					return nil
				}, ask...)
				if err != nil {
					t.Error(err)
				}
				done.Add(1)
			}()
		}
		time.Sleep(3*time.Minute + time.Second)
		synctest.Wait()
		if most.Load() != 2 || done.Load() != 6 {
			t.Errorf("%d at once, %d done after %v", most.Load(), done.Load(), time.Since(begin))
		}
		failed := errors.New("failed")
		if err := headgate.WithLease(ctx, l, func(context.Context) error { return failed }, ask...); !errors.Is(
			err, failed) {
			t.Errorf("the action's error: %v", err)
		}
		err := headgate.WithLease(ctx, l, func(ctx context.Context) error {
			if _, err := l.Reset(ctx, ask[0].Limit, "k"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}, ask...)
		if !errors.Is(err, headgate.ErrLeaseLost) {
			t.Errorf("lost while it was held: %v", err)
		}
		_ = headgate.WithLease(ctx, l, func(context.Context) error {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			err := headgate.WithLease(short, l, func(context.Context) error { return nil },
				charges("k", "2 of concurrency 2 ttl 10s")...)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, headgate.ErrDenied) {
				t.Errorf("the deadline came first: %v", err)
			}
			return nil
		}, ask...)
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
			t.Errorf("%v", err)
		}
	})
}
