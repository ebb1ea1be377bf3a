package headgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/pause"
	"github.com/headgate/headgate/law"
)

// Wait takes the charges, all or none, and returns when they may start. If the start is after the context's deadline,
// it returns at once with an error that is both ErrDeadline and a [DeniedError]; a call with as much time, made after
// the DeniedError's RetryAfter, succeeds if no other caller comes. If the charges can never pass, it returns a
// DeniedError. If the context ends during the sleep, Wait gives back the charges as far as [Reservation.Cancel] can,
// which may take five seconds more. Without a deadline, Wait may sleep for a year.
//
// Wait reserves charges of token-bucket, leaky-bucket and gcra limits (see [Limiter.Reserve]), and sleeps until their
// start: first come, first served, among all who share the store. If a charge has another limit, keeps headroom or is
// an alternative, or the keys lie in several slots of a Redis Cluster, Wait sleeps for RetryAfter and tries again.
// Callers of this Limiter whose first charges have the same limit, key and Keep then wait in a queue, in which a caller
// that does not find it empty takes its place after a first check. It may learn only at the deadline that its time does
// not suffice.
//
// A block refuses charges while it lasts; a reservation from before the block keeps its start. A refusal of a waiting
// caller does not block a key.
func (l *Limiter) Wait(ctx context.Context, charges ...Charge) error {
	return l.wait(ctx, pause.Patience{MaxWait: Never}, charges)
}

// WaitAtMost waits like [Limiter.Wait], but at most for wait. That time counts from the store's first answer, so a slow
// store does not use it up. With a wait of 0 it does not wait, and returns a refusal as a [DeniedError].
func (l *Limiter) WaitAtMost(ctx context.Context, wait time.Duration, charges ...Charge) error {
	if wait < 0 {
		return Invalid("wait", "%s is negative", wait)
	}
	if wait == 0 {
		d, err := l.Take(ctx, charges...)
		if err == nil && !d.Allowed {
			err = &DeniedError{d}
		}
		return err
	}
	return l.wait(ctx, pause.Patience{MaxWait: wait}, charges)
}

// wait waits until the charges may start: by a reservation if all of them can be reserved, else in a queue.
func (l *Limiter) wait(ctx context.Context, p pause.Patience, charges []Charge) error {
	if len(charges) == 0 {
		return Invalid("charges", "there is none")
	}
	resolved, err := l.resolve(ctx, charges, attempts{})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(resolved, func(c Charge) bool {
		return !c.Limit.Queues() || !c.Keep.IsZero() || c.Alternative != 0
	}) {
		// A store that cannot reserve these charges together returns ErrUnsupported before it has done anything.
		if err := l.waitForStart(ctx, p, charges); !errors.Is(err, ErrUnsupported) {
			return err
		}
	}
	lastDecision, err := l.waitInQueue(ctx, &p, charges[0], waiter{
		probe:   func(ctx context.Context) (Decision, error) { return l.Check(ctx, charges...) },
		attempt: func(ctx context.Context) (Decision, error) { return l.call(ctx, &waitingTakeSpec, charges) },
		afterRefusal: func(d *Decision, _ int) (time.Duration, error) {
			return d.RetryAfter, checkPatience(ctx, &p, d)
		},
	})
	if errors.Is(err, ErrDeadline) && !errors.Is(err, ErrDenied) {
		// The deadline came while the caller stood in the queue. The last probe may have seen room, but for others.
		lastDecision.Allowed = false
		return errors.Join(err, &DeniedError{lastDecision})
	}
	return err
}

// waitingTakeSpec is the spec of a take by a caller that waits: a refusal does not block the key.
var waitingTakeSpec = verbSpec{
	reportAs: VerbTake, verb: law.Take, limits: notConcurrency, toCredits: Cost.chargeCredits,
	prepare: func(r *request) error {
		r.dropBlocks()
		return nil
	},
}

// waitForStart reserves the charges and sleeps until their start. While a key is blocked, it tries again.
func (l *Limiter) waitForStart(ctx context.Context, p pause.Patience, charges []Charge) error {
	for {
		r, err := l.Reserve(waitingContext{ctx}, p.Left(ctx), charges...)
		if err != nil {
			return err
		}
		p.Answered()
		switch {
		case r.Decision.Allowed:
			return r.Sleep(ctx)
		case !r.blocked && r.Decision.RetryAfter != Never:
			return fmt.Errorf("%w: %w", ErrDeadline, &DeniedError{r.Decision})
		}
		// The key is blocked, or the charges can never pass.
		if err := checkPatience(ctx, &p, &r.Decision); err != nil {
			return err
		}
		if err := pause.Sleep(ctx, r.Decision.RetryAfter); err != nil {
			return err
		}
	}
}

// checkPatience returns an error if the patience ends before RetryAfter, or RetryAfter is Never.
func checkPatience(ctx context.Context, p *pause.Patience, d *Decision) error {
	switch {
	case d.RetryAfter == Never:
		return &DeniedError{*d}
	case p.Left(ctx) < d.RetryAfter:
		return fmt.Errorf("%w: %w", ErrDeadline, &DeniedError{*d})
	}
	return nil
}

// The pauses between attempts to acquire a lease.
const firstPause, longestPause = 50 * time.Millisecond, time.Second

// Await waits until it can acquire charges (see [Limiter.Acquire]). It tries again as soon as a holder of this Limiter
// releases, and at least once a second. Callers of this Limiter whose first concurrency charges have the same limit,
// key and Keep are served in the order in which a first check of each has returned. If the context ends first, the
// error is the context's, and after a refusal also a [DeniedError]. If a cost can never be held, Await returns a
// DeniedError at once. A refusal of a waiting caller does not block a key.
func (l *Limiter) Await(ctx context.Context, charges ...Charge) (*Lease, error) {
	return l.await(ctx, pause.Patience{MaxWait: Never}, charges)
}

// AwaitAtMost waits like [Limiter.Await], but at most for wait from the store's first answer. After that the error is
// both ErrDeadline and a [DeniedError]. With a wait of 0 it does not wait, and returns a refusal as a DeniedError.
func (l *Limiter) AwaitAtMost(ctx context.Context, wait time.Duration, charges ...Charge) (*Lease, error) {
	if wait < 0 {
		return nil, Invalid("wait", "%s is negative", wait)
	}
	if wait == 0 {
		lease, err := l.Acquire(ctx, charges...)
		if err == nil && !lease.Decision.Allowed {
			return nil, &DeniedError{lease.Decision}
		}
		return lease, err
	}
	return l.await(ctx, pause.Patience{MaxWait: wait}, charges)
}

// await waits in a queue for the first cell of a concurrency limit until it can acquire the charges.
func (l *Limiter) await(ctx context.Context, p pause.Patience, charges []Charge) (lease *Lease, err error) {
	resolved, err := l.resolve(ctx, charges, attempts{})
	if err != nil {
		return nil, err
	}
	index := slices.IndexFunc(resolved, func(c Charge) bool { return c.Limit.Concurrency() })
	if index < 0 {
		return l.Acquire(ctx, resolved...) // returns the error
	}
	wasDenied := false
	lastDecision, err := l.waitInQueue(ctx, &p, charges[index], waiter{
		probe: func(ctx context.Context) (Decision, error) {
			return l.call(ctx, &verbSpec{verb: law.Check, toCredits: Cost.chargeCredits, fullTimeout: true}, charges)
		},
		attempt: func(ctx context.Context) (d Decision, err error) {
			if lease, err = l.tryAcquire(ctx, charges, true); err == nil {
				d = lease.Decision
			}
			return d, err
		},
		afterRefusal: func(d *Decision, n int) (time.Duration, error) {
			switch wasDenied = true; {
			case d.RetryAfter == Never:
				return 0, &DeniedError{*d}
			case p.Over():
				return 0, fmt.Errorf("%w: %w", ErrDeadline, &DeniedError{*d})
			}
			// The pause is not cut at the context's deadline: a call just before it may end without an answer.
			return min(firstPause<<min(n, 5), longestPause, d.RetryAfter, p.Left(context.WithoutCancel(ctx))), nil
		},
	})
	switch {
	case err == nil:
		return lease, nil
	case wasDenied && !errors.Is(err, ErrDenied) && (ctx.Err() != nil || errors.Is(err, ErrDeadline)):
		err = fmt.Errorf("%w: %w", err, &DeniedError{lastDecision})
	}
	return nil, err
}

// waiter has the functions that a caller in a queue calls.
type waiter struct {
	probe   func(context.Context) (Decision, error) // checks whether an attempt could succeed
	attempt func(context.Context) (Decision, error) // tries to take or acquire
	// afterRefusal returns the pause after the n-th attempt, from 0, or an error if there is no further attempt.
	afterRefusal func(d *Decision, n int) (time.Duration, error)
}

// waitInQueue makes attempts until one is admitted, and returns the last decision, or the probe's decision if the
// caller's turn does not come. Callers that wait for the cell of c, and keep the same headroom, share a queue.
func (l *Limiter) waitInQueue(ctx context.Context, p *pause.Patience, c Charge, w waiter) (
	lastDecision Decision, err error,
) {
	waitingCtx := waitingContext{ctx}
	if l.cachingNames != nil && c.Limit.OnlyName() { // a limit that was renamed has cells of another name
		if limit, ok := l.cachingNames.Known(c.Limit.r.name, c.Key); ok {
			c.Limit = limit
		}
	}
	turn, err := l.queues.takeTurn(ctx, &c, func() (time.Duration, error) {
		d, err := w.probe(waitingCtx)
		p.Answered()
		if lastDecision = d; err == nil && !d.Allowed {
			_, err = w.afterRefusal(&d, 0)
		}
		return p.Left(ctx), err
	})
	defer turn.leave()
	for n := 0; err == nil; n++ {
		var d Decision
		if d, err = w.attempt(waitingCtx); err != nil {
			break
		}
		p.Answered()
		if lastDecision = d; d.Allowed {
			break
		}
		var delay time.Duration
		if delay, err = w.afterRefusal(&d, n); err == nil {
			err = pause.SleepOr(ctx, delay, turn.queue.wakeUp)
		}
	}
	return lastDecision, err
}
