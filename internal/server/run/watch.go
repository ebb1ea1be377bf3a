package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// probeTimeout is how long the store may take for a probe.
const probeTimeout = 10 * time.Second

// watch probes the store in the background once it is open, so that a failure is noticed while no request comes in.
// Its pauses are random, with every as their mean, so that servers do not probe at the same time. It probes sooner
// while the store is away, and when requests have found the store away or back. It also reports failures of the store's
// sweeper while the store itself is available.
func watch(ctx context.Context, s store.Store, opened <-chan struct{}, healthy func(context.Context) error,
	state *condition, every time.Duration,
) {
	select {
	case <-opened:
	case <-ctx.Done():
		return
	}
	sweeping := newCondition(state.log, state.store)
	sweeping.failure = "dead keys cannot be removed, the store decides and writes"
	sweeping.recovery = "dead keys are removed again"
	var since time.Time // when the store became available; zero: it is not
	for {
		probeCtx, cancel := context.WithTimeout(ctx, probeTimeout)
		err := healthy(probeCtx)
		cancel()
		if ctx.Err() != nil {
			return
		}
		state.recordProbe(err)
		pause := every/2 + rand.N(every)
		if state.failing() {
			since = time.Time{}
			pause /= 10 // to notice soon when the store is back
		} else {
			if since.IsZero() {
				since = time.Now()
			}
			if f, ok := store.As[*front.Store](s); ok {
				// Ignore a sweep that failed while the store was away.
				if st := f.Stats(); st.LastSweepError == nil || st.LastSweep.After(since) {
					sweeping.recordProbe(st.LastSweepError) // such as a missing permission
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-state.probeSoon:
		case <-time.After(pause):
		}
	}
}

// condition is the state of the store, for the log: it logs a line with the reason at the start of a failure, and a
// line at the recovery. During a failure it logs another line only for a reason that needs another remedy. It is safe
// for concurrent use.
type condition struct {
	log               *slog.Logger
	store             string        // the store's name for people
	failure, recovery string        // messages
	onChange          func(string)  // called with the failure and its reason, and with an empty text at the recovery
	probeSoon         chan struct{} // receives when requests find the store away, or back

	mu            sync.Mutex
	probeErr      error        // of the server's last probe
	requestErr    error        // of requests, through the guard
	reason        string       // of the current failure, as reasonOf returns it; empty: no failure
	loggedErr     error        // the error that was logged with reason
	since         time.Time    // start of the current failure
	degraded      func() int64 // counts all decisions that were made without the store
	degradedStart int64        // degraded at the start of the current failure
}

// newCondition returns the condition of a store that is available.
func newCondition(log *slog.Logger, storeName string) *condition {
	return &condition{
		log: log, store: storeName, failure: "the store is not available", recovery: "the store is available",
		onChange: func(string) {}, probeSoon: make(chan struct{}, 1), degraded: func() int64 { return 0 },
	}
}

// setCounter sets the function that counts decisions without the store.
func (c *condition) setCounter(degraded func() int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.degraded = degraded
}

// recordProbe records the result of a probe.
func (c *condition) recordProbe(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probeErr = err
	c.report()
}

// recordRequest records that requests found the store away, or back if err is nil.
func (c *condition) recordRequest(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requestErr = err
	c.report()
	c.requestProbe()
}

// failing reports whether there is a failure.
func (c *condition) failing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason != ""
}

// away describes the current failure for people; nil: none. err is the error of a request that has just failed, or nil:
// that request may be the first to find the store away.
func (c *condition) away(err error) *api.Away {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.reason != "":
		return api.NewAway(c.store, c.since, c.loggedErr)
	case err == nil:
		return nil
	}
	c.requestProbe()
	return api.NewAway(c.store, time.Now(), err)
}

// requestProbe makes watch probe the store soon.
func (c *condition) requestProbe() {
	select {
	case c.probeSoon <- struct{}{}:
	default:
	}
}

// report logs a change of the condition. The caller holds mu.
func (c *condition) report() {
	err := cmp.Or(c.probeErr, c.requestErr)
	switch reason := reasonOf(err); {
	case reason == c.reason:
	case err == nil:
		args := []any{"store", c.store, "after", time.Since(c.since).Round(time.Millisecond)}
		if n := c.degraded() - c.degradedStart; n > 0 {
			args = append(args, "answered_without_it", n)
		}
		c.log.Info(c.recovery, args...)
		c.reason = ""
		c.onChange("")
	default:
		if c.reason == "" {
			c.since, c.degradedStart = time.Now(), c.degraded()
		}
		c.log.Warn(c.failure, "store", c.store, "error", err)
		c.reason, c.loggedErr = reason, err
		c.onChange(fmt.Sprintf("%s: %v", c.failure, err))
	}
}

// reasonOf returns the same text for errors that need the same remedy. All errors of a server that does not answer have
// the same reason. The reason of another error is its text without digits, since a port or a delay differs each time.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	if class := store.Class(err); class != nil && (errors.Is(class, store.ErrUnavailable) ||
		errors.Is(class, store.ErrUnknownOutcome) || errors.Is(class, store.ErrConflict)) {
		return "away"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, err.Error())
}
