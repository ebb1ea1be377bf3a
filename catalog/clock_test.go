package catalog

import (
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/store/memory"
)

// settableScheduler is a sched.Simulator whose wall clock a test can set. Its Wait never times out.
type settableScheduler struct{ wallOffset time.Duration }

func (m *settableScheduler) Go(f func()) { go f() }

func (m *settableScheduler) Wait(_ time.Duration, a, b, c <-chan struct{}) int {
	select {
	case <-a:
		return 0
	case <-b:
		return 1
	case <-c:
		return 2
	}
}

func (m *settableScheduler) Yield()                                      {}
func (m *settableScheduler) Now() time.Time                              { return time.Now() }
func (m *settableScheduler) Wall() time.Time                             { return time.Now().Add(m.wallOffset) }
func (m *settableScheduler) TimerDuration(d time.Duration) time.Duration { return d }
func (m *settableScheduler) Uint64() uint64                              { return 0 }

func (m *settableScheduler) Hash(v any) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, v)
	return h.Sum64()
}

// TestAnOverrideLastsWhenTheWallClockIsSet sets the machine's wall clock ahead and back by more than a day after the
// catalog was read. An override of a minute must stay in force: by the store's clock its end still lies ahead.
func TestAnOverrideLastsWhenTheWallClockIsSet(t *testing.T) {
	scheduler := &settableScheduler{}
	sched.Simulate(scheduler)
	defer sched.Simulate(nil)
	storeTime := time.Now()
	s := memory.New(&memory.Config{Clock: storeTime.UnixMicro})
	c, err := Read(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() // the last look-up reads the clock once more after its answer
	base, err := headgate.ParseNamed("login", "token-bucket 1/1s")
	if err != nil {
		t.Fatal(err)
	}
	overrideLimit, err := headgate.ParseNamed("login", "fixed-window 7/1h")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Set(t.Context(), By{}, Definition{Limit: base}); err != nil {
		t.Fatal(err)
	}
	override := Override{Limit: overrideLimit, Key: "bob", Until: storeTime.Add(time.Minute)}
	if _, err := c.Override(t.Context(), By{}, override); err != nil {
		t.Fatal(err)
	}
	for _, wallOffset := range []time.Duration{0, 26 * time.Hour, -26 * time.Hour} {
		scheduler.wallOffset = wallOffset
		l, err := c.Find(t.Context(), "login", "bob")
		if err != nil || l.String() != overrideLimit.String() {
			t.Errorf("the wall clock is set by %s: got %s, %v; want %s", wallOffset, l, err, overrideLimit)
		}
		if got := c.Now(); got.Sub(storeTime).Abs() > 30*time.Second {
			t.Errorf("the wall clock is set by %s: got store time %s, want %s", wallOffset, got, storeTime)
		}
	}
}
