package headgate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/pause"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
)

// A caller that waits for a lease asks the store again after askAgain at first, and
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

func (l *Limiter) await(ctx context.Context, p pause.Patience, charges []Charge) (*Lease, error) {
	asked := charges
	charges, err := l.resolve(ctx, asked, retries{})
	if err != nil {
		return nil, err
	}
	first := 0
	for i, c := range charges {
		if c.Limit.Concurrency() {
			first = i
			break
		}
	}
	if len(charges) == 0 || charges[first].Limit.IsZero() {
		_, err := l.Acquire(ctx, charges...) // which says what is wrong
		return nil, err
	}
	asking := waiter{ctx}
	var denied *DeniedError
	turn, err := l.turns.take(ctx, &charges[first],
		func() (time.Duration, error) {
			d, err := l.look(asking, asked)
			p.Answered()
			if err == nil && !d.Allowed {
				if denied = (&DeniedError{d}); d.RetryAfter == Never {
					return 0, denied
				}
			}
			return p.Left(ctx), err
		})
	defer turn.leave()
	for again := askAgain; err == nil; again = min(2*again, askAtMost) {
		var lease *Lease
		if lease, err = l.acquire(asking, asked, true); err != nil {
			break
		}
		p.Answered()
		if lease.Decision.Allowed {
			return lease, nil
		}
		if denied = (&DeniedError{lease.Decision}); denied.Decision.RetryAfter == Never {
			return nil, denied
		}
		if p.Over() {
			return nil, fmt.Errorf("%w: %w", ErrDeadline, denied)
		}
		// Not until the context's deadline: a question asked then may end without an answer.
		err = turn.sleep(ctx, min(again, denied.Decision.RetryAfter, p.Left(context.WithoutCancel(ctx))))
	}
	if denied != nil && !errors.Is(err, ErrDenied) && (ctx.Err() != nil || errors.Is(err, ErrDeadline)) {
		err = fmt.Errorf("%w: %w", err, denied)
	}
	return nil, err
}

// look is Check of charges that are acquired.
func (l *Limiter) look(ctx context.Context, charges []Charge) (d Decision, err error) {
	c := call{l: l, asked: charges}
	err = c.do(ctx, l.timeout, func(ctx context.Context) error {
		d, err = l.answer(ctx, law.Check, c.charges())
		return err
	})
	return d, err
}

// WithLease waits for a lease (see [Limiter.Await]), does the action, and releases it.
// The action's context ends with the cause ErrLeaseLost when the lease is lost, and
// then WithLease's error is that too. Should the store be away when it is released, it
// ends after its time to live; that is no error of the action.
func WithLease(ctx context.Context, l Leaser, action func(context.Context) error, charges ...Charge) (err error) {
	lease, err := l.Await(ctx, charges...)
	if err != nil {
		return err
	}
	within, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	sched.Go(func() {
		if sched.Either(lease.Lost(), done) {
			cancel(ErrLeaseLost)
		}
	})
	defer func() { // also when the action panics
		close(done)
		cancel(nil)
		ctx, end := sched.WithTimeout(context.WithoutCancel(ctx), cancelWithin)
		defer end()
		if failed := lease.Release(ctx); errors.Is(failed, ErrLeaseLost) {
			err = errors.Join(err, failed)
		}
	}()
	return action(within)
}
