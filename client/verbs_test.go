package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// limiter has the methods that Limiter and Client share.
type limiter interface {
	headgate.Taker
	headgate.Filler
	headgate.Waiter
	headgate.Reserver
	headgate.Settler
	headgate.Leaser
	headgate.Operator
}

// runProgram uses every verb, and returns notes about the results.
func runProgram(t *testing.T, l limiter) (notes []string) {
	t.Helper()
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	ctx := t.Context()
	few := headgate.Charge{Limit: headgate.MustParse("fixed-window 10/1d from-first"), Key: "a"}
	quick := headgate.Charge{Limit: headgate.MustParse("token-bucket 100/s burst 1"), Key: "a"}
	day := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/1d burst 3"), Key: "a"}
	jobs := headgate.Charge{Limit: headgate.MustParse("concurrency 1 ttl 1m"), Key: "job"}
	of := func(c headgate.Charge, cost string) headgate.Charge { c.Cost = headgate.MustCost(cost); return c }
	class := func(err error) (names []string) {
		for name, e := range map[string]error{
			"denied": headgate.ErrDenied, "deadline": headgate.ErrDeadline, "reused": headgate.ErrReused,
			"settled":    headgate.ErrSettled,
			"unknown id": headgate.ErrUnknownID, "lost": headgate.ErrLeaseLost, "invalid": headgate.ErrInvalid,
		} {
			if errors.Is(err, e) {
				names = append(names, name)
			}
		}
		if len(names) > 1 { // ErrDeadline is a refusal too
			return []string{"several"}
		}
		return names
	}
	noteDecision := func(verb string, d headgate.Decision, err error) {
		note("%s: %v %s %d %v %v", verb, d.Allowed, d.LimitName, d.Remaining, d.Replayed, class(err))
	}

	for range 2 {
		d, err := l.Take(ctx, of(few, "4"))
		noteDecision("take", d, err)
	}
	d, err := l.Take(ctx, of(few, "4"), day)
	noteDecision("take two", d, err)
	d, err = l.Check(ctx, few)
	noteDecision("check", d, err)
	_, err = l.Take(ctx, headgate.Charge{Key: "a"})
	note("no limit: %v", class(err))

	pool := headgate.Charge{Limit: headgate.MustParse("fixed-window 10/1h from-first"), Key: "pool"}
	for _, cost := range []string{"7.25", "3", "3"} {
		f, err := l.FillUp(ctx, of(pool, cost))
		note("fill up: %s %s %v", f.Accepted, f.Level, f.Brim)
		noteDecision("filled up", f.Decision, err)
	}
	_, err = l.FillUp(ctx, headgate.Charge{Limit: pool.Limit, Key: "a\x00b"})
	note("fill up a bad key: %v", class(err))
	_, err = l.FillUp(ctx, jobs)
	note("fill up what is held: %v", class(err))

	once := l.Once("order 1", time.Hour)
	for range 2 {
		d, err = once.Take(ctx, of(few, "2"))
		noteDecision("once", d, err)
	}
	d, err = once.Take(ctx, of(few, "1"))
	noteDecision("reused", d, err)
	for _, cost := range []string{"3.5", "3", "900"} {
		e, err := once.Extend(ctx, of(few, cost))
		note("extended: %v", e.Charged)
		noteDecision("extend to "+cost, e.Decision, err)
	}
	for range 2 {
		o, err := l.Once("work", time.Hour).Debit(ctx, of(pool, "12.5"))
		note("debit: %s %s %v", o.Charged, o.Level, o.Over)
		noteDecision("debited", o.Decision, err)
	}
	_, err = l.Once("work", 0).Debit(ctx, jobs)
	note("debit what is held: %v", class(err))
	_, err = l.Once("nobody", 0).Extend(ctx, few)
	note("extend what is unknown: %v", class(err))
	for _, cost := range []string{"1.5", "1.5", "1"} {
		by, err := once.Settle(ctx, of(few, cost))
		note("settle at %s: %v %v", cost, by, class(err))
	}
	_, err = l.Once("nobody", 0).Settle(ctx, few)
	note("unknown: %v", class(err))
	_, err = once.Extend(ctx, of(few, "9"))
	note("extend what is settled: %v", class(err))
	by, err := once.Cancel(ctx, few)
	note("cancel: %v %v", by, class(err))

	for range 3 { // the third waits for a token
		if err := l.Wait(ctx, quick); err != nil {
			note("wait: %v", err)
		}
	}
	err = l.WaitAtMost(ctx, time.Second, of(day, "3"), day)
	note("wait for a day: %v", class(err))
	note("wait for ever: %v", class(l.Wait(ctx, of(day, "4"))))
	note("at once: %v", class(l.WaitAtMost(ctx, 0, of(day, "3"))))
	minuteCtx, cancel := context.WithTimeout(ctx, time.Minute) // the wait is a day
	defer cancel()
	note("deadline: %v", class(l.Wait(minuteCtx, of(day, "2"))))

	r, err := l.Reserve(ctx, 48*time.Hour, of(day, "2"))
	if err != nil {
		t.Fatal(err)
	}
	note("reserve: %v, about %v", r.Decision.Allowed, r.Delay().Round(time.Hour))
	by, err = r.Settle(ctx, headgate.MustCost("1"))
	note("settle: %v %v", len(by), class(err))
	_, err = r.Settle(ctx)
	note("no costs: %v", class(err))
	if r, err = l.Reserve(ctx, 0, of(few, "9")); err != nil {
		t.Fatal(err)
	}
	_, err = r.Cancel(ctx)
	note("not made: %v, %v", r.Decision.Allowed, class(err))
	if r, err = l.Reserve(ctx, 0, of(few, "1")); err != nil {
		t.Fatal(err)
	}
	by, err = r.Cancel(ctx)
	note("cancelled: %v %v", by, class(err))

	lease, err := l.Acquire(ctx, jobs)
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Acquire(ctx, jobs)
	note("held: %v %v %v", lease.Decision.Allowed, other.Decision.Allowed, err)
	note("released: %v", lease.Release(ctx))
	if lease, err = l.Await(ctx, jobs); err != nil {
		t.Fatal(err)
	}
	tokens := lease.Detach()
	note("renewed: %v", l.Renew(ctx, tokens...))
	for range 2 {
		note("released: %v", class(l.Release(ctx, tokens...)))
	}
	note("with a lease: %v", headgate.WithLease(ctx, l, func(context.Context) error { return nil }, jobs))

	s, err := l.Block(ctx, few.Limit, "b", time.Hour, "too many")
	note("block: %s %s %v %v", s.Limit, s.Reason, s.BlockedUntil.Sub(s.At).Round(time.Minute), err)
	d, err = l.Take(ctx, headgate.Charge{Limit: few.Limit, Key: "b"})
	noteDecision("blocked", d, err)
	s, err = l.Inspect(ctx, few.Limit, "a")
	note("inspect: %v %s of %s, %d %v", s.Exists, s.Used, s.Capacity, s.Remaining, err)
	used, err := l.Usage(ctx, "b", few.Limit, headgate.MustParse("unlimited"), headgate.MustParse("0"))
	for _, u := range used {
		note("usage: %s %v %s of %s, %d, %s, blocked %v %s", u.Limit, u.Exists, u.Used, u.Capacity, u.Remaining,
			u.RetryAfter.Round(time.Minute), u.BlockedUntil.After(u.At), u.Reason)
	}
	note("usage: %d %v", len(used), err)
	_, err = l.Usage(ctx, "b", headgate.Limit{})
	note("usage of no limit: %v", class(err))
	_, err = l.Usage(ctx, "a\x00", few.Limit)
	note("usage of a bad key: %v", class(err))
	for range 2 {
		existed, err := l.Reset(ctx, few.Limit, "b")
		note("reset: %v %v", existed, err)
	}
	_, err = l.Block(ctx, few.Limit, "b", -time.Hour, "")
	note("negative: %v", class(err))

	requester := headgate.NewRequester(l, day)
	note("requester: %v", class(requester.RequestToken(ctx)))
	n := 0
	for _, err := range headgate.Pace(ctx, l, quick) {
		if n++; err != nil || n == 3 {
			note("pace: %d %v", n, err)
			break
		}
	}
	return notes
}

// TestAClientDoesWhatALimiterDoes runs one program with a Limiter and with a Client: only the line that makes them
// differs.
func TestAClientDoesWhatALimiterDoes(t *testing.T) {
	t.Parallel()
	local := runProgram(t, headgate.New(memory.New(nil), nil))
	overEach(t, func(t *testing.T, over protocol) {
		remote := runProgram(t, over.serve(t, serverOptions{file: "allow_notations: true"}).client(t, nil))
		for i := range max(len(local), len(remote)) {
			if at(local, i) != at(remote, i) {
				t.Errorf("%d: a Limiter: %q\n   a Client: %q", i, at(local, i), at(remote, i))
			}
		}
		t.Logf("%d notes", len(local))
	})
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return "nothing"
}

// TestWaitEndsWhenTheClientIsClosed: Wait and Await return an error instead of waiting for ever.
func TestWaitEndsWhenTheClientIsClosed(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, over protocol) {
		server := over.serve(t, serverOptions{})
		c := server.client(t, nil)
		c.Close()
		charge := headgate.Charge{Limit: headgate.MustNamed("few"), Key: "k"}
		if err := c.Wait(t.Context(), charge); !errors.Is(err, store.ErrClosed) {
			t.Errorf("got %v", err)
		}
		if _, err := c.Await(t.Context(), charge); !errors.Is(err, store.ErrClosed) {
			t.Errorf("got %v", err)
		}
		var p *api.Problem
		if _, err := server.client(t, nil).Acquire(t.Context(), charge); !errors.Is(err, headgate.ErrInvalid) ||
			!errors.As(err, &p) {
			t.Errorf("a limit that is not held: %v", err)
		}
	})
}
