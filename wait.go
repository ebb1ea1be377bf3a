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
// among them, a charge keeps headroom, or their keys lie in several slots of a Redis Cluster,
// Wait sleeps for the retry-after and asks again, first come, first served among the callers of this
// Limiter that keep the same headroom, but for callers that come while it asks. A caller in that queue may learn only
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
	asked := charges
	charges, err := l.resolve(ctx, asked, retries{})
	if err != nil {
		return err
	}
	if err := takeable(charges); err != nil {
		return err
	}
	if queue(charges) {
		// A store that cannot reserve these charges together says so before it has done
		// anything. Then they are asked for as those of limits without a queue.
		if err := l.waitForStart(ctx, p, asked); !errors.Is(err, ErrUnsupported) {
			return err
		}
	}
	asking := waiter{ctx}
	var last Decision // of the last look
	turn, err := l.turns.take(ctx, &charges[0],
		func() (time.Duration, error) {
			d, err := l.Check(asking, asked...)
			p.Answered()
			if last = d; err == nil && !d.Allowed {
				err = tooLate(ctx, &p, &d)
			}
			return p.Left(ctx), err
		})
	if err != nil {
		// It came while the caller stood in line. The last look may have seen room: for others.
		if errors.Is(err, ErrDeadline) && !errors.Is(err, ErrDenied) {
			last.Allowed = false
			err = errors.Join(err, &DeniedError{last})
		}
		return err
	}
	defer turn.leave()
	for {
		d, err := l.takeWaiting(asking, asked)
		if err != nil {
			return err
		}
		p.Answered()
		if d.Allowed {
			return nil
		}
		if err := tooLate(ctx, &p, &d); err != nil {
			return err
		}
		if err := turn.sleep(ctx, d.RetryAfter); err != nil {
			return err
		}
	}
}

// takeWaiting takes charges by their limits as they are now. A refusal blocks no key.
func (l *Limiter) takeWaiting(ctx context.Context, charges []Charge) (Decision, error) {
	return l.observed(ctx, VerbTake, charges, func() (d Decision, err error) {
		c := call{l: l, asked: charges}
		err = c.do(ctx, 0, func(ctx context.Context) error {
			r := l.request(c.charges())
			if err := r.compile(law.Take, c.charges()); err != nil {
				return err
			}
			unblocking(r.ops)
			if err := r.do(ctx); err != nil {
				return err
			}
			d = r.decision()
			return nil
		})
		return d, err
	})
}

func (l *Limiter) waitForStart(ctx context.Context, p pause.Patience, charges []Charge) error {
	for {
		r, err := l.Reserve(waiter{ctx}, p.Left(ctx), charges...)
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
