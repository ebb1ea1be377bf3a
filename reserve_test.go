package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// reserveStep is a step of TestReserveAndCancel: it reserves a cost, or cancels an earlier step. Times are in tenths of
// a second since the begin.
type reserveStep struct {
	at, cost, maxWait int
	start             int    // the time at which the reservation starts; -1: it is refused
	cancel            int    // the number of the step to cancel, from 1; 0: the step reserves
	returned          string // what the cancellation returns
}

// TestReserveAndCancel has the cases of golang.org/x/time/rate (TestSimpleReserve, TestMix, TestCancel...,
// TestReserveMax), at 10/s. Two differ. A cancellation after the start returns what has not drained since. If several
// reservations are cancelled, an earlier one returns less: the cell knows how much was returned, not for which charge.
func TestReserveAndCancel(t *testing.T) {
	const w = 1_000_000 // a maxWait that no reservation reaches
	for _, tt := range []struct {
		name  string
		burst int
		steps []reserveStep
	}{
		{"simple", 2, []reserveStep{{0, 2, w, 0, 0, ""}, {0, 2, w, 2, 0, ""}, {3, 2, w, 4, 0, ""}}},
		{"mixed with takes", 2, []reserveStep{
			{0, 3, w, -1, 0, ""},
			{0, 2, w, 0, 0, ""},
			{1, 2, 0, -1, 0, ""},
			{1, 2, w, 2, 0, ""},
			{1, 1, 0, -1, 0, ""},
			{3, 1, 0, 3, 0, ""},
		}},
		{
			"a refused reservation delays none", 2,
			[]reserveStep{{0, 2, w, 0, 0, ""}, {0, 3, w, -1, 0, ""}, {0, 2, w, 2, 0, ""}},
		},
		{"the last is cancelled", 2, []reserveStep{
			{0, 2, w, 0, 0, ""},
			{0, 2, w, 2, 0, ""},
			{at: 1, cancel: 2, returned: "2"},
			{1, 2, w, 2, 0, ""},
		}},
		{"cancelled after its start", 2, []reserveStep{
			{0, 2, w, 0, 0, ""},
			{0, 2, w, 2, 0, ""},
			{at: 3, cancel: 2, returned: "1"},
			{3, 2, w, 3, 0, ""},
		}},
		{"nothing is returned after a later reservation", 2, []reserveStep{
			{0, 2, w, 0, 0, ""},
			{0, 1, w, 1, 0, ""},
			{0, 1, w, 2, 0, ""},
			{at: 0, cancel: 2, returned: "0"},
			{0, 1, w, 3, 0, ""},
		}},
		{"one of two is returned", 2, []reserveStep{
			{0, 2, w, 0, 0, ""},
			{0, 2, w, 2, 0, ""},
			{0, 1, w, 3, 0, ""},
			{at: 2, cancel: 2, returned: "1"},
			{2, 2, w, 4, 0, ""},
		}},
		{"several are cancelled", 4, []reserveStep{
			{0, 4, w, 0, 0, ""},
			{0, 3, w, 3, 0, ""},
			{0, 1, w, 4, 0, ""},
			{0, 1, w, 5, 0, ""},
			{at: 1, cancel: 4, returned: "1"},
			{at: 1, cancel: 2, returned: "1"},
			{1, 3, w, 6, 0, ""},
		}},
		{"the wait is bounded", 2, []reserveStep{{0, 2, 1, 0, 0, ""}, {0, 1, 1, 1, 0, ""}, {0, 1, 1, -1, 0, ""}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkReservations(t, tt.burst, tt.steps) })
		})
	}
}

func checkReservations(t *testing.T, burst int, steps []reserveStep) {
	ctx := context.Background()
	l := headgate.New(memory.New(nil), nil)
	limit := headgate.MustParse(fmt.Sprintf("token-bucket 10/s burst %d", burst))
	begin := time.Now()
	tenth := func(n int) time.Duration { return time.Duration(n) * 100 * time.Millisecond }
	var reservations []*headgate.Reservation // by the index of the step; nil: the step cancelled
	for i, step := range steps {
		time.Sleep(time.Until(begin.Add(tenth(step.at))))
		if step.cancel > 0 {
			returned, err := reservations[step.cancel-1].Cancel(ctx)
			if err != nil || returned[0].String() != step.returned {
				t.Errorf("step %d: %s was returned (%v), want %s", i+1, returned, err, step.returned)
			}
			reservations = append(reservations, nil)
			continue
		}
		r, err := l.Reserve(ctx, tenth(step.maxWait),
			headgate.Charge{Limit: limit, Key: "k", Cost: headgate.MustCost(fmt.Sprint(step.cost))})
		if err != nil {
			t.Fatal(err)
		}
		reservations = append(reservations, r)
		switch got := r.Delay(); {
		case step.start < 0 && (r.Decision.Allowed || got != headgate.Never):
			t.Errorf("step %d: reserved for %v, want a refusal", i+1, got)
		case step.start >= 0 && (got != tenth(step.start-step.at) || !r.StartAt.Equal(begin.Add(tenth(step.start)))):
			t.Errorf("step %d: starts after %v at %v, want after %v", i+1, got, r.StartAt, tenth(step.start-step.at))
		}
	}
}

// TestReservationSettle settles reservations of 3, 1 and 1 at 1, 9 and 0 under limits of 5.
func TestReservationSettle(t *testing.T) {
	t.Parallel()
	for _, notation := range []string{
		"token-bucket 10/h burst 5", "fixed-window 5/1h", "sliding-log 5/1h", "sliding-window 5/1h",
		"fixed-window 5/month Europe/Berlin",
	} {
		c := newClock("2026-03-01T12:00:00Z")
		l := headgate.New(memory.New(&memory.Config{Clock: c.read}), &headgate.Config{Clock: c.read})
		limit := headgate.MustParse(notation)
		reserve := func(cost string) *headgate.Reservation {
			r, err := l.Reserve(context.Background(), 0,
				headgate.Charge{Limit: limit, Key: "k", Cost: headgate.MustCost(cost)})
			if err != nil || !r.Decision.Allowed {
				t.Fatalf("%s: reserve %s: %+v, %v", notation, cost, r, err)
			}
			return r
		}
		remaining := func() int64 { // -1: no unit passes
			d, err := l.Check(context.Background(), headgate.Charge{Limit: limit, Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			if !d.Allowed {
				return -1
			}
			return d.Remaining
		}
		overestimate, underestimate, unused := reserve("3"), reserve("1"), reserve("1")
		for _, step := range []struct {
			r            *headgate.Reservation
			actual, want string // actual "": a cost of 0
			remaining    int64
		}{{overestimate, "1", "2", 2}, {unused, "", "1", 3}, {underestimate, "9", "8", -1}} {
			actual := headgate.Units(0)
			if step.actual != "" {
				actual = headgate.MustCost(step.actual)
			}
			got, err := step.r.Settle(context.Background(), actual)
			if err != nil || got[0].String() != step.want || remaining() != step.remaining {
				t.Errorf("%s: settled at %q: corrected by %s (%v), %d remain; want %s, %d", notation, step.actual, got,
					err, remaining(), step.want, step.remaining)
			}
			if _, err := step.r.Settle(context.Background(), actual); !errors.Is(err, headgate.ErrSettled) {
				t.Errorf("%s: settled twice: %v, want ErrSettled", notation, err)
			}
			if _, err := step.r.Cancel(context.Background()); !errors.Is(err, headgate.ErrSettled) {
				t.Errorf("%s: cancelled after it was settled: %v, want ErrSettled", notation, err)
			}
		}
		refused, err := l.Reserve(context.Background(), 0,
			headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(5)})
		if err != nil || refused.Decision.Allowed {
			t.Fatalf("%s: got %+v, %v; want a refusal", notation, refused, err)
		}
		if _, err := refused.Settle(context.Background(), headgate.MustCost("1")); !errors.Is(
			err, headgate.ErrInvalid) {
			t.Errorf("%s: settled a refused reservation: %v, want ErrInvalid", notation, err)
		}
	}
}

// TestCancelUnderAnEndedContext checks that it, and a Settle at the zero Cost, change nothing.
func TestCancelUnderAnEndedContext(t *testing.T) {
	l := headgate.New(memory.New(nil), nil)
	charge := charges("k", "1 of sliding-log 5/1h")[0]
	r, err := l.Reserve(context.Background(), 0, charge)
	if err != nil {
		t.Fatal(err)
	}
	endedCtx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Cancel(endedCtx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled under an ended context: %v, want context.Canceled", err)
	}
	if _, err := r.Settle(context.Background(), headgate.Cost{}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("settled at the zero Cost: %v, want ErrInvalid", err)
	}
	if returned, err := r.Cancel(context.Background()); err != nil || returned[0] != headgate.Units(1) {
		t.Errorf("cancelled: returned %v, %v; want 1", returned, err)
	}
}

// TestReserveAfterTheClockWasSetBack checks that a reservation starts within its 15 s if the clock was set back by an
// hour: the cell's own time, which is ahead of the clock, does not delay it.
func TestReserveAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	c := newClock("2026-03-01T12:00:00Z")
	l := headgate.New(memory.New(&memory.Config{Clock: c.read}), nil)
	charge := headgate.Charge{Limit: headgate.MustParse("gcra 7/1h burst 9"), Key: "k"}
	if d, err := l.Take(t.Context(), charge); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	c.advance(-time.Hour)
	r, err := l.Reserve(t.Context(), 15*time.Second, charge)
	if err != nil || !r.Decision.Allowed {
		t.Fatal(r, err)
	}
	if r.Delay() > 15*time.Second {
		t.Errorf("it starts in %s, want within 15 s", r.Delay())
	}
}
