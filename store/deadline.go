package store

import (
	"context"
	"time"
)

// Deadliner is a wrapper of stores that answers in the place of one that takes too long: package internal/front/guard.
type Deadliner interface {
	// Deadline returns how long a request that takes or checks may wait for the store, where
	// its limits do not say; 0: any time.
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
