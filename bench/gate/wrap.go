package gate

import (
	"context"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/coalesce"
	"github.com/headgate/headgate/store/deny"
	"github.com/headgate/headgate/store/lease"
)

// Wrap puts a store around a store.
type Wrap func(store.Store) store.Store

// Coalesced lets callers who wait share round trips.
func Coalesced(s store.Store) store.Store { return coalesce.New(s, nil) }

// Denied repeats a refusal for as long as it is known to hold.
func Denied(s store.Store) store.Store { return deny.New(s, nil) }

// Leased takes units up front, where the limit allows it, and hands them out
// here.
func Leased(s store.Store) store.Store { return lease.New(s, nil) }

var (
	_ store.Store     = (*counter)(nil)
	_ store.Unwrapper = (*counter)(nil)
)

// counter counts what a store is asked.
type counter struct {
	store.Store
	call func()
}

// Count returns a wrapper that calls f for every Apply.
func Count(f func()) Wrap {
	return func(s store.Store) store.Store { return &counter{s, f} }
}

// Apply implements store.Store.
func (c *counter) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	c.call()
	return c.Store.Apply(ctx, ops, outs)
}

// Unwrap implements store.Unwrapper.
func (c *counter) Unwrap() store.Store { return c.Store }
