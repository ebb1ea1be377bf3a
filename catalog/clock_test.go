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

// settableMachine is a scheduler whose wall clock a test can set.
type settableMachine struct{ ahead time.Duration }

func (m *settableMachine) Go(f func()) { go f() }

func (m *settableMachine) Wait(_ time.Duration, a, b, c <-chan struct{}) int {
	select {
	case <-a:
		return 0
	case <-b:
		return 1
	case <-c:
		return 2
	}
}

func (m *settableMachine) Yield()                              {}
func (m *settableMachine) Now() time.Time                      { return time.Now() }
func (m *settableMachine) Wall() time.Time                     { return time.Now().Add(m.ahead) }
func (m *settableMachine) Until(d time.Duration) time.Duration { return d }
func (m *settableMachine) Uint64() uint64                      { return 0 }

func (m *settableMachine) Hash(v any) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, v)
	return h.Sum64()
}

// TestAnOverrideLastsThoughTheMachinesClockIsSet sets the machine's clock far beyond the end of an override after the
// catalog was read. By the store's clock the end still lies ahead.
func TestAnOverrideLastsThoughTheMachinesClockIsSet(t *testing.T) {
	m := &settableMachine{}
	sched.Simulate(m)
	defer sched.Simulate(nil)
	at := time.Now()
	s := memory.New(&memory.Config{Clock: at.UnixMicro})
	c, err := Read(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.keys.close() // the last look-up reads the clock once more after its answer
	base, err := headgate.ParseNamed("login", "token-bucket 1/1s")
	if err != nil {
		t.Fatal(err)
	}
	other, err := headgate.ParseNamed("login", "fixed-window 7/1h")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Set(t.Context(), By{}, Definition{Limit: base}); err != nil {
		t.Fatal(err)
	}
	o := Override{Limit: other, Key: "bob", Until: at.Add(time.Minute)}
	if _, err := c.Override(t.Context(), By{}, o); err != nil {
		t.Fatal(err)
	}
	for _, ahead := range []time.Duration{0, 26 * time.Hour, -26 * time.Hour} {
		m.ahead = ahead
		l, err := c.Find(t.Context(), "login", "bob")
		if err != nil || l.String() != other.String() {
			t.Errorf("the machine's clock is set by %s: %s, %v; want %s", ahead, l, err, other)
		}
		if got := c.Now(); got.Sub(at).Abs() > 30*time.Second {
			t.Errorf("the machine's clock is set by %s: the store's time is taken for %s, not %s", ahead, got, at)
		}
	}
}
