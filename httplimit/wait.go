package httplimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pause"
)

// admit returns nil when a request may be sent.
func (t *RoundTripper) admit(ctx context.Context, c headgate.Charge) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.cfg.MaxWait == 0 {
		d, err := t.limiter.Take(ctx, c)
		if err == nil && !d.Allowed {
			return &headgate.DeniedError{Decision: d}
		}
		return wrap(err)
	}
	if !t.limit.Queues() {
		return wrap(t.limiter.WaitAtMost(ctx, t.cfg.MaxWait, c)) // whose last question sees a block
	}
	return wrap(t.await(ctx, c))
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("httplimit: %w", err)
}

// await is Limiter.WaitAtMost for charges with a start of their own, but for this: a
// block that is set while it sleeps for its start holds it back. It then stands in
// line again, or all callers with a start during the block would begin together at its end;
// its first charge is for a time in which nobody sends, and has drained. To look costs
// each caller that slept two more requests to the store.
func (t *RoundTripper) await(ctx context.Context, c headgate.Charge) error {
	patience := pause.Patience{Most: t.cfg.MaxWait}
	for {
		r, err := t.limiter.Reserve(ctx, patience.Left(ctx), c)
		if err != nil {
			return err
		}
		patience.Answered()
		switch {
		case r.Decision.Allowed && r.Delay() == 0:
			return nil
		case r.Decision.RetryAfter == headgate.Never:
			return &headgate.DeniedError{Decision: r.Decision}
		case !r.Decision.Allowed:
			if err := t.refused(ctx, c, r.Decision, patience.Left(ctx)); err != nil {
				return err
			}
			continue
		}
		if err := r.Sleep(ctx); err != nil {
			return err
		}
		s, err := t.limiter.Inspect(ctx, t.limit, c.Key)
		switch {
		case errors.Is(err, headgate.ErrUnsupported):
			return nil
		case err != nil || s.BlockedUntil.IsZero():
			return err
		}
	}
}

// refused sleeps until a reservation that was not made can be asked for again,
// if its start can come in time.
func (t *RoundTripper) refused(ctx context.Context, c headgate.Charge, d headgate.Decision,
	patience time.Duration,
) error {
	// d says when a reservation can be made, this one when its start would be.
	start, err := t.limiter.Check(ctx, c)
	if err != nil {
		return err
	}
	if !start.Allowed && start.RetryAfter > patience {
		return fmt.Errorf("%w: %w", headgate.ErrDeadline, &headgate.DeniedError{Decision: start})
	}
	return pause.Sleep(ctx, min(d.RetryAfter, start.RetryAfter))
}
