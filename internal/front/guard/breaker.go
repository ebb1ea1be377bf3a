package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/store"
)

// The breaker opens after maxFailures failures without a success between them, and then lets one decision call the
// store per probeInterval.
const (
	maxFailures   = 5
	probeInterval = 500 * time.Millisecond
)

// breaker is a circuit breaker. It reads the time from package sched, so that simulations can be repeated; the
// libraries that were considered read package time.
type breaker struct {
	open      atomic.Bool
	successes atomic.Int64    // number of calls that have succeeded
	onTurn    func(err error) // called when the breaker opens, with an error, and closes, with nil; never in parallel

	notifyMu sync.Mutex // is taken before mu
	reported bool       // the state of open that onTurn was last called with; guarded by notifyMu

	mu            sync.Mutex
	failuresInRow int
	lastErr       error     // error of the last failure
	failureRound  int64     // value of successes to which failuresInRow belongs
	nextProbe     time.Time // when the store may be called again, while open
	probing       bool      // a probe is under way
}

// attempt is a call of the store.
type attempt struct {
	successes int64 // value of breaker.successes when the call began
	probe     bool  // the breaker was open: its result decides when the store is called next
}

// begin reports whether the store may be called. While the breaker is open, that is a probe, one at a time.
func (b *breaker) begin() (t attempt, ok bool) {
	t.successes = b.successes.Load()
	if !b.open.Load() {
		return t, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open.Load():
		return t, true
	case b.probing || sched.Until(b.nextProbe) > 0:
		return t, false
	}
	b.probing, t.probe = true, true
	return t, true
}

// finish records the result of a call: err if the store seems to be away, else nil.
//
// A failure counts only if no call has succeeded since the failed call began. So a locked row does not open the breaker
// while other calls are answered. Failures before a success do not count any more.
func (b *breaker) finish(t attempt, err error) {
	if err == nil {
		b.successes.Add(1)
		if t.probe || b.open.Load() {
			b.recordSuccess(t)
		}
		return
	}
	b.mu.Lock()
	opened := false
	switch {
	case t.probe:
		b.probing, b.nextProbe, b.lastErr = false, sched.Now().Add(probeInterval), err
	case b.successes.Load() != t.successes, errors.Is(err, context.Canceled):
	default:
		if b.failureRound != t.successes {
			b.failuresInRow, b.failureRound = 0, t.successes
		}
		b.failuresInRow++
		b.lastErr = err
		if b.failuresInRow >= maxFailures && !b.open.Load() {
			b.open.Store(true)
			b.nextProbe, opened = sched.Now().Add(probeInterval), true
		}
	}
	b.mu.Unlock()
	if opened {
		b.notify()
	}
}

// notify calls onTurn if the breaker has opened or closed since the last call.
func (b *breaker) notify() {
	b.notifyMu.Lock()
	defer b.notifyMu.Unlock()
	b.mu.Lock()
	open, err := b.open.Load(), b.lastErr
	b.mu.Unlock()
	if open == b.reported {
		return
	}
	if b.reported = open; !open {
		err = nil
	}
	b.onTurn(err)
}

// recordSuccess closes the breaker, and ends the probe if t was one.
func (b *breaker) recordSuccess(t attempt) {
	b.mu.Lock()
	wasOpen := b.open.Swap(false)
	b.failuresInRow, b.probing = 0, b.probing && !t.probe
	b.mu.Unlock()
	if wasOpen {
		b.notify()
	}
}

// awayErr returns the error of a decision for which the store was not called. Its class is store.ErrUnavailable, since
// nothing was done, or store.ErrNoSpace if the last error was that.
func (b *breaker) awayErr() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	class := store.ErrUnavailable
	if errors.Is(store.Class(b.lastErr), store.ErrNoSpace) {
		class = store.ErrNoSpace
	}
	return fmt.Errorf("%w: it was not asked, since it is away: %s", class, b.lastErr.Error())
}
