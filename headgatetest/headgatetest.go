// Package headgatetest is for tests of programs that use headgate.
//
// Run calls a test with a limiter in a bubble of testing/synctest. The bubble has its own time for decisions, waits,
// leases, timers and the deadlines of contexts. Its time stands still while any goroutine runs, and jumps ahead when
// all wait. So a Wait of an hour returns at once, an hour later.
//
// A bubble has no network, so a test with servers of its own cannot run in one. Give the memory store of such a test a
// clock with memory.Config.Clock, which only affects decisions.
package headgatetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// Run calls the test f with a limiter over an empty memory store, in a bubble whose time begins at midnight UTC of
// 2000-01-01. Run closes the store after f has returned. Goroutines that f has started must have ended by then, as
// [synctest.Test] demands.
func Run(t *testing.T, f func(t *testing.T, l *headgate.Limiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(nil)
		defer s.Close()
		f(t, headgate.New(s, nil))
	})
}

// Advance moves the bubble's time ahead by d, with all that happens until then: windows end, tokens come, waits and
// leases end. Call it in a bubble; outside of one it sleeps.
func Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
