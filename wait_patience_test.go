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

// TestWaitingBlocksNoKey waits for limits that block a key after a refusal.
func TestWaitingBlocksNoKey(t *testing.T) {
	for _, tt := range []struct{ limit, wait string }{
		{"token-bucket 1/s burst 1 block 15m", "Wait"},
		{"fixed-window 1/1s block 15m", "Wait"},
		{"token-bucket 1/s burst 1 block 15m", "Reserve"},
		{"gcra 1/s burst 1 block 15m", "Reserve"},
		{"concurrency 1 ttl 10s block 15m", "Await"},
	} {
		t.Run(tt.wait+" "+tt.limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := headgate.New(memory.New(nil), nil)
				charge := charges("k", "1 of "+tt.limit)[0]
				ask := func(within time.Duration) error {
					ctx, cancel := context.WithTimeout(context.Background(), within)
					defer cancel()
					switch tt.wait {
					case "Wait":
						return l.Wait(ctx, charge)
					case "Reserve":
						r, err := l.Reserve(ctx, within, charge)
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
				if err := ask(3 * time.Second); err != nil {
					t.Fatal(err)
				}
				if err := ask(300 * time.Millisecond); !errors.Is(err, headgate.ErrDenied) {
					t.Errorf("less patient than needed: %v", err)
				}
				if err := ask(3 * time.Second); err != nil {
					t.Errorf("then: %v", err)
				}
				if s, err := l.Inspect(context.Background(), charge.Limit, "k"); err != nil ||
					!s.BlockedUntil.IsZero() {
					t.Errorf("%+v, %v", s, err)
				}
				time.Sleep(2 * time.Second)
			})
		})
	}
}

// TestTheDeadlineOfQueuedCallers checks that callers in a queue get the same error as the first caller, even if only at
// the deadline.
func TestTheDeadlineOfQueuedCallers(t *testing.T) {
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
				t.Errorf("%v", err)
			}
		}
		if passed != 1 {
			t.Errorf("%d passed, want one", passed)
		}
		five := charges("big", "1 of sliding-log 5/1s")[0]
		five.Cost = headgate.Units(3)
		ctx, cancel = context.WithTimeout(context.Background(), 700*time.Millisecond)
		defer cancel()
		if err := l.Wait(ctx, five); err != nil {
			t.Fatal(err)
		}
		go func() { errs <- l.Wait(context.Background(), five) }()
		synctest.Wait()
		one := five
		one.Cost = headgate.Cost{}
		if err := l.Wait(ctx, one); !errors.Is(err, headgate.ErrDeadline) ||
			!errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, headgate.ErrDenied) {
			t.Errorf("behind another: %v", err)
		}
		<-errs
	})
}

// delayedStore is a store that answers after a delay.
type delayedStore struct {
	store.Store
	takes time.Duration
}

func (s *delayedStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	time.Sleep(s.takes)
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Store.Apply(ctx, ops, outs)
}

// TestWaitAtMost checks that the wait counts from the first answer, and ends at once if it cannot succeed.
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
				wait := func(most time.Duration) error {
					if !charge.Limit.Concurrency() {
						return l.WaitAtMost(ctx, most, charge)
					}
					lease, err := l.AwaitAtMost(ctx, most, charge)
					if err == nil {
						lease.Detach() // nobody renews it
					}
					return err
				}
				if err := wait(10 * time.Millisecond); err != nil {
					t.Errorf("it had to wait for nothing but the store: %v", err)
				}
				begin := time.Now()
				if err := wait(10 * time.Millisecond); !errors.Is(err, headgate.ErrDeadline) ||
					!errors.Is(err, headgate.ErrDenied) {
					t.Errorf("for less than it takes: %v", err)
				}
				if d := time.Since(begin); d > 400*time.Millisecond {
					t.Errorf("it said so after %v", d)
				}
				if err := wait(450 * time.Millisecond); err != nil {
					t.Errorf("for as long as it takes: %v", err)
				}
				if charge.Limit.Algorithm().String() == limit { // without a block
					if err := wait(0); !errors.Is(err, headgate.ErrDenied) || errors.Is(err, headgate.ErrDeadline) {
						t.Errorf("for nothing: %v", err)
					}
				}
				if err := l.WaitAtMost(ctx, -1, charge); !errors.Is(err, headgate.ErrInvalid) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// TestATimeoutOfTheStoreIsNotErrDeadline checks that such an error of the store is returned as it is.
func TestATimeoutOfTheStoreIsNotErrDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cutOffStore{Store: memory.New(nil), why: context.DeadlineExceeded}
		l := headgate.New(s, nil)
		charge := charges("k", "1 of fixed-window 1/1h")[0]
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if err := l.Wait(ctx, charge); err != nil {
			t.Fatal(err)
		}
		first := make(chan error)
		go func() { first <- l.Wait(ctx, charge) }()
		synctest.Wait()
		s.cut.Store(true)
		if err := l.Wait(ctx, charge); errors.Is(err, headgate.ErrDeadline) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		cancel()
		<-first
	})
}

// TestWaitersTakeNothingUpFront waits for a limit with a prefetch and a block.
func TestWaitersTakeNothingUpFront(t *testing.T) {
	shared := memory.New(nil)
	a, b := headgate.New(prefetch.New(shared), nil), headgate.New(prefetch.New(shared), nil)
	charge := charges("k", "1 of fixed-window 10/1h prefetch 5 block 15m")[0]
	for i := range 10 {
		if err := []*headgate.Limiter{a, b}[i%2].Wait(context.Background(), charge); err != nil {
			t.Errorf("the %d. of ten: %v", i+1, err)
		}
	}
}
