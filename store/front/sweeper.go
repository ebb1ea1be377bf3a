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
	// sweepTimeout bounds one sweep, so that a silent server does not hold the sweeper for ever.
	sweepTimeout = 30 * time.Second
	// The pause after a sweep that did not reach the end is minPauseFactor to maxPauseFactor times as long as the
	// sweep: the more of the rows were dead, the shorter. So a flood of new keys is removed as fast as it came, and a
	// table of live keys costs a twentieth of a connection.
	minPauseFactor, maxPauseFactor = 0.02, 19
	// minFullPause is the shortest of these pauses if the sweep removed as many rows as it may, else minPartialPause.
	minFullPause    = time.Millisecond
	minPartialPause = 50 * time.Millisecond
	// checkInterval is how often the sweeper checks, in a longer pause, how many ops the store got.
	checkInterval = time.Second
	// maxBackOff is the longest pause after an error, unless SweepEvery is longer.
	maxBackOff = time.Minute
	// stopTimeout bounds how long Close waits for a sweep that ignores its context.
	stopTimeout = time.Second
)

// sweeper sweeps a store in the background.
type sweeper struct {
	interval      time.Duration // Config.SweepEvery
	log           *slog.Logger
	observer      store.Observer // may be nil
	sweep         func(ctx context.Context, max int) (removed int, err error)
	info          func() store.Info // returns the Info of the store
	opCount       func() int64      // returns how many ops the store got; nil: the store has no wrappers
	cancel        context.CancelFunc
	done          chan struct{}   // closed when the goroutine has ended; nil: there is no goroutine
	loggedClasses map[string]bool // classes of errors since the last success; only the goroutine uses it
	opsBefore     int64           // result of opCount before the last sweep; only the goroutine uses it

	mu    sync.Mutex
	stats Stats // the counts of sweeps; guarded by mu
}

// start starts the goroutine, unless SweepEvery is below 0.
func (w *sweeper) start(sweep func(context.Context, int) (int, error), c *Config) {
	w.interval, w.log, w.observer, w.sweep, w.cancel = c.SweepEvery, c.Logger, c.Observer, sweep, func() {}
	if w.interval < 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel, w.done, w.loggedClasses = cancel, make(chan struct{}), map[string]bool{}
	sched.Go(func() { w.run(ctx) })
}

// stop ends the goroutine. It waits for it, but at most for stopTimeout.
func (w *sweeper) stop() {
	w.cancel()
	if w.done == nil {
		return
	}
	sched.Wait(stopTimeout, w.done, nil, nil)
}

// run sweeps until its context ends. The first sweep comes within w.interval.
func (w *sweeper) run(ctx context.Context) {
	defer close(w.done)
	pause := sched.N(w.interval)
	for failures := 0; ; {
		if !w.wait(ctx, pause, failures == 0) {
			return
		}
		begin, passes := sched.Now(), w.info().Passes
		removed, err := w.sweepOnce(ctx)
		took, incomplete := sched.Since(begin), removed >= maxSweepRows
		if i := w.info(); i.Partial && i.Passes == passes {
			incomplete = true
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
		pause = w.nextPause(removed, failures, took, incomplete)
	}
}

// wait waits for a pause, and reports whether the context is still alive. If mayShorten is true, the pause ends early,
// within checkInterval, once the store has got as many ops as a sweep removes. A flood of new keys that begins during a
// long pause is then noticed soon.
func (w *sweeper) wait(ctx context.Context, pause time.Duration, mayShorten bool) bool {
	for mayShorten && w.opCount != nil && pause > checkInterval {
		if sched.Wait(checkInterval, ctx.Done(), nil, nil) != sched.TimeOut {
			return false
		}
		if pause -= checkInterval; w.opCount()-w.opsBefore >= maxSweepRows {
			pause = 0
		}
	}
	if sched.Wait(pause, ctx.Done(), nil, nil) != sched.TimeOut {
		return false
	}
	if w.opCount != nil {
		w.opsBefore = w.opCount()
	}
	return true
}

// sweepOnce sweeps once, and reports it to the observer.
func (w *sweeper) sweepOnce(ctx context.Context) (removed int, err error) {
	ctx, cancel := sched.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	begin := sched.Now()
	removed, err = w.sweep(ctx, maxSweepRows)
	if w.observer != nil && !errors.Is(err, context.Canceled) {
		took := sched.Since(begin)
		w.observer.Swept(store.Sweep{Removed: removed, Full: removed >= maxSweepRows, Took: took, Err: err})
	}
	return removed, err
}

// nextPause returns the time until the next sweep, after failures in a row. incomplete is true if the last sweep did
// not look at all rows.
func (w *sweeper) nextPause(removed, failures int, took time.Duration, incomplete bool) time.Duration {
	mean := w.interval
	switch {
	case failures == 0 && incomplete:
		factor, minPause := float64(maxPauseFactor), minPartialPause
		if removed > 0 {
			factor = min(max(maxSweepRows/float64(removed)-1, minPauseFactor), maxPauseFactor)
		}
		if removed >= maxSweepRows {
			minPause = minFullPause
		}
		mean = min(mean, max(time.Duration(factor*float64(took)), minPause))
	case failures > 0:
		maxPause := max(w.interval, maxBackOff)
		for mean < maxPause && failures > 0 {
			mean, failures = 2*mean, failures-1
		}
		mean = min(mean, maxPause)
	}
	return mean/2 + sched.N(mean)
}

// count counts a sweep, unless it was canceled.
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
		if len(w.loggedClasses) > 0 {
			log.Info("headgate: dead keys are removed again")
			clear(w.loggedClasses)
		}
		return
	}
	class := "other"
	if c := store.Class(err); c != nil {
		class = c.Error()
	}
	if !w.loggedClasses[class] {
		w.loggedClasses[class] = true
		log.Warn("headgate: dead keys cannot be removed", "class", class, "error", err)
	}
}
