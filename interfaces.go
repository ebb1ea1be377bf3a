package headgate

import (
	"context"
	"time"
)

// The interfaces of this file are what [Limiter] and the client of a server have in common
// (package client). Code that depends on one of them works over a store and over the
// network. Others may implement them too; NewReservation and NewLease help.

// Taker decides at once: see [Limiter.Take] and [Limiter.Check].
type Taker interface {
	Take(ctx context.Context, charges ...Charge) (Decision, error)
	Check(ctx context.Context, charges ...Charge) (Decision, error)
}

// Waiter waits until charges may start: see [Limiter.Wait] and [Limiter.WaitAtMost].
type Waiter interface {
	Wait(ctx context.Context, charges ...Charge) error
	WaitAtMost(ctx context.Context, wait time.Duration, charges ...Charge) error
}

// Reserver takes now for a later start: see [Limiter.Reserve].
type Reserver interface {
	Reserve(ctx context.Context, wait time.Duration, charges ...Charge) (*Reservation, error)
}

// Settler names requests by an idempotency key, so that each is charged once and can be
// settled by any process: see [Limiter.Once].
type Settler interface {
	Once(id string, life time.Duration) Once
}

// Leaser holds charges of concurrency limits: see [Limiter.Acquire], [Limiter.Await],
// [Limiter.Renew] and [Limiter.Release].
type Leaser interface {
	Acquire(ctx context.Context, charges ...Charge) (*Lease, error)
	Await(ctx context.Context, charges ...Charge) (*Lease, error)
	Renew(ctx context.Context, held ...LeaseToken) error
	Release(ctx context.Context, held ...LeaseToken) error
}

// Operator looks at keys and corrects them: see [Limiter.Inspect], [Limiter.Block] and
// [Limiter.Reset].
type Operator interface {
	Inspect(ctx context.Context, limit Limit, key string) (Status, error)
	Block(ctx context.Context, limit Limit, key string, d time.Duration, reason string) (Status, error)
	Reset(ctx context.Context, limit Limit, key string) (existed bool, err error)
}

var (
	_ Taker    = (*Limiter)(nil)
	_ Waiter   = (*Limiter)(nil)
	_ Reserver = (*Limiter)(nil)
	_ Settler  = (*Limiter)(nil)
	_ Leaser   = (*Limiter)(nil)
	_ Operator = (*Limiter)(nil)
)
