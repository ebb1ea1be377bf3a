package store

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/sched"
)

// Retry repeats do while again reports that a conflict with other transactions left nothing done. The pauses have
// full jitter, from 1 ms up to 100 ms. Retry gives up at the deadline of the context, or after within if it has none.
// It returns the last error and the number of repetitions.
func Retry(ctx context.Context, within time.Duration, do func() error, again func(error) bool) (repeated int,
	err error,
) {
	end := sched.Now().Add(within)
	if d, ok := ctx.Deadline(); ok {
		end = d
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if err = do(); err == nil || !again(err) {
			return repeated, err
		}
		wait := sched.N(pause) + time.Microsecond
		if sched.Until(end) < wait {
			return repeated, err
		}
		if sched.Wait(wait, ctx.Done(), nil, nil) != sched.TimeOut {
			return repeated, err
		}
		repeated++
	}
}
