package headgate

import (
	"context"
	"iter"
)

// TokenRequester asks for leave to do something once: nil is yes, a
// [DeniedError] is no, anything else says that it is not known. Code that has to
// be limited can depend on it and not on where the limit is kept.
type TokenRequester interface {
	// RequestToken returns nil if the action may be done, once.
	RequestToken(ctx context.Context) error
}

// Requester is a TokenRequester that takes the same charges each time. It is safe for
// concurrent use.
type Requester struct {
	by      Taker
	charges []Charge
}

var _ TokenRequester = (*Requester)(nil)

// NewRequester returns a Requester that takes the charges from t.
func NewRequester(t Taker, charges ...Charge) *Requester { return &Requester{t, charges} }

// RequestToken implements TokenRequester.
func (r *Requester) RequestToken(ctx context.Context) error {
	d, err := r.by.Take(ctx, r.charges...)
	if err == nil && !d.Allowed {
		return &DeniedError{d}
	}
	return err
}

// Limited wraps an action so that it is done only when the charges were taken.
// Otherwise its error is a [DeniedError], or the store's. The action gets the
// caller's context.
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

// Pace lets a loop go round as often as a limit lets it: each turn waits for the
// charge, as [Limiter.Wait] does, and gets its number, from 0. The turn that
// cannot be had gets an error, and is the last.
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
