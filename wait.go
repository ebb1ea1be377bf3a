package headgate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/pause"
	"github.com/headgate/headgate/law"
)

// Wait takes the charges, all or none, and returns when they may start. It
// returns at once with an error that is ErrDeadline and a [DeniedError] if that
// is after the context's deadline, and with a DeniedError if it is never: its
// RetryAfter is after how long the same patience would do, if nobody else comes. If the
// context ends while it sleeps, it gives back what it took, as far as
// [Reservation.Cancel] can, for which it may need five seconds more. Without a
// deadline, a start may be a year off.
//
// Charges of token-bucket, leaky-bucket and gcra limits are reserved (see
// [Limiter.Reserve]), and sleep until their own start: first come, first served,
// among all who share the store, and without asking again. If another limit is
// among them, Wait sleeps for the retry-after and asks again, first come, first
// served among the callers of this Limiter, but for those who come while it asks. Who
// stands in line there may learn only at the deadline that it comes too early.
//
// A block refuses those who ask while it lasts; who has a start already keeps it. To
// wait does not block a key whose limit blocks who is refused.
func (l *Limiter) Wait(ctx context.Context, charges ...Charge) error {
	if len(charges) == 0 {
		return invalid("charges", "there is none")
	}
	if queue(charges) {
		return l.waitForStart(ctx, charges)
	}
	if err := takeable(charges); err != nil {
		return err
	}
	var denied error // of the last look
	turn, err := l.turns.take(ctx, law.Cell{Limit: charges[0].Limit.Name(), Key: charges[0].Key}, func() error {
		d, err := l.Check(ctx, charges...)
		if err == nil && !d.Allowed {
			denied = &DeniedError{d}
			err = tooLate(ctx, &d)
		}
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrDeadline, errors.Join(denied, err))
	}
	if err != nil {
		return err
	}
	defer turn.leave()
	a := l.asked(charges)
	for {
		if err := l.compile(a.ops, law.Take, 1, charges); err != nil {
			return err
		}
		patient(a.ops)
		if err := a.apply(ctx); err != nil {
			return err
		}
		d := decide(a.ops, a.outs)
		if d.Allowed {
			return nil
		}
		if err := tooLate(ctx, &d); err != nil {
			return err
		}
		if err := turn.sleep(ctx, d.RetryAfter); err != nil {
			return err
		}
	}
}

func (l *Limiter) waitForStart(ctx context.Context, charges []Charge) error {
	for {
		r, err := l.Reserve(ctx, pause.Patience(ctx), charges...)
		switch {
		case err != nil:
			return err
		case r.Decision.Allowed:
			return r.Sleep(ctx)
		case !r.blocked && r.Decision.RetryAfter != Never:
			return fmt.Errorf("%w: %w", ErrDeadline, &DeniedError{r.Decision})
		}
		// A block comes before any start, and ends.
		if err := tooLate(ctx, &r.Decision); err != nil {
			return err
		}
		if err := pause.Sleep(ctx, r.Decision.RetryAfter); err != nil {
			return err
		}
	}
}

// tooLate says that a refusal cannot be waited for.
func tooLate(ctx context.Context, d *Decision) error {
	if d.RetryAfter == Never {
		return &DeniedError{*d}
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d.RetryAfter {
		return fmt.Errorf("%w: %w", ErrDeadline, &DeniedError{*d})
	}
	return nil
}
