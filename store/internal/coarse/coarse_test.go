package coarse_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/leaktest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/coarse"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestTheCoarseClockLagsAndEndsByItself(t *testing.T) {
	defer goleak.VerifyNone(t)
	var c coarse.Clock
	coarse := 0
	var last int64
	begin := time.Now()
	for time.Since(begin) < 50*time.Millisecond || coarse == 0 && time.Since(begin) < time.Minute {
		before := store.SystemClock()
		now, exact := c.Read()
		after := store.SystemClock()
		if now > after || exact && now < before {
			t.Fatalf("%d (exact: %v), read between %d and %d", now, exact, before, after)
		}
		if now < last && last-now < 1_000_000 { // or the machine's clock was set
			t.Fatalf("%d after %d", now, last)
		}
		if last = now; !exact {
			coarse++
		}
	}
	if coarse == 0 {
		t.Error("many readers, and each has read the system clock")
	}
}

func TestTheCoarseClockIsExactForThoseWhoSeldomAsk(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var c coarse.Clock
	for range 20 {
		if _, exact := c.Read(); !exact {
			t.Fatal("a goroutine for one reader in two milliseconds")
		}
		time.Sleep(2 * time.Millisecond)
	}
}
