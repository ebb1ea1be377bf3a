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

// sevenBatchesStore is a store whose Info asks for seven batches at once.
type sevenBatchesStore struct{ *gatedStore }

func (sevenBatchesStore) Info() store.Info { return store.Info{Batches: 7} }

// TestHowManyFlights checks how many batches are under way at once while callers of different keys wait.
func TestHowManyFlights(t *testing.T) {
	for _, c := range []struct {
		name    string
		seven   bool // the store asks for seven batches
		callers int
		cfg     *coalesce.Config
		want    int
	}{
		{"by default", false, 300, nil, 4},
		{"as the store wants", true, 300, nil, 7},
		{"as the config says", true, 300, &coalesce.Config{Flights: 2}, 2},
		{"97 callers: 1 + 3 x 32", false, 97, nil, 4},
		{"96 callers: 1 + 2 x 32 + 31", false, 96, nil, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGatedStore()
			var inner store.Store = g
			if c.seven {
				inner = sevenBatchesStore{g}
			}
			s := coalesce.New(inner, c.cfg)
			for i := range c.callers {
				startCall(t.Context(), s, take(fmt.Sprint(i), 1))
			}
			if got := len(g.batches); got != c.want {
				t.Errorf("%s: got %d batches at once, want %d", c.name, got, c.want)
			}
			close(g.gate)
			synctest.Wait()
			s.Close()
		})
	}
}

// TestHowManyOpsABatchHas checks how many ops of waiting callers go out together. A request of 256 ops does not wait.
func TestHowManyOpsABatchHas(t *testing.T) {
	for _, c := range []struct {
		callers     int
		opsOfCaller int
		want        int  // ops of the second batch
		alone       bool // it does not wait for the first batch
	}{
		{600, 1, 512, false},
		{300, 3, 513, false},
		{300, 5, 515, false},
		{1, 255, 255, false},
		{1, 256, 256, true},
		{1, 600, 600, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGatedStore()
			s := coalesce.New(g, &coalesce.Config{Flights: 1})
			startCall(t.Context(), s, take("first", 1))
			for i := range c.callers {
				var ops []law.Op
				for k := range c.opsOfCaller {
					ops = append(ops, take(fmt.Sprint(i, " ", k), 1))
				}
				startCall(t.Context(), s, ops...)
			}
			if alone := len(g.batches) == 2; alone != c.alone {
				t.Errorf("%+v: got alone %v", c, alone)
			}
			if !c.alone {
				g.releaseBatch()
			}
			if got := len(g.batches[1]); got != c.want {
				t.Errorf("%+v: got %d ops", c, got)
			}
			close(g.gate)
			synctest.Wait()
			s.Close()
		})
	}
}

// silentStore returns only when the context ends. Its outcomes must not be used.
type silentStore struct{ store.Store }

func (silentStore) Apply(ctx context.Context, _ []law.Op, outs []law.Outcome) error {
	<-ctx.Done()
	for i := range outs {
		outs[i].Granted = 1
	}
	return ctx.Err()
}

func (silentStore) Close() error { return nil }

// recordingObserver records batches.
type recordingObserver struct {
	store.Observer
	batches []store.Batch
}

func (o *recordingObserver) Batched(b store.Batch) { o.batches = append(o.batches, b) }

func TestTimeoutBoundsABatch(t *testing.T) {
	for _, c := range []struct{ timeout, want time.Duration }{{0, 10 * time.Second}, {time.Second, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			var observer recordingObserver
			s := coalesce.New(silentStore{}, &coalesce.Config{Timeout: c.timeout, Observer: &observer})
			defer s.Close()
			begin := time.Now()
			outs := make([]law.Outcome, 2)
			err := s.Apply(t.Context(), []law.Op{take("a", 1), take("b", 1)}, outs)
			if took := time.Since(begin); took != c.want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v after %s, want %s", err, took, c.want)
			}
			if len(observer.batches) != 1 {
				t.Fatalf("got observed batches %+v, want one", observer.batches)
			}
			b := observer.batches[0]
			if b.Callers != 1 || b.Ops != 2 || b.Took != c.want || !errors.Is(b.Err, context.DeadlineExceeded) {
				t.Errorf("got observed batch %+v", b)
			}
		})
	}
}

// TestALargeRequestThatFailsHasNoOutcomes checks a failed request of 256 ops, which does not queue.
func TestALargeRequestThatFailsHasNoOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coalesce.New(silentStore{}, nil)
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		ops, outs := make([]law.Op, 256), make([]law.Outcome, 256)
		for i := range ops {
			ops[i] = take(fmt.Sprint(i), 1)
		}
		err := s.Apply(ctx, ops, outs)
		if !errors.Is(err, context.DeadlineExceeded) || outs[0] != (law.Outcome{}) {
			t.Errorf("got %v, %+v; want %v, an empty outcome", err, outs[0], context.DeadlineExceeded)
		}
		if got, want := s.Stats(), (coalesce.Stats{Batches: 1, Ops: 256, Callers: 1}); got != want {
			t.Errorf("got Stats %+v, want %+v", got, want)
		}
		if err := s.Apply(ctx, ops, outs); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end of the context: got %v", err)
		}
		if err := s.Apply(t.Context(), nil, nil); err != nil || s.Stats().Batches != 1 {
			t.Errorf("an empty batch: got %v, %+v", err, s.Stats())
		}
	})
}

// TestSharedOps checks whether two callers share an op if one field differs, or is the same in both.
func TestSharedOps(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(op *law.Op)
		shared bool
		both   bool // both ops are changed
	}{
		{"alike", func(*law.Op) {}, true, false},
		{"another group", func(op *law.Op) { op.Group = 9 }, true, false},
		{"another cost", func(op *law.Op) { op.Cost++ }, false, false},
		{"another time", func(op *law.Op) { op.Now++ }, false, false},
		{"a ceiling", func(op *law.Op) { op.Ceiling = 5000 }, false, false},
		{"another limit", func(op *law.Op) { op.Params.Capacity++ }, false, false},
		{"another window", func(op *law.Op) { op.Window[3]++ }, false, false},
		{"from a time", func(op *law.Op) { op.From = 1 }, false, false},
		{"until a time", func(op *law.Op) { op.Until = 2 * testTime }, false, false},
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
				g := newGatedStore()
				s := coalesce.New(g, &coalesce.Config{Flights: 1})
				first := startCall(t.Context(), s, take("other", 1))
				a, b := take("k", 1), take("k", 1)
				if c.change(&b); c.both {
					c.change(&a)
				}
				second, third := startCall(t.Context(), s, a), startCall(t.Context(), s, b)
				close(g.gate)
				synctest.Wait()
				if first.err != nil || second.err != nil || third.err != nil {
					t.Errorf("got %v, %v, %v; want no errors", first.err, second.err, third.err)
				}
				ops := 0
				for _, batch := range g.batches[1:] {
					ops += len(batch)
				}
				if want := map[bool]int{true: 1, false: 2}[c.shared]; ops != want {
					t.Errorf("got %d ops, want %d", ops, want)
				}
				s.Close()
			})
		})
	}
}
