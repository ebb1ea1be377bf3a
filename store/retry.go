package store

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/sched"
)

// Retry calls do, and repeats it as long as mayRetry reports that its error left nothing done, and that a retry may
// help. The pauses have full jitter: up to 1 ms, then up to twice as much each time, and at most 100 ms. Retry gives up
// if a pause would pass the deadline of the context, or the timeout if it has none, or if the context ends. It returns
// the last error and the number of retries.
func Retry(ctx context.Context, timeout time.Duration, do func() error, mayRetry func(error) bool) (
	retries int, err error,
) {
	deadline := sched.Now().Add(timeout)
	if d, ok := ctx.Deadline(); ok {
		deadline = d
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if err = do(); err == nil || !mayRetry(err) {
			return retries, err
		}
		wait := sched.N(pause) + time.Microsecond
		if sched.Until(deadline) < wait {
			return retries, err
		}
		if sched.Wait(wait, ctx.Done(), nil, nil) != sched.TimeOut {
			return retries, err
		}
		retries++
	}
}
