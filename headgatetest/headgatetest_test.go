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

// TestAdvanceAddsTokensAndEndsWaits checks that a token arrives, and that Wait returns, after an Advance of an hour.
func TestAdvanceAddsTokensAndEndsWaits(t *testing.T) {
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		limit := headgate.MustParse("token-bucket 1/1h")
		for i, want := range []bool{true, false, true} {
			d, err := l.Allow(t.Context(), limit, "k")
			if err != nil || d.Allowed != want {
				t.Errorf("request %d: %+v, %v; want %v", i, d, err, want)
			}
			if !want {
				if d.RetryAfter != time.Hour {
					t.Errorf("RetryAfter is %v, want an hour", d.RetryAfter)
				}
				headgatetest.Advance(time.Hour)
			}
		}

		var waitEnded atomic.Bool
		go func() {
			if err := l.Wait(t.Context(), headgate.Charge{Limit: limit, Key: "k"}); err != nil {
				t.Error(err)
			}
			waitEnded.Store(true)
		}()
		headgatetest.Advance(time.Hour - time.Millisecond)
		if waitEnded.Load() {
			t.Error("Wait returned before the hour was over")
		}
		headgatetest.Advance(time.Millisecond)
		if !waitEnded.Load() {
			t.Error("Wait did not return when the hour was over")
		}
	})
}

// TestAWaitOfAnHourTakesNoTime checks that by the bubble's time Wait takes an hour, or fails with only a minute left,
// and a lease of 30 s ends within 31 s. None of it takes real time.
func TestAWaitOfAnHourTakesNoTime(t *testing.T) {
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		limit := headgate.MustParse("token-bucket 1/1h")
		begin := time.Now()
		for range 2 {
			if err := l.Wait(t.Context(), headgate.Charge{Limit: limit, Key: "k"}); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(begin); waited < time.Hour || waited > time.Hour+time.Second {
			t.Errorf("waited for %v, want an hour", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.Wait(ctx, headgate.Charge{Limit: limit, Key: "k"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a minute left: %v, want DeadlineExceeded", err)
		}
		jobs := headgate.MustParse("concurrency 1 ttl 30s")
		first, err := l.Acquire(t.Context(), headgate.Charge{Limit: jobs, Key: "job"})
		if err != nil {
			t.Fatal(err)
		}
		tokens := first.Detach() // a detached lease does not renew itself
		for _, want := range []bool{false, true} {
			lease, err := l.Acquire(t.Context(), headgate.Charge{Limit: jobs, Key: "job"})
			if err != nil || lease.Decision.Allowed != want {
				t.Fatalf("second lease: %+v, %v; want %v", lease.Decision, err, want)
			}
			if !want {
				headgatetest.Advance(31 * time.Second)
			} else if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := l.Release(t.Context(), tokens...); !errors.Is(err, headgate.ErrLeaseLost) {
			t.Errorf("release of the first lease: %v, want ErrLeaseLost", err)
		}
	})
}
