package store

import (
	"context"
	"time"
)

// Deadliner is a Store whose decisions should be there within a time.
type Deadliner interface {
	// Deadline returns how long a request that takes or checks may wait for the store, where
	// its limits do not say; 0: the store does not mind. It may change.
	Deadline() time.Duration
}

// patience marks contexts in which a caller waits for as long as it takes.
type patience struct{}

// WithPatience returns the context of a call that waits for the store, for as long as the context lasts,
// also where a wrapper would answer in the place of a store that is away.
func WithPatience(ctx context.Context) context.Context {
	return context.WithValue(ctx, patience{}, true)
}

// Patient reports whether a context is of WithPatience.
func Patient(ctx context.Context) bool { return ctx.Value(patience{}) != nil }
