// Package outgoing limits outgoing calls, for httplimit and grpclimit: it waits for room
// before a call is sent, and blocks a key when a server asks to hold back.
package outgoing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pause"
)

// Limiter has the methods that this package calls. A [headgate.Limiter] implements it, and so does the client of a
// server.
type Limiter interface {
	headgate.Taker
	headgate.Waiter
	headgate.Reserver
	headgate.Operator
}

// Admit charges a call and returns nil when it may be sent. It waits for at most maxWait and until the context's
// deadline; with maxWait 0 it does not wait. A refusal is a [headgate.DeniedError]; if the wait would be too
// long, it is a [headgate.ErrDeadline] too. Callers check the context before.
func Admit(ctx context.Context, l Limiter, maxWait time.Duration, c headgate.Charge) error {
	if maxWait == 0 || !c.Limit.Queues() {
		return l.WaitAtMost(ctx, maxWait, c) // after it has slept it takes, and so sees a block
	}
	return reserveStart(ctx, l, maxWait, c)
}

// reserveStart reserves a start and sleeps until then. If the key was blocked meanwhile, it reserves again: otherwise
// all callers with a start during the block would begin together at its end. The first reservation needs no refund,
// since it was for a time in which nobody sends. Inspect costs each caller that slept two more requests to the store.
func reserveStart(ctx context.Context, l Limiter, maxWait time.Duration, c headgate.Charge) error {
	patience := pause.Patience{MaxWait: maxWait}
	for {
		r, err := l.Reserve(ctx, patience.Left(ctx), c)
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
			if err := sleepToRetry(ctx, l, c, r.Decision, patience.Left(ctx)); err != nil {
				return err
			}
			continue
		}
		if err := r.Sleep(ctx); err != nil {
			return err
		}
		s, err := l.Inspect(ctx, c.Limit, c.Key)
		switch {
		case errors.Is(err, headgate.ErrUnsupported):
			return nil
		case err != nil || s.BlockedUntil.IsZero():
			return err
		}
	}
}

// sleepToRetry sleeps until a refused reservation can be requested again, unless its start would come too late.
func sleepToRetry(ctx context.Context, l Limiter, c headgate.Charge, d headgate.Decision, left time.Duration) error {
	// d says when a reservation can be made, start when the call could start.
	start, err := l.Check(ctx, c)
	if err != nil {
		return err
	}
	if !start.Allowed && start.RetryAfter > left {
		return fmt.Errorf("%w: %w", headgate.ErrDeadline, &headgate.DeniedError{Decision: start})
	}
	return pause.Sleep(ctx, min(d.RetryAfter, start.RetryAfter))
}
