// Package outgoing is what the limits of outgoing calls have in common, by HTTP and by gRPC: to wait for room
// before a call is sent, and to hold back a key when a server asks for it.
package outgoing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pause"
)

// Limiter is what outgoing calls need: a [headgate.Limiter] has it, and so has the client of a server.
type Limiter interface {
	headgate.Taker
	headgate.Waiter
	headgate.Reserver
	headgate.Operator
}

// Admit returns nil when a call may be sent, which it waits for at most maxWait, and until the context's deadline; 0:
// it does not wait. A refusal is a [headgate.DeniedError], and one that cannot be waited for a
// [headgate.ErrDeadline] too. Callers look at the context before.
func Admit(ctx context.Context, l Limiter, maxWait time.Duration, c headgate.Charge) error {
	if maxWait == 0 || !c.Limit.Queues() {
		return l.WaitAtMost(ctx, maxWait, c) // whose last question sees a block
	}
	return await(ctx, l, maxWait, c)
}

// await calls Limiter.WaitAtMost, and obeys a block that is set while it sleeps for its start. It then
// stands in line again, or all callers with a start during the block would begin together at its end;
// its first charge is for a time in which nobody sends, and has drained. To look costs
// each caller that slept two more requests to the store.
func await(ctx context.Context, l Limiter, maxWait time.Duration, c headgate.Charge) error {
	patience := pause.Patience{Most: maxWait}
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
			if err := refused(ctx, l, c, r.Decision, patience.Left(ctx)); err != nil {
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

// refused sleeps until a reservation that was not made can be requested again,
// if its start can come in time.
func refused(ctx context.Context, l Limiter, c headgate.Charge, d headgate.Decision, patience time.Duration) error {
	// d says when a reservation can be made, this one when its start would be.
	start, err := l.Check(ctx, c)
	if err != nil {
		return err
	}
	if !start.Allowed && start.RetryAfter > patience {
		return fmt.Errorf("%w: %w", headgate.ErrDeadline, &headgate.DeniedError{Decision: start})
	}
	return pause.Sleep(ctx, min(d.RetryAfter, start.RetryAfter))
}
