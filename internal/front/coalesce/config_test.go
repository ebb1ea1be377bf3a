package coalesce_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/front/coalesce"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// wide is a store that wants seven batches at once.
type wide struct{ *gated }

func (wide) Info() store.Info { return store.Info{Batches: 7} }

// TestHowManyFlights counts the batches that are under way while callers ask about a key each.
func TestHowManyFlights(t *testing.T) {
	for _, c := range []struct {
		name    string
		wide    bool
		callers int
		cfg     *coalesce.Config
		want    int
	}{
		{"by default", false, 300, nil, 4},
		{"as the store wants", true, 300, nil, 7},
		{"as the config says", true, 300, &coalesce.Config{Flights: 2}, 2},
		{"each but the first of 32, 96 wait", false, 97, nil, 4},
		{"each but the first of 32, 95 wait", false, 96, nil, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGated()
			var inner store.Store = g
			if c.wide {
				inner = wide{g}
			}
			s := coalesce.New(inner, c.cfg)
			for i := range c.callers {
				ask(t.Context(), s, take(fmt.Sprint(i), 1))
			}
			if got := len(g.batches); got != c.want {
				t.Errorf("%s: %d batches at once, want %d", c.name, got, c.want)
			}
			close(g.gate)
			synctest.Wait()
			s.Close()
		})
	}
}

// TestHowManyOpsABatchHas lets callers wait for one batch, and looks at the next.
func TestHowManyOpsABatchHas(t *testing.T) {
	for _, c := range []struct {
		callers, each int
		want          int // ops of the second batch
		alone         bool
	}{
		{600, 1, 512, false},
		{300, 3, 513, false},
		{300, 5, 515, false},
		{1, 255, 255, false},
		{1, 256, 256, true},
		{1, 600, 600, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGated()
			s := coalesce.New(g, &coalesce.Config{Flights: 1})
			ask(t.Context(), s, take("first", 1))
			for i := range c.callers {
				var ops []law.Op
				for k := range c.each {
					ops = append(ops, take(fmt.Sprint(i, " ", k), 1))
				}
				ask(t.Context(), s, ops...)
			}
			if alone := len(g.batches) == 2; alone != c.alone {
				t.Errorf("%+v: went alone %v", c, alone)
			}
			if !c.alone {
				g.open()
			}
			if got := len(g.batches[1]); got != c.want {
				t.Errorf("%+v: %d ops", c, got)
			}
			close(g.gate)
			synctest.Wait()
			s.Close()
		})
	}
}

// silent is a store that answers nothing before the context ends.
type silent struct{ store.Store }

func (silent) Apply(ctx context.Context, _ []law.Op, outs []law.Outcome) error {
	<-ctx.Done()
	for i := range outs {
		outs[i].Granted = 1
	}
	return ctx.Err()
}

func (silent) Close() error { return nil }

// heard notes the batches of which an observer hears.
type heard struct {
	store.Observer
	batches []store.Batch
}

func (h *heard) Batched(b store.Batch) { h.batches = append(h.batches, b) }

func TestABatchTakesTenSecondsAtMost(t *testing.T) {
	for _, c := range []struct{ timeout, want time.Duration }{{0, 10 * time.Second}, {time.Second, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			var h heard
			s := coalesce.New(silent{}, &coalesce.Config{Timeout: c.timeout, Observer: &h})
			defer s.Close()
			begin := time.Now()
			outs := make([]law.Outcome, 2)
			err := s.Apply(t.Context(), []law.Op{take("a", 1), take("b", 1)}, outs)
			if took := time.Since(begin); took != c.want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v after %s, want %s", err, took, c.want)
			}
			if len(h.batches) != 1 {
				t.Fatalf("the observer heard of %+v", h.batches)
			}
			b := h.batches[0]
			if b.Callers != 1 || b.Ops != 2 || b.Took != c.want || !errors.Is(b.Err, context.DeadlineExceeded) {
				t.Errorf("the observer heard of %+v", h.batches)
			}
		})
	}
}

// TestALargeRequestThatFailsHasNoOutcomes goes alone, and past the queue.
func TestALargeRequestThatFailsHasNoOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coalesce.New(silent{}, nil)
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		ops, outs := make([]law.Op, 256), make([]law.Outcome, 256)
		for i := range ops {
			ops[i] = take(fmt.Sprint(i), 1)
		}
		err := s.Apply(ctx, ops, outs)
		if !errors.Is(err, context.DeadlineExceeded) || outs[0] != (law.Outcome{}) {
			t.Errorf("%v, %+v", err, outs[0])
		}
		if got, want := s.Stats(), (coalesce.Stats{Batches: 1, Ops: 256, Callers: 1}); got != want {
			t.Errorf("Stats: %+v, want %+v", got, want)
		}
		if err := s.Apply(ctx, ops, outs); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end of the context: %v", err)
		}
		if err := s.Apply(t.Context(), nil, nil); err != nil || s.Stats().Batches != 1 {
			t.Errorf("a batch of nothing: %v, %+v", err, s.Stats())
		}
	})
}

// TestSharedOps changes one field in the request of the second of two callers.
func TestSharedOps(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(op *law.Op)
		shared bool
		both   bool // both ask so
	}{
		{"alike", func(*law.Op) {}, true, false},
		{"another group", func(op *law.Op) { op.Group = 9 }, true, false},
		{"another cost", func(op *law.Op) { op.Cost++ }, false, false},
		{"another time", func(op *law.Op) { op.Now++ }, false, false},
		{"a ceiling", func(op *law.Op) { op.Ceiling = 5000 }, false, false},
		{"another limit", func(op *law.Op) { op.Params.Capacity++ }, false, false},
		{"another window", func(op *law.Op) { op.Window[3]++ }, false, false},
		{"from a time", func(op *law.Op) { op.From = 1 }, false, false},
		{"until a time", func(op *law.Op) { op.Until = now * 2 }, false, false},
		{"a check", func(op *law.Op) { op.Verb = law.Check }, false, false},
		{"two checks", func(op *law.Op) { op.Verb = law.Check }, true, true},
		{"two with a ceiling", func(op *law.Op) { op.Ceiling = 5000 }, true, true},
		{"two of several", func(op *law.Op) { op.Count = 2 }, false, true},
		{"two of a part", func(op *law.Op) { op.Partial = true }, false, true},
		{"two with ids", func(op *law.Op) { op.ID, op.TTL = "i", 1_000_000 }, false, true},
		{"two that start later", func(op *law.Op) { op.Deferred = true }, false, true},
		{"two with a history", func(op *law.Op) {
			op.Params = law.Params{Kind: law.Log, Unit: 1, Capacity: 100000, Step: 1000, History: 2000}
		}, false, true},
		{"two leases", func(op *law.Op) {
			op.Params = law.Params{Kind: law.Log, Unit: 1, Capacity: 100000, Step: 1000, Leased: true}
		}, false, true},
		{"two of a log", func(op *law.Op) {
			op.Params = law.Params{Kind: law.Log, Unit: 1, Capacity: 100000, Step: 1000}
		}, true, true},
		{"two blocks", func(op *law.Op) { op.Verb, op.TTL = law.Block, 0 }, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGated()
				s := coalesce.New(g, &coalesce.Config{Flights: 1})
				first := ask(t.Context(), s, take("other", 1))
				a, b := take("k", 1), take("k", 1)
				if c.change(&b); c.both {
					c.change(&a)
				}
				one, two := ask(t.Context(), s, a), ask(t.Context(), s, b)
				close(g.gate)
				synctest.Wait()
				if first.err != nil || one.err != nil || two.err != nil {
					t.Errorf("%v, %v, %v", first.err, one.err, two.err)
				}
				ops := 0
				for _, batch := range g.batches[1:] {
					ops += len(batch)
				}
				if want := map[bool]int{true: 1, false: 2}[c.shared]; ops != want {
					t.Errorf("the store was asked %d ops, want %d", ops, want)
				}
				s.Close()
			})
		})
	}
}
