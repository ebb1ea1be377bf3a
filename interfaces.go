package headgate

import (
	"context"
	"iter"
	"time"
)

// The interfaces of this file are what [Limiter] and the client of a server have in common
// (package client). Code that depends on one of them works over a store and over the
// network. Others may implement them too; NewReservation and NewLease help.

// Taker decides at once.
type Taker interface {
	// Take takes all of the charges, or none: see [Limiter.Take].
	Take(ctx context.Context, charges ...Charge) (Decision, error)
	// Check reports whether Take would admit the charges now: see [Limiter.Check].
	Check(ctx context.Context, charges ...Charge) (Decision, error)
}

// Filler takes what fits.
type Filler interface {
	// FillUp takes as much of a charge as fits: see [Limiter.FillUp].
	FillUp(ctx context.Context, c Charge) (FillUpResult, error)
}

// Waiter waits until charges may start.
type Waiter interface {
	// Wait takes the charges and returns when they may start: see [Limiter.Wait].
	Wait(ctx context.Context, charges ...Charge) error
	// WaitAtMost fails if the start is later than wait allows: see [Limiter.WaitAtMost].
	WaitAtMost(ctx context.Context, wait time.Duration, charges ...Charge) error
}

// Reserver takes now for a later start.
type Reserver interface {
	// Reserve takes charges for a start at most wait from now: see [Limiter.Reserve].
	Reserve(ctx context.Context, wait time.Duration, charges ...Charge) (*Reservation, error)
}

// Settler names requests by an idempotency key, so that each is charged once and can be
// settled by any process.
type Settler interface {
	// Once names a request; a zero life is DefaultLife: see [Limiter.Once].
	Once(id string, life time.Duration) Once
}

// Leaser holds charges of concurrency limits.
type Leaser interface {
	// Acquire holds charges, or returns a Lease whose Decision is a refusal: see
	// [Limiter.Acquire].
	Acquire(ctx context.Context, charges ...Charge) (*Lease, error)
	// Await waits until it holds them: see [Limiter.Await].
	Await(ctx context.Context, charges ...Charge) (*Lease, error)
	// Renew lets detached leases last longer: see [Limiter.Renew].
	Renew(ctx context.Context, held ...LeaseToken) error
	// Release lets others have what is held: see [Limiter.Release].
	Release(ctx context.Context, held ...LeaseToken) error
}

// Operator looks at keys and corrects them.
type Operator interface {
	// Inspect returns all that is known of one key: see [Limiter.Inspect].
	Inspect(ctx context.Context, limit Limit, key string) (Status, error)
	// Usage returns what a key has used of several limits: see [Limiter.Usage].
	Usage(ctx context.Context, key string, limits ...Limit) ([]Usage, error)
	// Block refuses a key for d; 0 lifts a block: see [Limiter.Block].
	Block(ctx context.Context, limit Limit, key string, d time.Duration, reason string) (Status, error)
	// Reset forgets all about a key: see [Limiter.Reset].
	Reset(ctx context.Context, limit Limit, key string) (existed bool, err error)
}

var (
	_ Taker          = (*Limiter)(nil)
	_ Filler         = (*Limiter)(nil)
	_ Waiter         = (*Limiter)(nil)
	_ Reserver       = (*Limiter)(nil)
	_ Settler        = (*Limiter)(nil)
	_ Leaser         = (*Limiter)(nil)
	_ Operator       = (*Limiter)(nil)
	_ TokenRequester = (*Requester)(nil)
)

// TokenRequester asks for leave to do something once: nil is yes, a
// [DeniedError] is no, anything else says that it is not known. Code that has to
// be limited can depend on it and not on where the limit is kept.
type TokenRequester interface {
	// RequestToken returns nil if the action may be done, once.
	RequestToken(ctx context.Context) error
}

// Requester is a TokenRequester that takes the same charges each time. It is safe for
// concurrent use.
type Requester struct {
	by      Taker
	charges []Charge
}

// NewRequester returns a Requester that takes the charges from t.
func NewRequester(t Taker, charges ...Charge) *Requester { return &Requester{t, charges} }

// RequestToken implements TokenRequester.
func (r *Requester) RequestToken(ctx context.Context) error {
	d, err := r.by.Take(ctx, r.charges...)
	if err == nil && !d.Allowed {
		return &DeniedError{d}
	}
	return err
}

// Limited wraps an action so that it is done only when the charges were taken.
// Otherwise its error is a [DeniedError], or the store's. The action gets the
// caller's context.
func Limited[T any](t Taker, action func(context.Context) (T, error), charges ...Charge) func(
	context.Context) (T, error) {
	r := NewRequester(t, charges...)
	return func(ctx context.Context) (result T, err error) {
		if err := r.RequestToken(ctx); err != nil {
			return result, err
		}
		return action(ctx)
	}
}

// Pace lets a loop go round as often as a limit lets it: each turn waits for the
// charge, as [Limiter.Wait] does, and gets its number, from 0. The turn that
// cannot be had gets an error, and is the last.
//
//	for i, err := range headgate.Pace(ctx, limiter, charge) {
//		if err != nil {
//			return err // the context has ended, or the store is away
//		}
//		job(i)
//	}
func Pace(ctx context.Context, w Waiter, charges ...Charge) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := 0; ; i++ {
			if err := w.Wait(ctx, charges...); err != nil {
				yield(i, err)
				return
			}
			if !yield(i, nil) {
				return
			}
		}
	}
}
