package headgate

import (
	"context"
	"iter"
	"time"
)

// Both [Limiter] and the client of a server (package client) implement the interfaces from Taker to Operator. Code that
// depends on them works over a store and a network. Other packages may implement them too; NewReservation and NewLease
// help.

// Taker decides charges at once.
type Taker interface {
	// Take takes all of the charges, or none: see [Limiter.Take].
	Take(ctx context.Context, charges ...Charge) (Decision, error)
	// Check reports whether Take would admit the charges now: see [Limiter.Check].
	Check(ctx context.Context, charges ...Charge) (Decision, error)
}

// Filler takes as much of a charge as fits.
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

// Reserver takes charges now for a later start.
type Reserver interface {
	// Reserve takes charges for a start at most wait from now: see [Limiter.Reserve].
	Reserve(ctx context.Context, wait time.Duration, charges ...Charge) (*Reservation, error)
}

// Settler names requests by an idempotency key, so that each is charged once and can be settled by any process.
type Settler interface {
	// Once names a request; a zero life is DefaultLife: see [Limiter.Once].
	Once(id string, life time.Duration) Once
}

// Leaser holds charges of concurrency limits.
type Leaser interface {
	// Acquire holds charges, or returns a Lease whose Decision is a refusal: see [Limiter.Acquire].
	Acquire(ctx context.Context, charges ...Charge) (*Lease, error)
	// Await waits until it has acquired the charges: see [Limiter.Await].
	Await(ctx context.Context, charges ...Charge) (*Lease, error)
	// Renew lets detached leases last longer: see [Limiter.Renew].
	Renew(ctx context.Context, tokens ...LeaseToken) error
	// Release ends detached leases: see [Limiter.Release].
	Release(ctx context.Context, tokens ...LeaseToken) error
}

// Operator inspects keys and corrects their state.
type Operator interface {
	// Inspect returns the status of one key: see [Limiter.Inspect].
	Inspect(ctx context.Context, limit Limit, key string) (Status, error)
	// Usage returns the usage of several limits by a key: see [Limiter.Usage].
	Usage(ctx context.Context, key string, limits ...Limit) ([]Usage, error)
	// Block refuses a key for d; 0 lifts a block: see [Limiter.Block].
	Block(ctx context.Context, limit Limit, key string, d time.Duration, reason string) (Status, error)
	// Reset forgets the usage and the block of a key: see [Limiter.Reset].
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

// TokenRequester admits or refuses an action. Code that has to be limited can depend on it without knowing the limit or
// its store.
type TokenRequester interface {
	// RequestToken returns nil if the action may be done once, a [DeniedError] if it is refused, and any other error if
	// it was not decided.
	RequestToken(ctx context.Context) error
}

// Requester is a TokenRequester that takes the same charges each time. It is safe for concurrent use.
type Requester struct {
	taker   Taker
	charges []Charge
}

// NewRequester returns a Requester that takes the charges from t.
func NewRequester(t Taker, charges ...Charge) *Requester { return &Requester{t, charges} }

// RequestToken implements TokenRequester.
func (r *Requester) RequestToken(ctx context.Context) error {
	d, err := r.taker.Take(ctx, r.charges...)
	if err == nil && !d.Allowed {
		return &DeniedError{d}
	}
	return err
}

// Limited wraps an action so that it runs only after the charges were taken. Otherwise the wrapped action returns a
// [DeniedError] or the store's error. The action gets the caller's context.
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

// Pace limits how often a loop runs: before each iteration it waits for the charges with w.Wait, and yields the number
// of the iteration, from 0. If Wait fails, the iteration gets the error and is the last.
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
