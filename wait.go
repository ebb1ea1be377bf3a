package headgate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/law"
)

// maxWait is how long a Wait without a deadline may have to sleep: a year.
const maxWait = 365 * 24 * time.Hour

// Wait takes the charges, all or none, and returns when they may start. It
// returns at once with an error that is ErrDeadline and a [DeniedError] if that
// is after the context's deadline, and with a DeniedError if it is never. If the
// context ends while it sleeps, it gives back what it took.
//
// One charge of a token-bucket, leaky-bucket or gcra limit is reserved (see
// [Limiter.Reserve]), and sleeps until its own start: first come, first served, among all who share the
// store, and without asking again. For other limits, and for several charges,
// Wait sleeps for the retry-after and asks again, first come, first served among
// the callers of this Limiter.
func (l *Limiter) Wait(ctx context.Context, charges ...Charge) error {
	if len(charges) == 0 {
		return invalid("charges", "there is none")
	}
	if len(charges) == 1 && charges[0].queues() {
		return l.waitForStart(ctx, charges[0])
	}
	leave, err := l.turns.take(ctx, law.Cell{Limit: charges[0].Limit.Name(), Key: charges[0].Key})
	if err != nil {
		return err
	}
	defer leave()
	for {
		d, err := l.Take(ctx, charges...)
		if err != nil || d.Allowed {
			return err
		}
		if err := late(ctx, &d); err != nil {
			return err
		}
		if err := sleep(ctx, d.RetryAfter); err != nil {
			return err
		}
	}
}

func (l *Limiter) waitForStart(ctx context.Context, c Charge) error {
	for {
		wait := maxWait
		if end, ok := ctx.Deadline(); ok {
			wait = max(0, min(wait, time.Until(end)))
		}
		r, err := l.Reserve(ctx, wait, c)
		switch {
		case err != nil:
			return err
		case r.Decision.Allowed:
			return r.Sleep(ctx)
		case r.out.State.BlockedUntil <= max(r.out.Clock, r.out.State.At) && r.Decision.RetryAfter != Never:
			return fmt.Errorf("%w: %w", ErrDeadline, &DeniedError{r.Decision})
		}
		// A block comes before any start, and ends.
		if err := late(ctx, &r.Decision); err != nil {
			return err
		}
		if err := sleep(ctx, r.Decision.RetryAfter); err != nil {
			return err
		}
	}
}

// late says that a refusal cannot be waited for.
func late(ctx context.Context, d *Decision) error {
	if d.RetryAfter == Never {
		return &DeniedError{*d}
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d.RetryAfter {
		return fmt.Errorf("%w: %w", ErrDeadline, &DeniedError{*d})
	}
	return nil
}

// sleep sleeps, or returns the context's error if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// turns are the lines of those who wait for the same cell: only the first of a
// line asks the store.
type turns struct {
	mu    sync.Mutex
	lines map[law.Cell]*line // guarded by mu
}

type line struct {
	waiting int           // guarded by turns.mu
	turn    chan struct{} // holds one; those who wait to send stand in order
}

// take waits for a turn, which ends with leave.
func (t *turns) take(ctx context.Context, c law.Cell) (leave func(), err error) {
	t.mu.Lock()
	if t.lines == nil {
		t.lines = map[law.Cell]*line{}
	}
	l := t.lines[c]
	if l == nil {
		l = &line{turn: make(chan struct{}, 1)}
		t.lines[c] = l
	}
	l.waiting++
	t.mu.Unlock()
	gone := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if l.waiting--; l.waiting == 0 {
			delete(t.lines, c)
		}
	}
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, ctx.Err()
	}
}
