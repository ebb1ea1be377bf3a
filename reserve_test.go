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

// turn is a step of a table of reservations: at a time, in tenths of a second, a cost is reserved with a longest wait,
// and starts at another time; or an earlier turn is cancelled.
type turn struct {
	at, cost, wait int
	start          int // -1: not at all
	cancel         int // number of an earlier turn, from 1
	back           string
}

const patient = 1_000_000

// TestReservations has the cases of golang.org/x/time/rate (TestSimpleReserve, TestMix, TestCancel..., TestReserveMax),
// at 10/s. Two differ. A holder that cancels after the start gets back what has not drained since. And if several
// cancel, an earlier one gets back less: the cell only knows how much was returned since, not for which charge.
func TestReservations(t *testing.T) {
	const w = patient
	for _, tt := range []struct {
		name  string
		burst int
		turns []turn
	}{
		{"simple", 2, []turn{{0, 2, w, 0, 0, ""}, {0, 2, w, 2, 0, ""}, {3, 2, w, 4, 0, ""}}},
		{"mixed with takes", 2, []turn{
			{0, 3, w, -1, 0, ""},
			{0, 2, w, 0, 0, ""},
			{1, 2, 0, -1, 0, ""},
			{1, 2, w, 2, 0, ""},
			{1, 1, 0, -1, 0, ""},
			{3, 1, 0, 3, 0, ""},
		}},
		{
			"one that was not made cancels nothing", 2,
			[]turn{{0, 2, w, 0, 0, ""}, {0, 3, w, -1, 0, ""}, {0, 2, w, 2, 0, ""}},
		},
		{"the last is cancelled", 2, []turn{
			{0, 2, w, 0, 0, ""},
			{0, 2, w, 2, 0, ""},
			{at: 1, cancel: 2, back: "2"},
			{1, 2, w, 2, 0, ""},
		}},
		{"cancelled after its start", 2, []turn{
			{0, 2, w, 0, 0, ""},
			{0, 2, w, 2, 0, ""},
			{at: 3, cancel: 2, back: "1"},
			{3, 2, w, 3, 0, ""},
		}},
		{"nothing back, another has come", 2, []turn{
			{0, 2, w, 0, 0, ""},
			{0, 1, w, 1, 0, ""},
			{0, 1, w, 2, 0, ""},
			{at: 0, cancel: 2, back: "0"},
			{0, 1, w, 3, 0, ""},
		}},
		{"one back of two", 2, []turn{
			{0, 2, w, 0, 0, ""},
			{0, 2, w, 2, 0, ""},
			{0, 1, w, 3, 0, ""},
			{at: 2, cancel: 2, back: "1"},
			{2, 2, w, 4, 0, ""},
		}},
		{"several are cancelled", 4, []turn{
			{0, 4, w, 0, 0, ""},
			{0, 3, w, 3, 0, ""},
			{0, 1, w, 4, 0, ""},
			{0, 1, w, 5, 0, ""},
			{at: 1, cancel: 4, back: "1"},
			{at: 1, cancel: 2, back: "1"},
			{1, 3, w, 6, 0, ""},
		}},
		{"the patience is bounded", 2, []turn{{0, 2, 1, 0, 0, ""}, {0, 1, 1, 1, 0, ""}, {0, 1, 1, -1, 0, ""}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkReservations(t, tt.burst, tt.turns) })
		})
	}
}

func checkReservations(t *testing.T, burst int, turns []turn) {
	ctx := context.Background()
	l := headgate.New(memory.New(nil), nil)
	limit := headgate.MustParse(fmt.Sprintf("token-bucket 10/s burst %d", burst))
	begin := time.Now()
	tenth := func(n int) time.Duration { return time.Duration(n) * 100 * time.Millisecond }
	var made []*headgate.Reservation
	for i, step := range turns {
		time.Sleep(time.Until(begin.Add(tenth(step.at))))
		if step.cancel > 0 {
			back, err := made[step.cancel-1].Cancel(ctx)
			if err != nil || back[0].String() != step.back {
				t.Errorf("turn %d: got %s back (%v), want %s", i+1, back, err, step.back)
			}
			made = append(made, nil)
			continue
		}
		r, err := l.Reserve(ctx, tenth(step.wait),
			headgate.Charge{Limit: limit, Key: "k", Cost: headgate.MustCost(fmt.Sprint(step.cost))})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, r)
		switch got := r.Delay(); {
		case step.start < 0 && (r.Decision.Allowed || got != headgate.Never):
			t.Errorf("turn %d: reserved for %v, want nothing", i+1, got)
		case step.start >= 0 && (got != tenth(step.start-step.at) || !r.StartAt.Equal(begin.Add(tenth(step.start)))):
			t.Errorf("turn %d: starts after %v at %v, want after %v", i+1, got, r.StartAt, tenth(step.start-step.at))
		}
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	for notation, over := range map[string]string{
		"token-bucket 10/h burst 5": "5", "fixed-window 5/1h": "5", "sliding-log 5/1h": "5", "sliding-window 5/1h": "5",
		"fixed-window 5/month Europe/Berlin": "5",
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
		remaining := func() int64 {
			d, err := l.Check(context.Background(), headgate.Charge{Limit: limit, Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			if !d.Allowed {
				return -1
			}
			return d.Remaining
		}
		less, more, none := reserve("3"), reserve("1"), reserve("1")
		for _, step := range []struct {
			r            *headgate.Reservation
			actual, want string
			remaining    int64
		}{{less, "1", "2", 2}, {none, "", "1", 3}, {more, "9", "8", -1}} {
			actual := headgate.Units(0)
			if step.actual != "" {
				actual = headgate.MustCost(step.actual)
			}
			got, err := step.r.Settle(context.Background(), actual)
			if err != nil || got[0].String() != step.want || remaining() != step.remaining {
				t.Errorf("%s: settled for %q: by %s (%v), %d remain; want by %s, %d", notation, step.actual, got, err,
					remaining(), step.want, step.remaining)
			}
			if _, err := step.r.Settle(context.Background(), actual); !errors.Is(err, headgate.ErrSettled) {
				t.Errorf("%s: settled twice: %v", notation, err)
			}
			if _, err := step.r.Cancel(context.Background()); !errors.Is(err, headgate.ErrSettled) {
				t.Errorf("%s: cancelled after it was settled: %v", notation, err)
			}
		}
		refused, err := l.Reserve(context.Background(), 0,
			headgate.Charge{Limit: limit, Key: "k", Cost: headgate.MustCost(over)})
		if err != nil || refused.Decision.Allowed {
			t.Fatalf("%s: %+v, %v", notation, refused, err)
		}
		if _, err := refused.Settle(context.Background(), headgate.MustCost("1")); !errors.Is(
			err, headgate.ErrInvalid) {
			t.Errorf("%s: settled what was not made: %v", notation, err)
		}
	}
}

// TestAnEndedContextSettlesNothing checks that the reservation can still be settled afterwards.
func TestAnEndedContextSettlesNothing(t *testing.T) {
	l := headgate.New(memory.New(nil), nil)
	charge := charges("k", "1 of sliding-log 5/1h")[0]
	r, err := l.Reserve(context.Background(), 0, charge)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Cancel(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := r.Settle(context.Background(), headgate.Cost{}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("settled at a cost that was not said: %v", err)
	}
	if by, err := r.Cancel(context.Background()); err != nil || by[0] != headgate.Units(1) {
		t.Errorf("%v, %v", by, err)
	}
}

// TestAReservationAfterTheClockWasSetBack starts at once by the cell's own time, which is ahead of the clock.
func TestAReservationAfterTheClockWasSetBack(t *testing.T) {
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
