package store

import "context"

// patienceKey is the context key of WithPatience.
type patienceKey struct{}

// WithPatience returns a context for a call that waits for the store, also while that is away, as long as the context
// lasts.
func WithPatience(ctx context.Context) context.Context {
	return context.WithValue(ctx, patienceKey{}, true)
}

// Patient reports whether WithPatience made a context, or one that it is derived from.
func Patient(ctx context.Context) bool { return ctx.Value(patienceKey{}) != nil }

// passHeldKey is the context key of PassHeld.
type passHeldKey struct{}

// PassHeld returns a context for a batch. If pass is true, the batch need not wait for cells that other transactions
// have locked: a group with such a cell may fail with ErrHeld, and is not charged then. If all groups have such a cell,
// the batch waits. A store that decides without waiting ignores PassHeld.
func PassHeld(ctx context.Context, pass bool) context.Context {
	return context.WithValue(ctx, passHeldKey{}, pass)
}

// PassesHeld reports whether the last PassHeld that a context is derived from had pass true.
func PassesHeld(ctx context.Context) bool { return ctx.Value(passHeldKey{}) == true }
