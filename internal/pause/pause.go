// Package pause sleeps and measures how long a caller still waits, by the clock of package sched.
package pause

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/sched"
)

// longestWait is the longest wait of a caller whose context has no end: a year.
const longestWait = 365 * 24 * time.Hour

// Patience is how long one caller waits: until the context's deadline, and at most for MaxWait. MaxWait counts from the
// first answer of the store, so that the time of that round trip is not deducted. Not safe for concurrent use.
type Patience struct {
	MaxWait time.Duration // above 0; a year or more: as long as the context lasts, but a year at most

	end time.Time // when MaxWait has passed; zero before the first answer
}

// Answered must be called after each answer of the store.
func (p *Patience) Answered() {
	if p.end.IsZero() {
		p.end = sched.Now().Add(min(p.MaxWait, longestWait))
	}
}

// Over reports whether MaxWait has passed since the first answer.
func (p *Patience) Over() bool { return !p.end.IsZero() && sched.Until(p.end) <= 0 }

// Left returns how much longer the caller waits: at most a year, and at least 1 ns, since elsewhere 0 means no wait.
func (p *Patience) Left(ctx context.Context) time.Duration {
	left := min(p.MaxWait, longestWait)
	if !p.end.IsZero() {
		left = sched.Until(p.end)
	}
	if end, ok := ctx.Deadline(); ok {
		left = min(left, sched.Until(end))
	}
	return max(left, 1)
}

// Sleep sleeps, or returns the context's error if that ends first.
func Sleep(ctx context.Context, d time.Duration) error { return SleepOr(ctx, d, nil) }

// SleepOr sleeps until d has passed or woken receives. It returns the context's error if the context ends first.
func SleepOr(ctx context.Context, d time.Duration, woken <-chan struct{}) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	if sched.Wait(d, ctx.Done(), woken, nil) == 0 {
		return ctx.Err()
	}
	return nil
}
