package guard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/sched"
)

// The breaker opens after this many failures without a success between them, and lets one decision ask the
// store after each pause.
const (
	failures = 5
	pause    = 500 * time.Millisecond
)

// breaker is a circuit breaker. It reads the time from package sched, and not from package time as the
// libraries do that were considered, so that simulations with it can be repeated.
type breaker struct {
	open      atomic.Bool
	successes atomic.Int64
	turned    func(err error) // called when it opens, and with nil when it closes; one call after the other

	telling  sync.Mutex // is taken before mu
	reported bool       // turned was last called with open; guarded by telling

	mu       sync.Mutex
	failed   int       // failures in a row
	last     error     // of them
	answered int64     // successes when the last of them was counted
	next     time.Time // when the store may be tried again; if it is open
	probing  bool      // a trial is under way
}

// turn is a call of the store.
type turn struct {
	successes int64 // of all, when the trial began
	probe     bool
}

// enter reports whether the store may be called.
func (b *breaker) enter() (t turn, ok bool) {
	t.successes = b.successes.Load()
	if !b.open.Load() {
		return t, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open.Load():
		return t, true
	case b.probing || sched.Until(b.next) > 0:
		return t, false
	}
	b.probing, t.probe = true, true
	return t, true
}

// leave notes what came of a question: err if the store seems to be away, else nil.
//
// A failure counts only if the store has answered nobody since the question was asked. So a
// row that somebody locks does not open the breaker while others are answered. Failures before an answer
// count no more.
func (b *breaker) leave(t turn, err error) {
	if err == nil {
		b.successes.Add(1)
		if t.probe || b.open.Load() {
			b.close(t)
		}
		return
	}
	b.mu.Lock()
	opened := false
	switch {
	case t.probe:
		b.probing, b.next, b.last = false, sched.Now().Add(pause), err
	case b.successes.Load() != t.successes, errors.Is(err, context.Canceled):
	default:
		if b.answered != t.successes {
			b.failed, b.answered = 0, t.successes
		}
		b.failed++
		b.last = err
		if b.failed >= failures && !b.open.Load() {
			b.open.Store(true)
			b.next, opened = sched.Now().Add(pause), true
		}
	}
	b.mu.Unlock()
	if opened {
		b.tell()
	}
}

// tell calls turned if the state of the breaker is not that of the last call.
func (b *breaker) tell() {
	b.telling.Lock()
	defer b.telling.Unlock()
	b.mu.Lock()
	open, err := b.open.Load(), b.last
	b.mu.Unlock()
	if open == b.reported {
		return
	}
	if b.reported = open; !open {
		err = nil
	}
	b.turned(err)
}

// close notes that the store has answered.
func (b *breaker) close(t turn) {
	b.mu.Lock()
	was := b.open.Swap(false)
	b.failed, b.probing = 0, b.probing && !t.probe
	b.mu.Unlock()
	if was {
		b.tell()
	}
}

// away returns the error of a decision for which the store was not called.
func (b *breaker) away() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return errAway(b.last)
}
