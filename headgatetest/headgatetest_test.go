package headgatetest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/headgatetest"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestAdvanceMovesDecisionsAndWaiting checks that tokens arrive and that a waiting caller
// continues.
func TestAdvanceMovesDecisionsAndWaiting(t *testing.T) {
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		limit := headgate.MustParse("token-bucket 1/1h")
		for i, want := range []bool{true, false, true} {
			d, err := l.Allow(t.Context(), limit, "k")
			if err != nil || d.Allowed != want {
				t.Errorf("%d: %+v, %v", i, d, err)
			}
			if !want {
				if d.RetryAfter != time.Hour {
					t.Errorf("the next token comes after %v", d.RetryAfter)
				}
				headgatetest.Advance(time.Hour)
			}
		}

		var passed atomic.Bool
		go func() {
			if err := l.Wait(t.Context(), headgate.Charge{Limit: limit, Key: "k"}); err != nil {
				t.Error(err)
			}
			passed.Store(true)
		}()
		headgatetest.Advance(time.Hour - time.Millisecond)
		if passed.Load() {
			t.Error("it passed before the hour was over")
		}
		headgatetest.Advance(time.Millisecond)
		if !passed.Load() {
			t.Error("it did not pass when the hour was over")
		}
	})
}

// TestAWaitOfAnHourTakesNoTime, nor does a lease that runs out.
func TestAWaitOfAnHourTakesNoTime(t *testing.T) {
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		limit := headgate.MustParse("token-bucket 1/1h")
		inside := time.Now()
		for range 2 {
			if err := l.Wait(t.Context(), headgate.Charge{Limit: limit, Key: "k"}); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(inside); waited < time.Hour || waited > time.Hour+time.Second {
			t.Errorf("it waited for %v", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.Wait(ctx, headgate.Charge{Limit: limit, Key: "k"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a minute left: %v", err)
		}
		jobs := headgate.MustParse("concurrency 1 ttl 30s")
		first, err := l.Acquire(t.Context(), headgate.Charge{Limit: jobs, Key: "job"})
		if err != nil {
			t.Fatal(err)
		}
		left := first.Detach() // nobody renews it
		for _, want := range []bool{false, true} {
			lease, err := l.Acquire(t.Context(), headgate.Charge{Limit: jobs, Key: "job"})
			if err != nil || lease.Decision.Allowed != want {
				t.Fatalf("%+v, %v; want %v", lease.Decision, err, want)
			}
			if !want {
				headgatetest.Advance(31 * time.Second)
			} else if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := l.Release(t.Context(), left...); !errors.Is(err, headgate.ErrLeaseLost) {
			t.Errorf("the first holder releases: %v", err)
		}
	})
}
