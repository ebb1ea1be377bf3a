package httplimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
)

// maxWait is the longest wait without a deadline: a year.
const maxWait = 365 * 24 * time.Hour

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
		r, err := t.limiter.Reserve(ctx, patience(ctx), c)
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
	if !start.Allowed && start.RetryAfter > patience(ctx) {
		return fmt.Errorf("%w: %w", headgate.ErrDeadline, &headgate.DeniedError{Decision: start})
	}
	return sleep(ctx, min(d.RetryAfter, start.RetryAfter))
}

// patience is how far off a start may be.
func patience(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return max(0, min(maxWait, time.Until(end)))
	}
	return maxWait
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
