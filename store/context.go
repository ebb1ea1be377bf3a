package store

import "context"

// patienceKey is the context key of WithPatience.
type patienceKey struct{}

// WithPatience returns a context for a call that waits for the store as long as the context lasts. No wrapper
// decides in place of the store, even while the store is away.
func WithPatience(ctx context.Context) context.Context {
	return context.WithValue(ctx, patienceKey{}, true)
}

// Patient reports whether WithPatience made a context.
func Patient(ctx context.Context) bool { return ctx.Value(patienceKey{}) != nil }

// passHeldKey is the context key of PassHeld.
type passHeldKey struct{}

// PassHeld returns a context for a batch. If pass is true, the batch need not wait for cells that other transactions
// have locked: a group with such a cell may fail with ErrHeld, and is not charged then. If all groups have such a cell,
// the batch waits. A store that decides without waiting ignores PassHeld.
func PassHeld(ctx context.Context, pass bool) context.Context {
	return context.WithValue(ctx, passHeldKey{}, pass)
}

// PassesHeld reports whether PassHeld, with pass true, made a context.
func PassesHeld(ctx context.Context) bool { return ctx.Value(passHeldKey{}) == true }
