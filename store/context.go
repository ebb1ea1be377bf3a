package store

import "context"

// patience marks contexts in which a caller waits for as long as it takes.
type patience struct{}

// WithPatience returns the context of a call that waits for the store, for as long as the context lasts,
// also where a wrapper would answer in the place of a store that is away.
func WithPatience(ctx context.Context) context.Context {
	return context.WithValue(ctx, patience{}, true)
}

// Patient reports whether a context is of WithPatience.
func Patient(ctx context.Context) bool { return ctx.Value(patience{}) != nil }

// passing marks contexts of batches that pass by what is held.
type passing struct{}

// PassHeld returns the context of a batch that, if pass is true, need not wait for cells which other transactions
// hold: the error of a group with such a cell may be ErrHeld then, and nothing was done about it. A store that decides
// without waiting ignores it. If there are no other groups, the batch waits.
func PassHeld(ctx context.Context, pass bool) context.Context {
	return context.WithValue(ctx, passing{}, pass)
}

// PassesHeld reports whether a context says so by PassHeld.
func PassesHeld(ctx context.Context) bool { return ctx.Value(passing{}) == true }
