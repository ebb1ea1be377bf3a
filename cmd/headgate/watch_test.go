package main

import (
	"context"
	"errors"
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

// unswept is a store that cannot be swept, for want of a right.
type unswept struct {
	store.Store
	fault fault
}

func (s *unswept) Sweep(context.Context, int) (int, error) { return 0, s.fault.get() }

// fault is an error that a test changes.
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

// TestAStoreThatCannotBeSweptIsNotSaidToBeAway: it decides and writes.
func TestAStoreThatCannotBeSweptIsNotSaidToBeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var out output
		opened := make(chan struct{})
		close(opened)
		inner := &unswept{Store: memory.New(nil)}
		s := front.New(inner, &front.Config{Logger: slog.New(slog.DiscardHandler)})
		defer s.Close()
		inner.fault.set("no right to sweep")
		var away fault
		state := &condition{log: slog.New(slog.NewTextHandler(&out, nil))}
		go watch(ctx, s, opened, func(context.Context) error { return away.get() }, state)
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
