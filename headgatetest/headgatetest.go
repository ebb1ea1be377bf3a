// Package headgatetest is for tests of programs that use headgate.
//
// Run calls a test with a limiter in a bubble of testing/synctest. All time there is the
// bubble's: that of decisions, of waiting, of leases, of timers and of the deadlines of
// contexts. It stands still while anything runs, and jumps ahead when everything waits. So a
// Wait of an hour returns at once, an hour later.
//
// A bubble has no network. A test with servers of its own cannot run in one; give the
// memory store of such a test a clock by memory.Config.Clock, which moves decisions alone.
package headgatetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// Run calls f with a limiter over an empty memory store, in a bubble. Time begins at
// midnight UTC of 2000-01-01. The store is closed when f has returned; goroutines that f
// has started must have ended then, as [synctest.Test] demands.
func Run(t *testing.T, f func(t *testing.T, l *headgate.Limiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(nil)
		defer s.Close()
		f(t, headgate.New(s, nil))
	})
}

// Advance moves time ahead by d, and lets everything happen that happens until then:
// windows end, tokens come, waits and leases are over. Call it in a bubble; outside of one
// it sleeps.
func Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
