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

func TestTheCoarseClockLagsAndEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c coarse.Clock
		lagging, last := 0, int64(0)
		for range 20 {
			for range 200 {
				now, exact := c.Read()
				clock := store.SystemClock()
				if now > clock || now < clock-1000 || exact && now != clock || now < last {
					t.Fatalf("%d (exact: %v) after %d, read at %d", now, exact, last, clock)
				}
				if last = now; now < clock {
					lagging++
				}
			}
			time.Sleep(700 * time.Microsecond)
		}
		if lagging == 0 {
			t.Error("many readers, and each has read the system clock")
		}
		time.Sleep(100 * time.Millisecond) // a goroutine that is left after the test fails it
		if _, exact := c.Read(); !exact {
			t.Error("the goroutine goes on for no reader")
		}
	})
}

func TestTheCoarseClockIsExactForRareReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c coarse.Clock
		for range 200 {
			if _, exact := c.Read(); !exact {
				t.Fatal("a goroutine for one reader in two milliseconds")
			}
			time.Sleep(2 * time.Millisecond)
		}
	})
}
