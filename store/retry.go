package store

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/sched"
)

// Retry repeats do as long as mayRetry reports that its error left nothing done, and that a retry may help. The pauses
// have full jitter, from 1 ms up to 100 ms. Retry gives up at the deadline of the context, or after the timeout if the
// context has none. It returns the last error and the number of retries.
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
