package headgate

import (
	"context"
	"time"
)

// The interfaces of this file are what [Limiter] and the client of a server have in common
// (package client). Code that depends on one of them works over a store and over the
// network. Others may implement them too; NewReservation and NewLease help.

// Taker decides at once.
type Taker interface {
	// Take takes all of the charges, or none: see [Limiter.Take].
	Take(ctx context.Context, charges ...Charge) (Decision, error)
	// Check tells whether Take would admit the charges now: see [Limiter.Check].
	Check(ctx context.Context, charges ...Charge) (Decision, error)
}

// Filler takes what fits.
type Filler interface {
	// FillUp takes as much of a charge as fits: see [Limiter.FillUp].
	FillUp(ctx context.Context, c Charge) (Filled, error)
}

// Waiter waits until charges may start.
type Waiter interface {
	// Wait takes the charges and returns when they may start: see [Limiter.Wait].
	Wait(ctx context.Context, charges ...Charge) error
	// WaitAtMost is Wait with a bound: see [Limiter.WaitAtMost].
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
	// Inspect tells all about one key: see [Limiter.Inspect].
	Inspect(ctx context.Context, limit Limit, key string) (Status, error)
	// Usage tells what a key has used of several limits: see [Limiter.Usage].
	Usage(ctx context.Context, key string, limits ...Limit) ([]Usage, error)
	// Block refuses a key for d; 0 lifts a block: see [Limiter.Block].
	Block(ctx context.Context, limit Limit, key string, d time.Duration, reason string) (Status, error)
	// Reset forgets all about a key: see [Limiter.Reset].
	Reset(ctx context.Context, limit Limit, key string) (existed bool, err error)
}

var (
	_ Taker    = (*Limiter)(nil)
	_ Filler   = (*Limiter)(nil)
	_ Waiter   = (*Limiter)(nil)
	_ Reserver = (*Limiter)(nil)
	_ Settler  = (*Limiter)(nil)
	_ Leaser   = (*Limiter)(nil)
	_ Operator = (*Limiter)(nil)
)
