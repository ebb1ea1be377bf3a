package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// unswept is a store that cannot be swept, for want of a right.
type unswept struct {
	store.Store
	err error
}

func (s *unswept) Sweep(context.Context, int) (int, error) { return 0, s.err }

// TestAStoreThatCannotBeSweptIsNotSaidToBeAway: it decides and writes.
func TestAStoreThatCannotBeSweptIsNotSaidToBeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var out bytes.Buffer
		opened := make(chan struct{})
		close(opened)
		s := &unswept{memory.New(nil), errors.New("no right to sweep")}
		var away error
		state := &condition{log: slog.New(slog.NewTextHandler(&out, nil))}
		go watch(ctx, s, opened, func(context.Context) error { return away }, state)
		said := func() string {
			time.Sleep(time.Minute)
			synctest.Wait()
			defer out.Reset()
			return out.String()
		}
		if got := said(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "cannot be removed") || !strings.Contains(got, "no right") {
			t.Errorf("it cannot be swept: %s", got)
		}
		away = errors.New("gone")
		if got := said(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "the store is not available") {
			t.Errorf("it is away: %s", got)
		}
		away = nil
		if got := said(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "the store is available") {
			t.Errorf("it is back: %s", got)
		}
		s.err = nil
		if got := said(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "removed again") {
			t.Errorf("it is swept again: %s", got)
		}
		cancel()
		synctest.Wait()
	})
}
