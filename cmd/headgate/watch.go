package main

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// watchEvery is the mean time between two questions whether the store is well.
const watchEvery = 10 * time.Second

// writeWithin is how long the store may take to write one key.
const writeWithin = 10 * time.Second

// watch lets the store write in the background once it is open, at moments that differ
// between servers, so that a failure is noticed while no request comes in. It also says
// when the sweeper of the store fails though the store is well.
func watch(ctx context.Context, s store.Store, opened <-chan struct{}, healthy func(context.Context) error,
	state *condition,
) {
	select {
	case <-opened:
	case <-ctx.Done():
		return
	}
	sweeping := &condition{
		log: state.log, store: state.store,
		ill: "dead keys cannot be removed, the store decides and writes", well: "dead keys are removed again",
	}
	var since time.Time // the store is well; zero: it is not
	for {
		pause := watchEvery/2 + rand.N(watchEvery)
		soon, cancel := context.WithTimeout(ctx, writeWithin)
		err := healthy(soon)
		cancel()
		if ctx.Err() != nil {
			return
		}
		state.is(err)
		if err != nil {
			since = time.Time{}
			pause /= 5 // its return is to be noticed soon
		} else {
			if since.IsZero() {
				since = time.Now()
			}
			if f, ok := store.As[*front.Store](s); ok {
				// A sweep that failed while the store was away says nothing more.
				if st := f.Stats(); st.LastSweepError == nil || st.LastSweep.After(since) {
					sweeping.is(st.LastSweepError) // perhaps a right is missing
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// condition is how the store is, for the log: one line for each change. The zero
// condition, with a log, is well. It is safe for concurrent use.
type condition struct {
	log       *slog.Logger
	store     string // as people may see it
	ill, well string // the messages; empty: that it is not available, and is again

	mu    sync.Mutex
	wrong string    // what is wrong, without numbers; empty: nothing
	since time.Time // something is
}

// is notes how the store is; nil: well.
func (c *condition) is(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch wrong := unnumbered(err); {
	case wrong == c.wrong:
	case err == nil:
		c.log.Info(cmp.Or(c.well, "the store is available"), "store", c.store, "after",
			time.Since(c.since).Round(time.Millisecond))
		c.wrong = ""
	default:
		if c.wrong == "" {
			c.since = time.Now()
		}
		c.log.Warn(cmp.Or(c.ill, "the store is not available"), "store", c.store, "error", err)
		c.wrong = wrong
	}
}

// unnumbered is the text of an error without numbers, such as a port or a delay, which
// differ each time.
func unnumbered(err error) string {
	if err == nil {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, err.Error())
}
