// Package sched wraps goroutines, waiting, sleeping, clocks and random numbers for the Limiter, the wrappers, the
// memory store, the catalog and the client, so that a test can simulate them.
//
// In a program each function only calls the standard library. A simulator (package sim) replaces them by [Simulate]: it
// lets one goroutine run at a time, in an order that one seed decides, in virtual time. So the packages named above
// have no go statement, no select statement and no timer of their own; a test of package housetest checks it.
//
// Locks that are held for a moment, atomics and closing a channel are not wrapped: while one goroutine runs at a time
// they do not affect the order.
package sched

import (
	"context"
	crand "crypto/rand"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"strconv"
	"time"
)

// Simulator takes over what a program leaves to the runtime and the system.
type Simulator interface {
	// Go starts f as another goroutine of the running process.
	Go(f func())
	// Wait blocks until one of the channels can be received from, and returns which, or until d has passed, and returns
	// TimeOut. A nil channel is never ready. A d below 0 never passes.
	Wait(d time.Duration, a, b, c <-chan struct{}) int
	// Yield lets other goroutines run.
	Yield()
	// Now returns the time on the process's monotonic clock, which may drift.
	Now() time.Time
	// Wall returns the time on the process's wall clock, which people set.
	Wall() time.Time
	// TimerDuration returns how long a timer of the runtime takes while d passes on the process's clock.
	TimerDuration(d time.Duration) time.Duration
	// Uint64 returns a random number.
	Uint64() uint64
	// Hash returns a hash of a value.
	Hash(v any) uint64
}

// simulator is nil in programs.
var simulator Simulator

// Simulate installs a simulator for this process, nil for none. No other function of this package may run meanwhile.
func Simulate(s Simulator) {
	simulator, HashString = s, maphash.String
	if s != nil {
		HashString = func(_ maphash.Seed, text string) uint64 { return s.Hash(text) }
	}
}

// TimeOut is returned by Wait when the time has passed.
const TimeOut = -1

// Forever is a wait without an end.
const Forever time.Duration = -1

// Go runs f in a goroutine.
func Go(f func()) {
	if simulator != nil {
		simulator.Go(f)
		return
	}
	go f()
}

// Yield lets other goroutines run.
func Yield() {
	if simulator != nil {
		simulator.Yield()
		return
	}
	runtime.Gosched()
}

// Receive blocks until a channel can be received from.
func Receive(a <-chan struct{}) {
	if simulator != nil {
		simulator.Wait(Forever, a, nil, nil)
		return
	}
	<-a
}

// Either receives from a or from b, and reports whether it was a.
func Either(a, b <-chan struct{}) bool {
	if simulator != nil {
		return simulator.Wait(Forever, a, b, nil) == 0
	}
	select {
	case <-a:
		return true
	case <-b:
		return false
	}
}

// Wait receives from one of the channels and returns 0, 1 or 2, or TimeOut after d. A nil channel is never ready. With
// [Forever] there is no time-out; a d of 0 has passed already, so that Wait only looks whether a channel is ready.
func Wait(d time.Duration, a, b, c <-chan struct{}) int {
	if simulator != nil {
		return simulator.Wait(d, a, b, c)
	}
	var end <-chan time.Time
	switch {
	case d == 0:
		return ready(a, b, c)
	case d > 0:
		timer := time.NewTimer(d)
		defer timer.Stop()
		end = timer.C
	}
	select {
	case <-a:
		return 0
	case <-b:
		return 1
	case <-c:
		return 2
	case <-end:
		return TimeOut
	}
}

// ready is Wait without waiting.
func ready(a, b, c <-chan struct{}) int {
	select {
	case <-a:
		return 0
	case <-b:
		return 1
	case <-c:
		return 2
	default:
		return TimeOut
	}
}

// Sleep sleeps for d.
func Sleep(d time.Duration) { Wait(max(d, 0), nil, nil, nil) }

// Now returns the time of the monotonic clock, for measuring durations.
func Now() time.Time {
	if simulator != nil {
		return simulator.Now()
	}
	return time.Now()
}

// Since returns the time that has passed since t, which Now returned.
func Since(t time.Time) time.Duration {
	if simulator != nil {
		return simulator.Now().Sub(t)
	}
	return time.Since(t)
}

// Until returns the time until t, which must derive from Now.
func Until(t time.Time) time.Duration {
	if simulator != nil {
		return t.Sub(simulator.Now())
	}
	return time.Until(t)
}

// Wall returns the time of day.
func Wall() time.Time {
	if simulator != nil {
		return simulator.Wall()
	}
	return time.Now()
}

// WithTimeout returns a context that ends after d on the process's clock.
func WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if simulator != nil {
		d = simulator.TimerDuration(d)
	}
	return context.WithTimeout(ctx, d)
}

// N returns a random duration from 0 up to, but not including, d. It panics if d is not above 0.
func N(d time.Duration) time.Duration {
	if simulator != nil {
		return time.Duration(simulator.Uint64() % uint64(d))
	}
	return rand.N(d)
}

// RandomText returns a random text, which in a program cannot be guessed.
func RandomText() string {
	if simulator != nil {
		return strconv.FormatUint(simulator.Uint64(), 16)
	}
	return crand.Text()
}

// Hash returns a hash of v, which in a program depends on the seed.
func Hash[T comparable](seed maphash.Seed, v T) uint64 {
	if simulator != nil {
		return simulator.Hash(v)
	}
	return maphash.Comparable(seed, v)
}

// HashString hashes a text. It is a variable because a function that checks for a simulator would cost each decision
// of the memory store another call.
var HashString = maphash.String
