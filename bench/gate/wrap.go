package gate

import (
	"context"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// Wrap puts a store around a store.
type Wrap func(store.Store) store.Store

// Front is the recommended stack without its sweeper, which would come between the
// rounds: comparisons sweep where they say so.
func Front(s store.Store) store.Store { return front.New(s, &front.Config{SweepEvery: -1}) }

// Documented is the stack as README.md makes it.
func Documented(s store.Store) store.Store { return front.New(s, nil) }

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
