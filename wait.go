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
// among all who share the store, and without a retry. If another limit is
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

// WaitAtMost is [Limiter.Wait] with a longest wait, which applies beside the context's
// deadline. It is counted from the store's first answer, so a slow store does not use
// it up. With a wait of 0 it is [Limiter.Take], except that a refusal is a [DeniedError].
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
		// A store that cannot reserve these charges together says so before it has done
		// anything. Then they are asked for as those of limits without a queue.
		if err := l.waitForStart(ctx, p, charges); !errors.Is(err, ErrUnsupported) {
			return err
		}
	}
	last, err := l.waitInLine(ctx, &p, charges[0], waiter{
		look:    func(ctx context.Context) (Decision, error) { return l.Check(ctx, charges...) },
		attempt: func(ctx context.Context) (Decision, error) { return l.call(ctx, &takeWaiting, charges) },
		refused: func(d *Decision, _ int) (time.Duration, error) { return d.RetryAfter, tooLate(ctx, &p, d) },
	})
	if errors.Is(err, ErrDeadline) && !errors.Is(err, ErrDenied) {
		// It came while the caller stood in line. The last look may have seen room: for others.
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
		// A block comes before any start, and ends.
		if err := tooLate(ctx, &p, &r.Decision); err != nil {
			return err
		}
		if err := pause.Sleep(ctx, r.Decision.RetryAfter); err != nil {
			return err
		}
	}
}

// tooLate says that a refusal cannot be waited for.
func tooLate(ctx context.Context, p *pause.Patience, d *Decision) error {
	switch {
	case d.RetryAfter == Never:
		return &DeniedError{*d}
	case p.Left(ctx) < d.RetryAfter:
		return fmt.Errorf("%w: %w", ErrDeadline, &DeniedError{*d})
	}
	return nil
}

// A caller that waits for a lease tries again after askAgain at first, and
// after askAtMost at most.
const askAgain, askAtMost = 50 * time.Millisecond, time.Second

// Await acquires charges (see [Limiter.Acquire]), and waits until it can. It asks the
// store again as soon as a holder of this Limiter releases, and at least once a second.
// Callers of one Limiter are served in the order in which they came. If the context ends
// first, the error is that of the context and a [DeniedError]. A cost that can never be
// held is a DeniedError at once. Waiting does not block a key whose limit blocks after
// a refusal.
func (l *Limiter) Await(ctx context.Context, charges ...Charge) (*Lease, error) {
	return l.await(ctx, pause.Patience{Most: Never}, charges)
}

// AwaitAtMost is [Limiter.Await] with a longest wait, counted from the store's first
// answer. After that the error is ErrDeadline and a [DeniedError]. With a wait of 0 it
// is [Limiter.Acquire], except that a refusal is a DeniedError.
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
		look: func(ctx context.Context) (Decision, error) {
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
			// Not until the context's deadline: a question asked then may end without an answer.
			return min(askAgain<<min(n, 5), askAtMost, d.RetryAfter, p.Left(context.WithoutCancel(ctx))), nil
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

// waiter is what a caller does that waits.
type waiter struct {
	look    func(context.Context) (Decision, error) // what the attempt would say
	attempt func(context.Context) (Decision, error)
	// refused returns after how long the attempt after the n-th, from 0, can be made; or why there is none.
	refused func(d *Decision, n int) (time.Duration, error)
}

// waitInLine makes attempts until one is admitted, and returns the last decision: of a look, if its turn did not come.
// Callers that wait for the same cell as the charge, and keep as much headroom, take turns.
func (l *Limiter) waitInLine(ctx context.Context, p *pause.Patience, c Charge, w waiter) (last Decision, err error) {
	asking := waiting{ctx}
	turn, err := l.queues.take(ctx, &c, func() (time.Duration, error) {
		d, err := w.look(asking)
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
