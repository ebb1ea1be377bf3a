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

// writeWithin is how long the store may take to write one key.
const writeWithin = 10 * time.Second

// watch lets the store write in the background once it is open, at moments that differ between servers and are so far
// apart on average, so that a failure is noticed while no request comes in. While something is wrong, and when requests
// have found the store away or back, it does so soon. It also says when the sweeper of the store fails though the store
// is well.
func watch(ctx context.Context, s store.Store, opened <-chan struct{}, healthy func(context.Context) error,
	state *condition, every time.Duration,
) {
	select {
	case <-opened:
	case <-ctx.Done():
		return
	}
	sweeping := newCondition(state.log, state.store)
	sweeping.ill = "dead keys cannot be removed, the store decides and writes"
	sweeping.well = "dead keys are removed again"
	var since time.Time // the store is well; zero: it is not
	for {
		soon, cancel := context.WithTimeout(ctx, writeWithin)
		err := healthy(soon)
		cancel()
		if ctx.Err() != nil {
			return
		}
		state.note(err)
		pause := every/2 + rand.N(every)
		if state.wrong() {
			since = time.Time{}
			pause /= 10 // its return is to be noticed soon
		} else {
			if since.IsZero() {
				since = time.Now()
			}
			if f, ok := store.As[*front.Store](s); ok {
				// A sweep that failed while the store was away says nothing more.
				if st := f.Stats(); st.LastSweepError == nil || st.LastSweep.After(since) {
					sweeping.note(st.LastSweepError) // perhaps a right is missing
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-state.turned:
		case <-time.After(pause):
		}
	}
}

// condition is how the store is, for the log: a line with the reason when something is wrong,
// and one when nothing is any more. While something is wrong, a line comes only for a reason
// about which something else has to be done. It is safe for concurrent use.
type condition struct {
	log       *slog.Logger
	store     string        // as people may see it
	ill, well string        // the messages
	heard     func(string)  // gets the message, and an empty one once all is well
	turned    chan struct{} // is sent to when requests find the store away, or back

	mu       sync.Mutex
	probed   error        // what is wrong by what this server has tried last; nil: nothing
	asked    error        // what is wrong by the requests; nil: nothing
	reason   string       // that was logged; empty: nothing is wrong
	why      error        // what was logged with it
	since    time.Time    // something is
	without  func() int64 // how many decisions were made without the store, in all
	answered int64        // of them, before something was wrong
}

func newCondition(log *slog.Logger, at string) *condition {
	return &condition{
		log: log, store: at, ill: "the store is not available", well: "the store is available",
		heard: func(string) {}, turned: make(chan struct{}, 1), without: func() int64 { return 0 },
	}
}

// countBy sets how to count decisions without the store.
func (c *condition) countBy(without func() int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.without = without
}

// note records the result of an attempt of this server to use the store.
func (c *condition) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probed = err
	c.report()
}

// turn notes that requests found the store away, or back: nil.
func (c *condition) turn(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = err
	c.report()
	c.look()
}

// wrong reports whether anything is wrong.
func (c *condition) wrong() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason != ""
}

// away says what is wrong, for people; nil: nothing. err is that of a request which has just failed, nil for none: it
// may be the first to find the store away.
func (c *condition) away(err error) *api.Away {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.reason != "":
		return api.NewAway(c.store, c.since, c.why)
	case err == nil:
		return nil
	}
	c.look()
	return api.NewAway(c.store, time.Now(), err)
}

// look lets watch look at the store soon.
func (c *condition) look() {
	select {
	case c.turned <- struct{}{}:
	default:
	}
}

// report logs what has changed. The caller holds mu.
func (c *condition) report() {
	err := cmp.Or(c.probed, c.asked)
	switch reason := reasonOf(err); {
	case reason == c.reason:
	case err == nil:
		args := []any{"store", c.store, "after", time.Since(c.since).Round(time.Millisecond)}
		if n := c.without() - c.answered; n > 0 {
			args = append(args, "answered_without_it", n)
		}
		c.log.Info(c.well, args...)
		c.reason = ""
		c.heard("")
	default:
		if c.reason == "" {
			c.since, c.answered = time.Now(), c.without()
		}
		c.log.Warn(c.ill, "store", c.store, "error", err)
		c.reason, c.why = reason, err
		c.heard(fmt.Sprintf("%s: %v", c.ill, err))
	}
}

// reasonOf returns the same text for errors about which the same has to be done. The many ways in
// which a server does not answer are one reason. Others are distinguished by their text, without
// numbers, such as a port or a delay, which differ each time.
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
