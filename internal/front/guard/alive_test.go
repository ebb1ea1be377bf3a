package guard_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/guard"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

var shared = headgate.MustParse("token-bucket 100/s away share")

// said is a log, which is read while it is written.
type said struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// TestAThousandProcessesHaveAShare and not one more.
func TestAThousandProcessesHaveAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newDistant()
		defer all.Close()
		outs := make([]law.Outcome, 1)
		err := all.Apply(t.Context(), []law.Op{{ // 999 processes, in one lease
			Verb: law.Take, Cell: law.Cell{Limit: "headgate:instances", Key: "alive"}, Cost: 999, Count: 1,
			Params: law.Params{
				Kind: law.Log, Unit: 1, Capacity: 1000, Step: guard.DefaultShareLife.Microseconds(), Leased: true,
			},
		}}, outs)
		if err != nil || outs[0].Granted != 1 {
			t.Fatalf("%+v, %v", outs[0], err)
		}
		last := newProcess(all, nil)
		defer last.guard.Close()
		allow(t, last, shared)
		settle()
		if got := last.guard.Stats().Share; got != 0.5 {
			t.Errorf("share %v of the thousandth process, want half: of two leases", got)
		}
		var text said
		more := &link{distant: all}
		g := guard.New(more, &guard.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		defer g.Close()
		allow(t, &process{link: more, guard: g, limiter: headgate.New(g, nil)}, shared)
		settle()
		if got := g.Stats().Share; got != 0 {
			t.Errorf("share %v of one process more, want 0", got)
		}
		if !strings.Contains(text.String(), ": 1000 processes have a share") || strings.Count(text.String(), "\n") != 1 {
			t.Errorf("the log says:\n%s", text.String())
		}
	})
}

// errForbidden shows that the store is there.
var errForbidden = fmt.Errorf("%w: no right to write leases", store.ErrSetup)

// TestTheLogSaysOnceThatAProcessHasNoShare for as long as it has none, and again the next time.
func TestTheLogSaysOnceThatAProcessHasNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newDistant()
		defer all.Close()
		var text said
		p := &process{link: &link{distant: all}}
		p.guard = guard.New(p.link, &guard.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		p.limiter = headgate.New(p.guard, nil)
		allow(t, p, shared)
		settle()
		for i, lines := range []int{1, 2} {
			p.link.cut(errForbidden)
			time.Sleep(10 * time.Second)
			if got := strings.Count(text.String(), "could not say that it is alive"); got != lines {
				t.Errorf("%d lines after interruption %d:\n%s", got, i+1, text.String())
			}
			p.link.cut(nil)
			time.Sleep(10 * time.Second)
		}
		p.link.silent.Store(true)
		p.guard.Close() // which is no interruption
		if got := strings.Count(text.String(), "\n"); got != 2 {
			t.Errorf("%d lines after Close:\n%s", got, text.String())
		}
	})
}

// TestHowOftenAShareAsksTheStore while nothing changes, and while the store is silent.
func TestHowOftenAShareAsksTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newDistant()
		defer all.Close()
		p := newProcess(all, &guard.Config{ShareLife: 30 * time.Second})
		defer p.guard.Close()
		allow(t, p, shared)
		settle()
		time.Sleep(time.Second / 2) // between two beats
		before := p.link.asked.Load()
		time.Sleep(20 * time.Second)
		if got := p.link.asked.Load() - before; got != 40 {
			t.Errorf("asked %d times in 20 seconds, want 40: for each of two leases once a second", got)
		}
		p.link.silent.Store(true)
		time.Sleep(time.Second)
		before = p.link.asked.Load()
		time.Sleep(20 * time.Second)
		if got := p.link.asked.Load() - before; got != 5 {
			t.Errorf("asked %d times in 20 seconds of silence, want 5: every 4 seconds, for 3 of them", got)
		}
		p.link.silent.Store(false)
	})
}

// TestAProcessThatComesBackHasAShareAgain after its leases have ended.
func TestAProcessThatComesBackHasAShareAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newDistant()
		defer all.Close()
		cfg := &guard.Config{ShareLife: time.Minute}
		a, b := newProcess(all, cfg), newProcess(all, cfg)
		defer a.guard.Close()
		defer b.guard.Close()
		allow(t, a, shared)
		allow(t, b, shared)
		settle()
		want := func(when string, ofA, ofB float64) {
			t.Helper()
			if gotA, gotB := a.guard.Stats().Share, b.guard.Stats().Share; gotA != ofA || gotB != ofB {
				t.Errorf("%s: shares %v and %v, want %v and %v", when, gotA, gotB, ofA, ofB)
			}
		}
		want("at first", 0.5, 0.5)
		time.Sleep(time.Second / 2) // between two beats
		a.link.cut(errCut)
		time.Sleep(59 * time.Second)
		want("before the leases end", 0.5, 0.5)
		time.Sleep(4 * time.Second)
		want("after it", 0, 1)
		a.link.cut(nil)
		settle()
		want("when the store is reached again", 0.5, 0.5)
	})
}
