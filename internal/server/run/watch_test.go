package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

// unsweptStore is a store that cannot be swept, as without a permission.
type unsweptStore struct {
	store.Store
	fault fault
}

func (s *unsweptStore) Sweep(context.Context, int) (int, error) { return 0, s.fault.get() }

// fault is an error that a test can change.
type fault struct{ atomic.Pointer[error] }

func (f *fault) get() error {
	if err := f.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *fault) set(text string) {
	err := errors.New(text)
	f.Store(&err)
}

// TestAStoreThatCannotBeSweptIsNotSaidToBeAway: such a store still decides and writes.
func TestAStoreThatCannotBeSweptIsNotSaidToBeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var out output
		opened := make(chan struct{})
		close(opened)
		inner := &unsweptStore{Store: memory.New(nil)}
		s := front.New(inner, &front.Config{Logger: slog.New(slog.DiscardHandler)})
		defer s.Close()
		inner.fault.set("no right to sweep")
		var away fault
		state := newCondition(slog.New(slog.NewTextHandler(&out, nil)), "memory:")
		go watch(ctx, s, opened, func(context.Context) error { return away.get() }, state, 10*time.Second)
		said := func() string {
			time.Sleep(3 * time.Minute) // the sweeper makes longer pauses after errors
			synctest.Wait()
			return out.take()
		}
		if got := said(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "cannot be removed") ||
			!strings.Contains(got, "no right") {
			t.Errorf("it cannot be swept: %s", got)
		}
		away.set("gone")
		if got := said(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "the store is not available") {
			t.Errorf("it is away: %s", got)
		}
		away.Store(nil)
		if got := said(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "the store is available") {
			t.Errorf("it is back: %s", got)
		}
		inner.fault.Store(nil)
		if got := said(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "removed again") {
			t.Errorf("it is swept again: %s", got)
		}
		cancel()
		synctest.Wait()
	})
}

// TestOneTruthAboutTheStore: the log has one line when the store goes away and one when it is back, whether a probe or
// a request notices first.
func TestOneTruthAboutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		c := newCondition(slog.New(slog.NewTextHandler(&out, nil)), "postgres://db/app")
		answered := int64(7)
		c.setCounter(func() int64 { return answered })
		refused := fmt.Errorf("%w: connection refused by port 5432", store.ErrUnavailable)
		silent := fmt.Errorf("%w: no answer", store.ErrUnknownOutcome)
		schema := fmt.Errorf("%w: schema is missing; run headgate migrate", store.ErrSetup)
		for i, step := range []struct {
			do   func()
			says []string // nothing: no line
		}{
			{func() { c.note(nil) }, nil},
			{func() { c.turn(refused) }, []string{"the store is not available", "connection refused", "postgres://db/app"}},
			{func() { c.note(silent) }, nil},
			{func() { c.turn(silent) }, nil},
			{func() { c.turn(nil) }, nil}, // the server's own probe still fails
			{func() { c.note(refused) }, nil},
			{func() { c.note(schema) }, []string{"the store is not available", "run headgate migrate"}},
			{func() { c.note(schema) }, nil},
			{func() { answered = 12 }, nil},
			{func() { c.note(nil) }, []string{"the store is available", "after=8s", "answered_without_it=5"}},
			{func() { c.note(silent) }, []string{"the store is not available", "no answer"}},
			{func() { c.turn(refused) }, nil},
			{func() { c.note(nil) }, nil}, // requests still find it away
			{func() { c.turn(nil) }, []string{"the store is available", "after=3s"}},
		} {
			step.do()
			said := out.take()
			wrong := i > 0 && i < 9 || i > 9 && i < 13
			if lines := strings.Count(said, "\n"); lines != min(1, len(step.says)) || c.failing() != wrong {
				t.Errorf("step %d: %d lines: %s", i, lines, said)
			}
			for _, want := range step.says {
				if !strings.Contains(said, want) {
					t.Errorf("step %d: %q, want %q in it", i, said, want)
				}
			}
			time.Sleep(time.Second)
		}
	})
}
