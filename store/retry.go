package store

import (
	"context"
	"math/rand/v2"
	"time"
)

// Retry repeats do while again says that its error is one of a conflict with
// other transactions, which left nothing done: with full jitter, from 1 ms up
// to 100 ms, until the deadline of the context, or for at most within if it
// has none. It returns the last error and how often do was repeated. For
// drivers.
func Retry(ctx context.Context, within time.Duration, do func() error, again func(error) bool) (repeated int,
	err error,
) {
	end := time.Now().Add(within) //nolint:forbidigo // a pause, not a decision
	if d, ok := ctx.Deadline(); ok {
		end = d
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if err = do(); err == nil || !again(err) {
			return repeated, err
		}
		wait := time.Duration(rand.Int64N(int64(pause))) + time.Microsecond
		if time.Until(end) < wait {
			return repeated, err
		}
		select {
		case <-ctx.Done():
			return repeated, err
		case <-time.After(wait):
		}
		repeated++
	}
}
