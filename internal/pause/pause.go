// Package pause is what waiting has in common.
package pause

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/sched"
)

// Longest is how long a wait without a deadline may be: a year.
const Longest = 365 * 24 * time.Hour

// Patience is how long somebody waits: until the context's deadline, and for Most from
// the first answer of the store on, since how long that takes is no waiting. It is not
// safe for concurrent use.
type Patience struct {
	Most time.Duration // above 0; Longest or more: as long as the context lasts

	end time.Time // of Most; zero before the first answer
}

// Answered must be called after each answer.
func (p *Patience) Answered() {
	if p.end.IsZero() {
		p.end = sched.Now().Add(min(p.Most, Longest))
	}
}

// Over reports whether there was an answer, and Most has passed since the first.
func (p *Patience) Over() bool { return !p.end.IsZero() && sched.Until(p.end) <= 0 }

// Left returns how much is left of it, at most Longest and always more than 0, which is for callers that do not wait at
// all.
func (p *Patience) Left(ctx context.Context) time.Duration {
	left := min(p.Most, Longest)
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

// SleepOr also returns when woken receives.
func SleepOr(ctx context.Context, d time.Duration, woken <-chan struct{}) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	if sched.Wait(d, ctx.Done(), woken, nil) == 0 {
		return ctx.Err()
	}
	return nil
}
