package httplimit

import (
	"context"
	"errors"
	"fmt"

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
	if t.cfg.MaxWait != headgate.Never {
		within, cancel := context.WithTimeout(ctx, t.cfg.MaxWait)
		defer cancel()
		ctx = within
	}
	switch t.limit.Algorithm().(type) {
	case headgate.TokenBucket, headgate.LeakyBucket, headgate.GCRA:
		return wrap(t.await(ctx, c))
	}
	return wrap(t.limiter.Wait(ctx, c)) // whose last question sees a block
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("httplimit: %w", err)
}

// await is Limiter.Wait for charges with a start of their own, but for this:
// a block that is set while it sleeps for its start holds it back. It then
// stands in line again, lest all who had a start during the block begin at its
// end together; its first charge is for a time in which nobody sends, and has
// drained. To look costs those who slept two more questions to the store.
func (t *RoundTripper) await(ctx context.Context, c headgate.Charge) error {
	for {
		r, err := t.limiter.Reserve(ctx, pause.Patience(ctx), c)
		if err != nil {
			return err
		}
		if !r.Decision.Allowed {
			if err := t.refused(ctx, c, r.Decision); err != nil {
				return err
			}
			continue
		}
		if r.Delay() == 0 {
			return nil
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
func (t *RoundTripper) refused(ctx context.Context, c headgate.Charge, d headgate.Decision) error {
	if d.RetryAfter == headgate.Never {
		return &headgate.DeniedError{Decision: d}
	}
	// d says when a reservation can be made, this one when its start would be.
	start, err := t.limiter.Check(ctx, c)
	if err != nil {
		return err
	}
	if !start.Allowed && start.RetryAfter > pause.Patience(ctx) {
		return fmt.Errorf("%w: %w", headgate.ErrDeadline, &headgate.DeniedError{Decision: start})
	}
	return pause.Sleep(ctx, min(d.RetryAfter, start.RetryAfter))
}
