package headgate_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// TestWaitersStartInOrder checks that 50 callers that wait for one key start in the order of their calls, at the rate.
func TestWaitersStartInOrder(t *testing.T) {
	for notation, interval := range map[string]time.Duration{
		"token-bucket 100/s burst 1": 10 * time.Millisecond, "gcra 20/s burst 1": 50 * time.Millisecond,
		"fixed-window 1/2s": 2 * time.Second, "sliding-log 1/3s": 3 * time.Second,
		"interval 1/2s burst 1": 2 * time.Second,
	} {
		t.Run(notation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, limit := headgate.New(memory.New(nil), nil), headgate.MustParse(notation)
				var mu sync.Mutex
				var order []int
				var starts []time.Time
				var wg sync.WaitGroup
				for i := range 50 {
					wg.Go(func() {
						if err := l.Wait(context.Background(), headgate.Charge{Limit: limit, Key: "k"}); err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						order, starts = append(order, i), append(starts, time.Now())
					})
					synctest.Wait()
				}
				wg.Wait()
				if !slices.IsSorted(order) {
					t.Errorf("started in the order %v", order)
				}
				for i := 1; i < len(starts); i++ {
					if got := starts[i].Sub(starts[i-1]); got != interval {
						t.Errorf("start %d came after %v, want %v", i, got, interval)
					}
				}
			})
		})
	}
}

func TestErrorsOfWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, notation := range []string{"token-bucket 1/s burst 2", "sliding-log 2/1h", "fixed-window 2/1h"} {
			l, limit := headgate.New(memory.New(nil), nil), headgate.MustParse(notation)
			charge := func(cost string) headgate.Charge {
				return headgate.Charge{Limit: limit, Key: "k", Cost: headgate.MustCost(cost)}
			}
			wait := func(timeout time.Duration, c headgate.Charge) (took time.Duration, err error) {
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				defer cancel()
				begin := time.Now()
				err = l.Wait(ctx, c)
				return time.Since(begin), err
			}
			if took, err := wait(time.Hour, charge("3")); !errors.Is(err, headgate.ErrDenied) ||
				errors.Is(err, headgate.ErrDeadline) || took > 0 {
				t.Errorf("%s: a cost above the capacity: %v after %v, want only ErrDenied at once", notation, err, took)
			}
			if _, err := wait(time.Second, charge("2")); err != nil {
				t.Errorf("%s: a cost of the capacity: %v, want nil", notation, err)
			}
			if took, err := wait(time.Second/2, charge("1")); !errors.Is(err, headgate.ErrDeadline) ||
				!errors.Is(err, headgate.ErrDenied) || took > 0 {
				t.Errorf("%s: a start after the deadline: %v after %v, want ErrDeadline at once", notation, err, took)
			}
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				time.Sleep(time.Second / 4)
				cancel()
			}()
			if err := l.Wait(ctx, charge("2")); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: cancelled during the wait: %v, want context.Canceled", notation, err)
			}
			if notation[0] == 't' { // the bucket got the cost back: 2 units take 2 s, of which 250 ms have passed
				r, err := l.Reserve(context.Background(), time.Hour, charge("2"))
				if err != nil || r.Delay() != 1750*time.Millisecond {
					t.Errorf("%s: the next reservation starts after %v (%v), want 1.75 s", notation, r.Delay(), err)
				}
			}
		}
		if err := headgate.New(memory.New(nil), nil).Wait(context.Background()); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("no charge: %v, want ErrInvalid", err)
		}
	})
}

func TestLimitedActions(t *testing.T) {
	t.Parallel()
	l, limit := headgate.New(memory.New(nil), nil), headgate.MustParse("fixed-window 2/1h from-first")
	type key struct{} // the key of a value in the caller's context, which the action must get
	ctx := context.WithValue(context.Background(), key{}, "the caller's")
	action := headgate.Limited(l, func(ctx context.Context) (string, error) { return ctx.Value(key{}).(string), nil },
		headgate.Charge{Limit: limit, Key: "k"})
	for i := range 3 {
		got, err := action(ctx)
		denied, ok := errors.AsType[*headgate.DeniedError](err)
		if i < 2 && (got != "the caller's" || err != nil) || i == 2 &&
			(!ok || !errors.Is(err, headgate.ErrDenied) || denied.Decision.RetryAfter <= 0 || got != "") {
			t.Errorf("call %d: got %q, %v; want the action's result twice, then a DeniedError", i, got, err)
		}
	}
	requester := headgate.NewRequester(l, headgate.Charge{Limit: limit, Key: "\x00"})
	if err := requester.RequestToken(ctx); !errors.Is(err, headgate.ErrInvalid) || errors.Is(err, headgate.ErrDenied) {
		t.Errorf("an invalid key: %v, want ErrInvalid", err)
	}
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := headgate.New(memory.New(nil), nil)
		charge := headgate.Charge{Limit: headgate.MustParse("token-bucket 2/s burst 1"), Key: "job"}
		begin := time.Now()
		for i, err := range headgate.Pace(context.Background(), l, charge) {
			if want := time.Duration(i) * 500 * time.Millisecond; err != nil || time.Since(begin) != want {
				t.Errorf("iteration %d after %v (%v), want after %v", i, time.Since(begin), err, want)
			}
			if i == 4 {
				break
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 1200*time.Millisecond)
		defer cancel()
		var lastErr error
		iterations := 0
		for _, err := range headgate.Pace(ctx, l, charge) {
			if lastErr = err; err == nil {
				iterations++
			}
		}
		if iterations != 2 || !errors.Is(lastErr, headgate.ErrDeadline) {
			t.Errorf("%d iterations, then %v; want 2, then ErrDeadline", iterations, lastErr)
		}
	})
}

func TestWaitOutlastsABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, notation := range []string{"token-bucket 1/s burst 2", "sliding-log 2/1h"} {
			l, limit := headgate.New(memory.New(nil), nil), headgate.MustParse(notation)
			if _, err := l.Block(context.Background(), limit, "k", time.Minute, "asked to"); err != nil {
				t.Fatal(err)
			}
			charge := headgate.Charge{Limit: limit, Key: "k"}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			if err := l.Wait(ctx, charge); !errors.Is(err, headgate.ErrDeadline) || ctx.Err() != nil {
				t.Errorf("%s: a block beyond the deadline: %v, want ErrDeadline at once", notation, err)
			}
			cancel()
			begin := time.Now()
			if err := l.Wait(context.Background(), charge); err != nil || time.Since(begin) != time.Minute {
				t.Errorf("%s: waited %v (%v), the block lasts a minute", notation, time.Since(begin), err)
			}
		}
	})
}

// TestWaitAtMostInAQueueReturnsDeniedError lets a caller wait for at most a second behind another waiter. Its own cost
// would pass, and still it must get ErrDeadline with a refusal.
func TestWaitAtMostInAQueueReturnsDeniedError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := headgate.New(memory.New(nil), nil)
		limit := headgate.MustParse("fixed-window 3/1h")
		charge := func(n int64) headgate.Charge {
			return headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(n)}
		}
		if d, err := l.Take(t.Context(), charge(2)); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = l.Wait(ctx, charge(3)) }()
		synctest.Wait()
		err := l.WaitAtMost(t.Context(), time.Second, charge(1))
		denied, ok := errors.AsType[*headgate.DeniedError](err)
		if !errors.Is(err, headgate.ErrDeadline) || !ok || denied.Decision.Allowed {
			t.Errorf("got %v, with %+v; want ErrDeadline and a DeniedError", err, denied)
		}
		cancel()
	})
}
