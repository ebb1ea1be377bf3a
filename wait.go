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

// Wait takes the charges, all or none, and returns when they may start. If that is after the context's deadline, it
// returns at once with an error that is ErrDeadline and a [DeniedError]; if they can never pass, with a DeniedError.
// After its RetryAfter the same patience suffices, if no other caller comes. If the context ends during the
// sleep, Wait gives back what it took as far as [Reservation.Cancel] can, and may need five seconds more. Without a
// deadline, a start may be a year off.
//
// Wait reserves charges of token-bucket, leaky-bucket and gcra limits (see [Limiter.Reserve]), and sleeps until their
// start: first come, first served, among all who share the store, and without a retry. If another limit is
// among them, a charge keeps headroom, or their keys lie in several slots of a Redis Cluster,
// Wait sleeps for the retry-after and tries again, first come, first served among the callers of this
// Limiter that keep the same headroom, but for callers that come while it tries. A caller in that queue may learn only
// at the deadline that it comes too early.
//
// A block refuses charges while it lasts; a start that was given before stays. Waiting
// does not block a key whose limit blocks after a refusal.
func (l *Limiter) Wait(ctx context.Context, charges ...Charge) error {
	return l.wait(ctx, pause.Patience{Most: Never}, charges)
}

// WaitAtMost bounds the wait of [Limiter.Wait], besides the context's deadline. The time counts from the store's first
// answer, so a slow store does not use it up. With a wait of 0 it does not wait; a refusal is then a [DeniedError].
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
	return l.wait(ctx, pause.Patience{Most: wait}, charges)
}

func (l *Limiter) wait(ctx context.Context, p pause.Patience, charges []Charge) error {
	if len(charges) == 0 {
		return Invalid("charges", "there is none")
	}
	resolved, err := l.resolve(ctx, charges, attempts{})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(resolved, func(c Charge) bool { return !c.Limit.Queues() || !c.Keep.IsZero() }) {
		// A store that cannot reserve these charges together returns ErrUnsupported before it has done anything.
		if err := l.waitForStart(ctx, p, charges); !errors.Is(err, ErrUnsupported) {
			return err
		}
	}
	last, err := l.waitInLine(ctx, &p, charges[0], waiter{
		probe:   func(ctx context.Context) (Decision, error) { return l.Check(ctx, charges...) },
		attempt: func(ctx context.Context) (Decision, error) { return l.call(ctx, &takeWaiting, charges) },
		refused: func(d *Decision, _ int) (time.Duration, error) { return d.RetryAfter, tooLate(ctx, &p, d) },
	})
	if errors.Is(err, ErrDeadline) && !errors.Is(err, ErrDenied) {
		// The deadline came while the caller stood in line. The last probe may have seen room, for others.
		last.Allowed = false
		return errors.Join(err, &DeniedError{last})
	}
	return err
}

var takeWaiting = question{
	observed: VerbTake, verb: law.Take, limits: takenOnly, credits: Cost.charged,
	prepare: func(r *request) error {
		r.unblock()
		return nil
	},
}

func (l *Limiter) waitForStart(ctx context.Context, p pause.Patience, charges []Charge) error {
	for {
		r, err := l.Reserve(waiting{ctx}, p.Left(ctx), charges...)
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
		// A block precedes any start, and ends.
		if err := tooLate(ctx, &p, &r.Decision); err != nil {
			return err
		}
		if err := pause.Sleep(ctx, r.Decision.RetryAfter); err != nil {
			return err
		}
	}
}

// tooLate returns an error if the patience ends before RetryAfter.
func tooLate(ctx context.Context, p *pause.Patience, d *Decision) error {
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
// releases, and at least once a second. Callers of one Limiter are served in order of arrival. If the context ends
// first, the error is that of the context and a [DeniedError]. A cost that can never be held is a DeniedError at once.
// Waiting does not block a key whose limit blocks after a refusal.
func (l *Limiter) Await(ctx context.Context, charges ...Charge) (*Lease, error) {
	return l.await(ctx, pause.Patience{Most: Never}, charges)
}

// AwaitAtMost bounds the wait of [Limiter.Await], from the store's first answer. After that the error is ErrDeadline
// and a [DeniedError]. With a wait of 0 it does not wait; a refusal is then a DeniedError.
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
	return l.await(ctx, pause.Patience{Most: wait}, charges)
}

func (l *Limiter) await(ctx context.Context, p pause.Patience, charges []Charge) (lease *Lease, err error) {
	resolved, err := l.resolve(ctx, charges, attempts{})
	if err != nil {
		return nil, err
	}
	first := slices.IndexFunc(resolved, func(c Charge) bool { return c.Limit.Concurrency() })
	if first < 0 {
		return l.Acquire(ctx, resolved...) // which says what is wrong
	}
	denied := false
	last, err := l.waitInLine(ctx, &p, charges[first], waiter{
		probe: func(ctx context.Context) (Decision, error) {
			return l.call(ctx, &question{verb: law.Check, credits: Cost.charged, lasting: true}, charges)
		},
		attempt: func(ctx context.Context) (d Decision, err error) {
			if lease, err = l.tryAcquire(ctx, charges, true); err == nil {
				d = lease.Decision
			}
			return d, err
		},
		refused: func(d *Decision, n int) (time.Duration, error) {
			switch denied = true; {
			case d.RetryAfter == Never:
				return 0, &DeniedError{*d}
			case p.Over():
				return 0, fmt.Errorf("%w: %w", ErrDeadline, &DeniedError{*d})
			}
			// The context's deadline does not count: a call just before it may end without an answer.
			return min(firstPause<<min(n, 5), longestPause, d.RetryAfter, p.Left(context.WithoutCancel(ctx))), nil
		},
	})
	switch {
	case err == nil:
		return lease, nil
	case denied && !errors.Is(err, ErrDenied) && (ctx.Err() != nil || errors.Is(err, ErrDeadline)):
		err = fmt.Errorf("%w: %w", err, &DeniedError{last})
	}
	return nil, err
}

// waiter has the steps of a caller in a queue.
type waiter struct {
	probe   func(context.Context) (Decision, error) // without an attempt
	attempt func(context.Context) (Decision, error)
	// refused returns the pause after the n-th attempt, from 0, or why there is no other.
	refused func(d *Decision, n int) (time.Duration, error)
}

// waitInLine makes attempts until one is admitted, and returns the last decision: of a probe, if its turn did not come.
// Callers that wait for the cell of the charge, and keep the same headroom, take turns.
func (l *Limiter) waitInLine(ctx context.Context, p *pause.Patience, c Charge, w waiter) (last Decision, err error) {
	asking := waiting{ctx}
	turn, err := l.queues.take(ctx, &c, func() (time.Duration, error) {
		d, err := w.probe(asking)
		p.Answered()
		if last = d; err == nil && !d.Allowed {
			_, err = w.refused(&d, 0)
		}
		return p.Left(ctx), err
	})
	defer turn.leave()
	for n := 0; err == nil; n++ {
		var d Decision
		if d, err = w.attempt(asking); err != nil {
			break
		}
		p.Answered()
		if last = d; d.Allowed {
			break
		}
		var after time.Duration
		if after, err = w.refused(&d, n); err == nil {
			err = pause.SleepOr(ctx, after, turn.queue.woken)
		}
	}
	return last, err
}
