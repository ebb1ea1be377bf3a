// Package pause is what waiting has in common.
package pause

import (
	"context"
	"time"
)

// Longest is how long a wait without a deadline may be: a year.
const Longest = 365 * 24 * time.Hour

// Patience is how long a context leaves for waiting, from 0 to Longest.
func Patience(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return max(0, min(Longest, time.Until(end)))
	}
	return Longest
}

// Sleep sleeps, or returns the context's error if that ends first.
func Sleep(ctx context.Context, d time.Duration) error { return SleepOr(ctx, d, nil) }

// SleepOr is Sleep for one who can be woken.
func SleepOr(ctx context.Context, d time.Duration, woken <-chan struct{}) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-woken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
