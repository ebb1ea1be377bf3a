package front

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/store"
)

const (
	// sweepWithin bounds one sweep, so that a server that is silent does not hold the
	// sweeper for ever.
	sweepWithin = 30 * time.Second
	// A sweep that has left something is followed by a pause of minShare to maxShare times as long
	// as it took: the longer, the less of what it looked at was dead. So a flood of new keys is
	// removed as fast as it came, and a table of live keys costs a twentieth of a connection.
	minShare, maxShare = 0.02, 19
	// leastPause is the shortest of these pauses while all that a sweep looked at is dead, and
	// shortPause otherwise.
	leastPause = time.Millisecond
	shortPause = 50 * time.Millisecond
	// lookEvery is how often the sweeper looks, in a longer pause, how many ops the store got.
	lookEvery = time.Second
	// longestBackOff is the longest pause after an error, unless SweepEvery is longer.
	longestBackOff = time.Minute
	// stopWithin bounds how long Close waits for a sweep that ignores its context.
	stopWithin = time.Second
)

// sweeper sweeps a store in the background.
type sweeper struct {
	every  time.Duration
	log    *slog.Logger
	tell   store.Observer // nil: nobody
	sweep  func(ctx context.Context, max int) (removed int, err error)
	info   func() store.Info // of the store
	asked  func() int64      // how many ops the store got; nil: it has no wrappers
	cancel context.CancelFunc
	done   chan struct{}   // closed when the goroutine has ended; nil: there is none
	failed map[string]bool // classes of errors since the last success; the goroutine's own
	since  int64           // what asked returned before the last sweep; the goroutine's own

	mu    sync.Mutex
	stats Stats // the counts of sweeps; guarded by mu
}

// start starts the goroutine, unless there shall be none.
func (w *sweeper) start(sweep func(context.Context, int) (int, error), c *Config) {
	w.every, w.log, w.tell, w.sweep, w.cancel = c.SweepEvery, c.Logger, c.Observer, sweep, func() {}
	if w.every < 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel, w.done, w.failed = cancel, make(chan struct{}), map[string]bool{}
	sched.Go(func() { w.run(ctx) })
}

// stop ends the goroutine. It does not wait long for a sweep that goes on though its
// context has ended.
func (w *sweeper) stop() {
	w.cancel()
	if w.done == nil {
		return
	}
	sched.Wait(stopWithin, w.done, nil, nil)
}

// run sweeps until its context ends. The first sweep comes within w.every.
func (w *sweeper) run(ctx context.Context) {
	defer close(w.done)
	pause := sched.N(w.every)
	for failures := 0; ; {
		if !w.wait(ctx, pause, failures == 0) {
			return
		}
		begin, passes := sched.Now(), w.info().Passes
		removed, err := w.once(ctx)
		took, more := sched.Since(begin), removed >= sweepMax
		if i := w.info(); i.Partial && i.Passes == passes {
			more = true
		}
		if ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
			return
		}
		w.report(err)
		if err == nil {
			failures = 0
		} else {
			failures++
		}
		pause = w.pause(removed, failures, took, more)
	}
}

// wait waits for a pause, and reports whether the context is still alive. If shorter is true, the pause ends early,
// within lookEvery, once the store has got as many ops as a sweep removes. A flood of new keys that begins
// during a long pause is then noticed soon.
func (w *sweeper) wait(ctx context.Context, pause time.Duration, shorter bool) bool {
	for shorter && w.asked != nil && pause > lookEvery {
		if sched.Wait(lookEvery, ctx.Done(), nil, nil) != sched.TimeOut {
			return false
		}
		if pause -= lookEvery; w.asked()-w.since >= sweepMax {
			pause = 0
		}
	}
	if sched.Wait(pause, ctx.Done(), nil, nil) != sched.TimeOut {
		return false
	}
	if w.asked != nil {
		w.since = w.asked()
	}
	return true
}

// once sweeps once.
func (w *sweeper) once(ctx context.Context) (removed int, err error) {
	ctx, cancel := sched.WithTimeout(ctx, sweepWithin)
	defer cancel()
	begin := sched.Now()
	removed, err = w.sweep(ctx, sweepMax)
	if w.tell != nil && !errors.Is(err, context.Canceled) {
		w.tell.Swept(store.Sweep{Removed: removed, Full: removed >= sweepMax, Took: sched.Since(begin), Err: err})
	}
	return removed, err
}

// pause returns the time until the next sweep, after failures in a row. more says that the last one has
// left something that it did not look at.
func (w *sweeper) pause(removed, failures int, took time.Duration, more bool) time.Duration {
	mean := w.every
	switch {
	case failures == 0 && more:
		share, least := float64(maxShare), shortPause
		if removed > 0 {
			share = min(max(sweepMax/float64(removed)-1, minShare), maxShare)
		}
		if removed >= sweepMax {
			least = leastPause
		}
		mean = min(mean, max(time.Duration(share*float64(took)), least))
	case failures > 0:
		longest := max(w.every, longestBackOff)
		for mean < longest && failures > 0 {
			mean, failures = 2*mean, failures-1
		}
		mean = min(mean, longest)
	}
	return mean/2 + sched.N(mean)
}

// count counts a sweep. One that was broken off does not count.
func (w *sweeper) count(removed int, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Sweeps++
	w.stats.Swept += int64(removed)
	w.stats.LastSweep, w.stats.LastSweepError = sched.Wall(), err
	if err != nil {
		w.stats.SweepErrors++
	}
}

// report logs an error if it is the first of its class since the last success.
func (w *sweeper) report(err error) {
	log := cmp.Or(w.log, slog.Default())
	if err == nil {
		if len(w.failed) > 0 {
			log.Info("headgate: dead keys are removed again")
			clear(w.failed)
		}
		return
	}
	class := "other"
	if c := store.Class(err); c != nil {
		class = c.Error()
	}
	if !w.failed[class] {
		w.failed[class] = true
		log.Warn("headgate: dead keys cannot be removed", "class", class, "error", err)
	}
}
