// Package await lets tests wait for a condition, instead of sleeping for as long as it should take.
//
// Each function fails its test after [Patience], which does not measure speed: it only ends a test that would hang.
package await

import (
	"errors"
	"testing"
	"time"
)

// Patience is how long a test waits before it fails: some hundred times what the slowest wait took beside eight busy
// loops.
const Patience = 2 * time.Minute

// Until returns once condition reports true. It calls condition often, in the goroutine of the test.
func Until(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	NoError(tb, what, func() error {
		if !condition() {
			return errors.New("not yet")
		}
		return nil
	})
}

// NoError returns once check returns no error. After [Patience] the test fails with the last error.
func NoError(tb testing.TB, what string, check func() error) {
	tb.Helper()
	pause := 50 * time.Microsecond
	for begin := time.Now(); ; time.Sleep(pause) {
		err := check()
		if err == nil {
			return
		}
		if time.Since(begin) > Patience {
			tb.Fatalf("waited %v for %s: %v", Patience, what, err)
		}
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// Receive returns the next value from a channel, or the zero value once it is closed.
func Receive[T any](tb testing.TB, what string, channel <-chan T) T {
	tb.Helper()
	select {
	case v := <-channel:
		return v
	case <-time.After(Patience):
		tb.Fatalf("waited %v for %s", Patience, what)
		panic("unreachable")
	}
}
