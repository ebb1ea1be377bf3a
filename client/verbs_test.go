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

// runProgram calls every method of a limiter, and returns a note about each result.
func runProgram(t *testing.T, l limiter) (notes []string) {
	t.Helper()
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	ctx := t.Context()
	few := headgate.Charge{Limit: headgate.MustParse("fixed-window 10/1d from-first"), Key: "a"}
	quick := headgate.Charge{Limit: headgate.MustParse("token-bucket 100/s burst 1"), Key: "a"}
	day := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/1d burst 3"), Key: "a"}
	jobs := headgate.Charge{Limit: headgate.MustParse("concurrency 1 ttl 1m"), Key: "job"}
	withCost := func(c headgate.Charge, cost string) headgate.Charge { c.Cost = headgate.MustCost(cost); return c }
	errorNames := func(err error) (names []string) {
		for name, e := range map[string]error{
			"denied": headgate.ErrDenied, "deadline": headgate.ErrDeadline, "reused": headgate.ErrReused,
			"settled":    headgate.ErrSettled,
			"unknown id": headgate.ErrUnknownID, "lost": headgate.ErrLeaseLost, "invalid": headgate.ErrInvalid,
		} {
			if errors.Is(err, e) {
				names = append(names, name)
			}
		}
		if len(names) > 1 { // such as ErrDeadline, which is a refusal too; their order is random
			return []string{"several"}
		}
		return names
	}
	noteDecision := func(verb string, d headgate.Decision, err error) {
		note("%s: %v %s %d %v %v", verb, d.Allowed, d.LimitName, d.Remaining, d.Replayed, errorNames(err))
	}

	warned := headgate.Charge{Limit: headgate.MustParse("fixed-window 10/30d notify 50%,80%,100%"), Key: "a"}
	for _, cost := range []string{"4.5", "1", "3"} {
		d, err := l.Take(ctx, withCost(warned, cost), quick)
		note("crossed: %d, of each %d %d, %v", d.Crossed, d.Each[0].Crossed, d.Each[1].Crossed, err)
		quick.Key += "a"
	}
	debit, err := l.Once("over", 0).Debit(ctx, withCost(warned, "3"))
	note("crossed: %d, %v", debit.Decision.Crossed, err)

	for range 2 {
		d, err := l.Take(ctx, withCost(few, "4"))
		noteDecision("take", d, err)
	}
	d, err := l.Take(ctx, withCost(few, "4"), day)
	noteDecision("take two", d, err)
	d, err = l.Check(ctx, few)
	noteDecision("check", d, err)
	for range 2 {
		d, err = l.Take(ctx, headgate.FirstOf([]headgate.Charge{few, withCost(day, "3")}, []headgate.Charge{few})...)
		noteDecision("first of two", d, err)
		note("alternative %d of %d charges", d.Alternative, len(d.Each))
	}
	_, err = l.Take(ctx, headgate.Charge{Key: "a"})
	note("no limit: %v", errorNames(err))
	one := headgate.Charge{Limit: headgate.MustParse("fixed-window 1/1d from-first"), Key: "a"}
	for range 3 { // by the first, by the second, and by the second a moment later
		first := headgate.FirstOf([]headgate.Charge{one}, []headgate.Charge{quick})
		if err := l.WaitAtMost(ctx, time.Minute, first...); err != nil {
			t.Errorf("wait for alternatives: %v", err)
		}
	}

	pool := headgate.Charge{Limit: headgate.MustParse("fixed-window 10/1h from-first"), Key: "pool"}
	for _, cost := range []string{"7.25", "3", "3"} {
		f, err := l.FillUp(ctx, withCost(pool, cost))
		note("fill up: %s %s %v", f.Accepted, f.Level, f.Brim)
		noteDecision("filled up", f.Decision, err)
	}
	_, err = l.FillUp(ctx, headgate.Charge{Limit: pool.Limit, Key: "a\x00b"})
	note("fill up a bad key: %v", errorNames(err))
	_, err = l.FillUp(ctx, jobs)
	note("fill up what is held: %v", errorNames(err))

	once := l.Once("order 1", time.Hour)
	for range 2 {
		d, err = once.Take(ctx, withCost(few, "2"))
		noteDecision("once", d, err)
	}
	d, err = once.Take(ctx, withCost(few, "1"))
	noteDecision("reused", d, err)
	for _, cost := range []string{"3.5", "3", "900"} {
		e, err := once.Extend(ctx, withCost(few, cost))
		note("extended: %v", e.Charged)
		noteDecision("extend to "+cost, e.Decision, err)
	}
	for range 2 {
		o, err := l.Once("work", time.Hour).Debit(ctx, withCost(pool, "12.5"))
		note("debit: %s %s %v", o.Charged, o.Level, o.Over)
		noteDecision("debited", o.Decision, err)
	}
	_, err = l.Once("work", 0).Debit(ctx, jobs)
	note("debit what is held: %v", errorNames(err))
	_, err = l.Once("nobody", 0).Extend(ctx, few)
	note("extend what is unknown: %v", errorNames(err))
	for _, cost := range []string{"1.5", "1.5", "1"} {
		returned, err := once.Settle(ctx, withCost(few, cost))
		note("settle at %s: %v %v", cost, returned, errorNames(err))
	}
	_, err = l.Once("nobody", 0).Settle(ctx, few)
	note("unknown: %v", errorNames(err))
	_, err = once.Extend(ctx, withCost(few, "9"))
	note("extend what is settled: %v", errorNames(err))
	returned, err := once.Cancel(ctx, few)
	note("cancel: %v %v", returned, errorNames(err))

	for range 3 { // the third waits for a token
		if err := l.Wait(ctx, quick); err != nil {
			note("wait: %v", err)
		}
	}
	err = l.WaitAtMost(ctx, time.Second, withCost(day, "3"), day)
	note("wait for a day: %v", errorNames(err))
	note("wait for ever: %v", errorNames(l.Wait(ctx, withCost(day, "4"))))
	note("at once: %v", errorNames(l.WaitAtMost(ctx, 0, withCost(day, "3"))))
	minuteCtx, cancel := context.WithTimeout(ctx, time.Minute) // the wait would be a day
	defer cancel()
	note("deadline: %v", errorNames(l.Wait(minuteCtx, withCost(day, "2"))))

	r, err := l.Reserve(ctx, 48*time.Hour, withCost(day, "2"))
	if err != nil {
		t.Fatal(err)
	}
	note("reserve: %v, about %v", r.Decision.Allowed, r.Delay().Round(time.Hour))
	returned, err = r.Settle(ctx, headgate.MustCost("1"))
	note("settle: %v %v", len(returned), errorNames(err))
	_, err = r.Settle(ctx)
	note("no costs: %v", errorNames(err))
	if r, err = l.Reserve(ctx, 0, withCost(few, "9")); err != nil {
		t.Fatal(err)
	}
	_, err = r.Cancel(ctx)
	note("not made: %v, %v", r.Decision.Allowed, errorNames(err))
	if r, err = l.Reserve(ctx, 0, withCost(few, "1")); err != nil {
		t.Fatal(err)
	}
	returned, err = r.Cancel(ctx)
	note("cancelled: %v %v", returned, errorNames(err))

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
		note("released: %v", errorNames(l.Release(ctx, tokens...)))
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
	note("usage of no limit: %v", errorNames(err))
	_, err = l.Usage(ctx, "a\x00", few.Limit)
	note("usage of a bad key: %v", errorNames(err))
	for range 2 {
		existed, err := l.Reset(ctx, few.Limit, "b")
		note("reset: %v %v", existed, err)
	}
	_, err = l.Block(ctx, few.Limit, "b", -time.Hour, "")
	note("negative: %v", errorNames(err))

	requester := headgate.NewRequester(l, day)
	note("requester: %v", errorNames(requester.RequestToken(ctx)))
	n := 0
	for _, err := range headgate.Pace(ctx, l, quick) {
		if n++; err != nil || n == 3 {
			note("pace: %d %v", n, err)
			break
		}
	}
	return notes
}

// TestClientAndLimiterGiveEqualResults runs a program with a Limiter and with a Client, and compares the notes.
func TestClientAndLimiterGiveEqualResults(t *testing.T) {
	t.Parallel()
	local := runProgram(t, headgate.New(memory.New(nil), nil))
	overEachProtocol(t, func(t *testing.T, proto protocol) {
		remote := runProgram(t, proto.serve(t, serverOptions{file: "allow_notations: true"}).client(t, nil))
		for i := range max(len(local), len(remote)) {
			if noteAt(local, i) != noteAt(remote, i) {
				t.Errorf("note %d: got %q from a Client, want %q as from a Limiter", i, noteAt(remote, i), noteAt(local, i))
			}
		}
		t.Logf("%d notes", len(local))
	})
}

// noteAt returns a note by its index, or "nothing" after the last one.
func noteAt(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return "nothing"
}

// TestWaitAndAwaitAfterClose checks that Wait and Await of a closed Client return ErrClosed, and that a token bucket
// cannot be acquired.
func TestWaitAndAwaitAfterClose(t *testing.T) {
	t.Parallel()
	overEachProtocol(t, func(t *testing.T, proto protocol) {
		server := proto.serve(t, serverOptions{})
		c := server.client(t, nil)
		c.Close()
		charge := headgate.Charge{Limit: headgate.MustNamed("few"), Key: "k"}
		if err := c.Wait(t.Context(), charge); !errors.Is(err, store.ErrClosed) {
			t.Errorf("Wait: got %v, want ErrClosed", err)
		}
		if _, err := c.Await(t.Context(), charge); !errors.Is(err, store.ErrClosed) {
			t.Errorf("Await: got %v, want ErrClosed", err)
		}
		var p *api.Problem
		if _, err := server.client(t, nil).Acquire(t.Context(), charge); !errors.Is(err, headgate.ErrInvalid) ||
			!errors.As(err, &p) {
			t.Errorf("Acquire of a token bucket: got %v, want ErrInvalid", err)
		}
	})
}
