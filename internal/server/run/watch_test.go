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

// unsweptStore is a store whose Sweep removes nothing, and fails with the error of fault, if it has one.
type unsweptStore struct {
	store.Store
	fault fault
}

func (s *unsweptStore) Sweep(context.Context, int) (int, error) { return 0, s.fault.get() }

// fault is an error that a test can set and remove.
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

// TestAFailingSweepIsNotAStoreThatIsAway checks the log of a store whose Sweep fails, but which decides and writes.
func TestAFailingSweepIsNotAStoreThatIsAway(t *testing.T) {
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
		nextLines := func() string {
			time.Sleep(3 * time.Minute) // the sweeper makes longer pauses after errors
			synctest.Wait()
			return out.readNew()
		}
		if got := nextLines(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "cannot be removed") ||
			!strings.Contains(got, "no right") {
			t.Errorf("Sweep fails: got the lines %s", got)
		}
		away.set("gone")
		if got := nextLines(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "the store is not available") {
			t.Errorf("the store is away: got the lines %s", got)
		}
		away.Store(nil)
		if got := nextLines(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "the store is available") {
			t.Errorf("the store is back: got the lines %s", got)
		}
		inner.fault.Store(nil)
		if got := nextLines(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "removed again") {
			t.Errorf("Sweep succeeds: got the lines %s", got)
		}
		cancel()
		synctest.Wait()
	})
}

// TestConditionLogsEachChangeOnce checks that a failure, another reason of it and the recovery have one line each.
func TestConditionLogsEachChangeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		c := newCondition(slog.New(slog.NewTextHandler(&out, nil)), "postgres://db/app")
		answered := int64(7)
		c.setCounter(func() int64 { return answered })
		refused := fmt.Errorf("%w: connection refused by port 5432", store.ErrUnavailable)
		noAnswer := fmt.Errorf("%w: no answer", store.ErrUnknownOutcome)
		schema := fmt.Errorf("%w: schema is missing; run headgate migrate", store.ErrSetup)
		for i, step := range []struct {
			do   func()
			want []string // parts of the line; nil: no line
		}{
			{func() { c.recordProbe(nil) }, nil},
			{func() { c.recordRequest(refused) }, []string{"the store is not available", "connection refused", "postgres://db/app"}},
			{func() { c.recordProbe(noAnswer) }, nil},
			{func() { c.recordRequest(noAnswer) }, nil},
			{func() { c.recordRequest(nil) }, nil}, // the server's own probe still fails
			{func() { c.recordProbe(refused) }, nil},
			{func() { c.recordProbe(schema) }, []string{"the store is not available", "run headgate migrate"}},
			{func() { c.recordProbe(schema) }, nil},
			{func() { answered = 12 }, nil},
			{func() { c.recordProbe(nil) }, []string{"the store is available", "after=8s", "answered_without_it=5"}},
			{func() { c.recordProbe(noAnswer) }, []string{"the store is not available", "no answer"}},
			{func() { c.recordRequest(refused) }, nil},
			{func() { c.recordProbe(nil) }, nil}, // requests still fail
			{func() { c.recordRequest(nil) }, []string{"the store is available", "after=3s"}},
		} {
			step.do()
			lines := out.readNew()
			wantFailing := i > 0 && i < 9 || i > 9 && i < 13
			if n := strings.Count(lines, "\n"); n != min(1, len(step.want)) || c.failing() != wantFailing {
				t.Errorf("step %d: %d lines, failing %v, want %v: %s", i, n, c.failing(), wantFailing, lines)
			}
			for _, want := range step.want {
				if !strings.Contains(lines, want) {
					t.Errorf("step %d: %q, want %q in it", i, lines, want)
				}
			}
			time.Sleep(time.Second)
		}
	})
}
