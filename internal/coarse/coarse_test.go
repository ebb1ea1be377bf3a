package coarse_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/coarse"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestTheCoarseClockLagsAndEndsByItself checks that a clock with many readers lags by a millisecond at most, never goes
// back, and ends its goroutine when nobody reads it.
func TestTheCoarseClockLagsAndEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c coarse.Clock
		laggingReads, lastRead := 0, int64(0)
		for range 20 {
			for range 200 {
				now, exact := c.Read()
				clock := store.SystemClock()
				if now > clock || now < clock-1000 || exact && now != clock || now < lastRead {
					t.Fatalf("got %d, exact %v, at %d, after %d", now, exact, clock, lastRead)
				}
				if lastRead = now; now < clock {
					laggingReads++
				}
			}
			time.Sleep(700 * time.Microsecond)
		}
		if laggingReads == 0 {
			t.Error("each of many reads was exact, want some that lag")
		}
		time.Sleep(100 * time.Millisecond) // a goroutine that is left after the test fails it
		if _, exact := c.Read(); !exact {
			t.Error("got a read that lags, want an exact one as the goroutine has ended")
		}
	})
}

func TestTheCoarseClockIsExactForRareReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c coarse.Clock
		for range 200 {
			if _, exact := c.Read(); !exact {
				t.Fatal("a read after 2 ms lags, want it exact")
			}
			time.Sleep(2 * time.Millisecond)
		}
	})
}
