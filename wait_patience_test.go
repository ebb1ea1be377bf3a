package headgate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/prefetch"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestWaitBlocksNoKey checks that Wait, Reserve and Await set no block, even if they fail, under limits that block a
// key after a refusal.
func TestWaitBlocksNoKey(t *testing.T) {
	for _, tt := range []struct{ limit, method string }{
		{"token-bucket 1/s burst 1 block 15m", "Wait"},
		{"fixed-window 1/1s block 15m", "Wait"},
		{"token-bucket 1/s burst 1 block 15m", "Reserve"},
		{"gcra 1/s burst 1 block 15m", "Reserve"},
		{"concurrency 1 ttl 10s block 15m", "Await"},
	} {
		t.Run(tt.method+" "+tt.limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := headgate.New(memory.New(nil), nil)
				charge := charges("k", "1 of "+tt.limit)[0]
				wait := func(timeout time.Duration) error {
					ctx, cancel := context.WithTimeout(context.Background(), timeout)
					defer cancel()
					switch tt.method {
					case "Wait":
						return l.Wait(ctx, charge)
					case "Reserve":
						r, err := l.Reserve(ctx, timeout, charge)
						if err == nil && !r.Decision.Allowed {
							err = &headgate.DeniedError{Decision: r.Decision}
						}
						return err
					}
					lease, err := l.Await(ctx, charge)
					if err == nil {
						time.AfterFunc(time.Second, func() { _ = lease.Release(context.Background()) })
					}
					return err
				}
				if err := wait(3 * time.Second); err != nil {
					t.Fatal(err)
				}
				if err := wait(300 * time.Millisecond); !errors.Is(err, headgate.ErrDenied) {
					t.Errorf("less time than needed: %v, want ErrDenied", err)
				}
				if err := wait(3 * time.Second); err != nil {
					t.Errorf("enough time afterwards: %v", err)
				}
				if s, err := l.Inspect(context.Background(), charge.Limit, "k"); err != nil ||
					!s.BlockedUntil.IsZero() {
					t.Errorf("got %+v, %v; want no block", s, err)
				}
				time.Sleep(2 * time.Second)
			})
		})
	}
}

// TestWaitInAQueueReturnsErrDeadline checks that callers behind the first waiter of a queue get ErrDeadline too, even
// if only at the deadline.
func TestWaitInAQueueReturnsErrDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := headgate.New(memory.New(nil), nil)
		charge := charges("k", "1 of interval 1/1s")[0]
		ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		defer cancel()
		if err := l.Wait(ctx, charge); err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 4)
		for range cap(errs) {
			go func() { errs <- l.Wait(ctx, charge) }()
		}
		passed := 0
		for range cap(errs) {
			if err := <-errs; err == nil {
				passed++
			} else if !errors.Is(err, headgate.ErrDeadline) {
				t.Errorf("got %v, want nil or ErrDeadline", err)
			}
		}
		if passed != 1 {
			t.Errorf("%d passed, want one", passed)
		}
		largeCharge := charges("big", "3 of sliding-log 5/1s")[0]
		ctx, cancel = context.WithTimeout(context.Background(), 700*time.Millisecond)
		defer cancel()
		if err := l.Wait(ctx, largeCharge); err != nil {
			t.Fatal(err)
		}
		go func() { errs <- l.Wait(context.Background(), largeCharge) }()
		synctest.Wait()
		smallCharge := largeCharge
		smallCharge.Cost = headgate.Cost{}
		if err := l.Wait(ctx, smallCharge); !errors.Is(err, headgate.ErrDeadline) ||
			!errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, headgate.ErrDenied) {
			t.Errorf("behind a larger charge: %v, want ErrDeadline, ErrDenied and the context's error", err)
		}
		<-errs
	})
}

// delayedStore is a store that applies a batch after a delay, unless the context has ended then.
type delayedStore struct {
	store.Store
	delay time.Duration
}

func (s *delayedStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	time.Sleep(s.delay)
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Store.Apply(ctx, ops, outs)
}

// TestWaitAtMost checks that WaitAtMost and AwaitAtMost count the time from the store's first answer, and fail at once
// if the start comes later.
func TestWaitAtMost(t *testing.T) {
	for _, limit := range []string{
		"token-bucket 2/s burst 1", "fixed-window 1/500ms", "sliding-log 1/500ms block 15m",
		"concurrency 1 ttl 500ms",
	} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				l := headgate.New(&delayedStore{memory.New(nil), 100 * time.Millisecond}, nil)
				charge := charges("k", "1 of "+limit)[0]
				wait := func(maxWait time.Duration) error {
					if !charge.Limit.Concurrency() {
						return l.WaitAtMost(ctx, maxWait, charge)
					}
					lease, err := l.AwaitAtMost(ctx, maxWait, charge)
					if err == nil {
						lease.Detach() // it ends after its time to live
					}
					return err
				}
				if err := wait(10 * time.Millisecond); err != nil {
					t.Errorf("with room: %v, want nil though the store takes 100 ms", err)
				}
				begin := time.Now()
				if err := wait(10 * time.Millisecond); !errors.Is(err, headgate.ErrDeadline) ||
					!errors.Is(err, headgate.ErrDenied) {
					t.Errorf("less time than needed: %v, want ErrDeadline and ErrDenied", err)
				}
				if d := time.Since(begin); d > 400*time.Millisecond {
					t.Errorf("less time than needed: returned after %v, want within 400 ms", d)
				}
				if err := wait(450 * time.Millisecond); err != nil {
					t.Errorf("enough time: %v", err)
				}
				if err := wait(0); !errors.Is(err, headgate.ErrDenied) || errors.Is(err, headgate.ErrDeadline) {
					t.Errorf("no time: %v, want ErrDenied and not ErrDeadline", err)
				}
				if err := l.WaitAtMost(ctx, -1, charge); !errors.Is(err, headgate.ErrInvalid) {
					t.Errorf("a negative time: %v, want ErrInvalid", err)
				}
			})
		})
	}
}

// TestATimeoutOfTheStoreIsNotErrDeadline checks that Wait behind another waiter returns the store's timeout as it is.
func TestATimeoutOfTheStoreIsNotErrDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cutOffStore{Store: memory.New(nil), failure: context.DeadlineExceeded}
		l := headgate.New(s, nil)
		charge := charges("k", "1 of fixed-window 1/1h")[0]
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if err := l.Wait(ctx, charge); err != nil {
			t.Fatal(err)
		}
		firstErr := make(chan error)
		go func() { firstErr <- l.Wait(ctx, charge) }()
		synctest.Wait()
		s.cut.Store(true)
		if err := l.Wait(ctx, charge); errors.Is(err, headgate.ErrDeadline) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the store's DeadlineExceeded without ErrDeadline", err)
		}
		cancel()
		<-firstErr
	})
}

// TestWaitPrefetchesNothingUnderABlock waits ten times for a limit of 10 with a prefetch and a block, by turns over two
// prefetching stores. All ten must pass: neither store may hold tokens back.
func TestWaitPrefetchesNothingUnderABlock(t *testing.T) {
	m := memory.New(nil)
	limiter1, limiter2 := headgate.New(prefetch.New(m), nil), headgate.New(prefetch.New(m), nil)
	charge := charges("k", "1 of fixed-window 10/1h prefetch 5 block 15m")[0]
	for i := range 10 {
		if err := []*headgate.Limiter{limiter1, limiter2}[i%2].Wait(context.Background(), charge); err != nil {
			t.Errorf("wait %d of 10: %v", i+1, err)
		}
	}
}
