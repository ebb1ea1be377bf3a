package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/front/coalesce"
	"github.com/headgate/headgate/internal/front/deny"
	"github.com/headgate/headgate/internal/front/guard"
	"github.com/headgate/headgate/internal/front/prefetch"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

type fault int32

const (
	none fault = iota
	before
	during
	after
)

func (f fault) String() string { return [...]string{"none", "before", "during", "after"}[f] }

var errFault = fmt.Errorf("%w: the fault of a test", store.ErrUnknownOutcome)

// faulty fails on demand: before anything is done, in the
// middle, with grants in half the outcomes that nobody was charged for, or after
// its commit, with all the outcomes.
type faulty struct {
	store.Store
	fails atomic.Int32 // a fault
}

func (f *faulty) Unwrap() store.Store { return f.Store }

func (f *faulty) Close() error { return nil } // of what is in front of it

func (f *faulty) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	switch fault(f.fails.Load()) {
	case before:
		return errFault
	case during:
		for i := range ops[:(len(ops)+1)/2] {
			granted := law.State{
				Kind: ops[i].Params.Kind, Level: ops[i].Cost, At: T0, Unit: ops[i].Params.Unit,
				EmptyAt: T0 + 1,
			}
			outs[i] = law.Outcome{Granted: ops[i].Count, State: granted, Used: ops[i].Cost, Clock: T0, EntryNumber: 1}
		}
		return errFault
	case after:
		if err := f.Store.Apply(ctx, ops, outs); err != nil {
			return err
		}
		return errFault
	}
	return f.Store.Apply(ctx, ops, outs)
}

// stack returns what headgate serve puts in front of a store, without a sweeper that would come between. It takes every
// store for one that is not in this process.
func stack(s store.Store) store.Store {
	return front.New(&remote{s}, &front.Config{
		SweepEvery: -1, Guard: patient(), Coalesce: &front.CoalesceConfig{Timeout: time.Minute},
	})
}

// patient returns a guard's settings for tests that are not about its deadline, which is short for a busy machine.
func patient() *guard.Config {
	return &guard.Config{Deadline: time.Minute, Logger: slog.New(slog.DiscardHandler)}
}

// mend ends the fault, and waits until a store in front of it calls it again, which a circuit breaker does
// within a second.
func (f *faulty) mend(t *testing.T, through store.Store) {
	t.Helper()
	f.fails.Store(int32(none))
	check := check(take("fault mended", "k", bucket(1, 5), 1, T0))
	await.NoError(t, "a store that works to be asked", func() error {
		_, err := applied(context.Background(), through, check)
		return err
	})
}

// remote hides that a store is local.
type remote struct{ store.Store }

func (r *remote) Unwrap() store.Store { return r.Store }

// RunFailing lets a store in this process fail in each way, behind each wrapper and all of them: a failed batch admits
// nobody, and what comes after it sees the truth. It takes place in bubbles of testing/synctest.
func RunFailing(t *testing.T, open Open) {
	failing(t, func(t *testing.T, test func(t *testing.T, s store.Store)) {
		synctest.Test(t, func(t *testing.T) {
			s := open(t)
			test(t, s)
			s.Close()
			time.Sleep(time.Second) // until the goroutines of coarse clocks have ended
		})
	})
}

// failing does so with what gives each test a store.
func failing(t *testing.T, with func(t *testing.T, test func(t *testing.T, s store.Store))) {
	for name, wrap := range map[string]func(store.Store) store.Store{
		"coalesce": func(s store.Store) store.Store { return coalesce.New(s, nil) },
		"prefetch": func(s store.Store) store.Store { return prefetch.New(s) },
		"deny":     func(s store.Store) store.Store { return deny.New(s) },
		"guard":    func(s store.Store) store.Store { return guard.New(s, patient()) },
		"all four": stack,
	} {
		for _, fails := range []fault{before, during, after} {
			t.Run(fmt.Sprint(name, " over a store that fails ", fails), func(t *testing.T) {
				with(t, func(t *testing.T, s store.Store) {
					f := &faulty{Store: s}
					through := wrap(f)
					defer through.Close()
					failingAlone(t, f, through, fails, name)
					failingTogether(t, f, through, fails, name)
					failingPart(t, f, through, fails, name)
				})
			})
		}
	}
}

// failed calls a store that fails, and checks its error.
func failed(t *testing.T, s store.Store, ops ...law.Op) {
	t.Helper()
	outs := make([]law.Outcome, len(ops))
	err := s.Apply(context.Background(), ops, outs)
	if err != nil && !errors.Is(err, errFault) {
		t.Errorf("apply: %v, want the fault of the store", err)
	}
	for i := range outs {
		if out := outs[i]; out.Granted != 0 || out.Clock != 0 || out.State != (law.State{}) {
			t.Errorf("op %d of a batch that failed: %+v", i, out)
		}
		if err == nil && !errors.Is(outs[i].Err, errFault) {
			t.Errorf("op %d: neither an outcome nor the fault of the store: %v", i, outs[i].Err)
		}
	}
}

// failingAlone calls alone: one charge, several groups, and with an id.
func failingAlone(t *testing.T, f *faulty, through store.Store, fails fault, name string) {
	p := bucket(1, 5)
	p.Prefetch, p.PrefetchLife = 2*p.Unit, sec
	key := fmt.Sprint(name, fails)
	first := take("fault lease", key, p, 1, 0)
	ops := []law.Op{
		take("fault", key, bucket(1, 5), 2, T0), take("fault other", key, bucket(1, 5), 2, T0),
		take("fault third", key, bucket(1, 5), 2, T0),
	}
	ops[2].Group = 2
	withID := named("fault "+key, take("fault id", key, bucket(1, 5), 2, T0))
	f.fails.Store(int32(fails))
	failed(t, through, first)
	failed(t, through, ops...)
	failed(t, through, withID...)
	f.mend(t, through)
	want := int64(0)
	if fails == after {
		want = 2
	}
	for _, op := range append(ops, withID...) {
		inUse(t, through, op, want)
	}
	expect(t, through, "asked again with its id", wanted{granted: 1, replayed: fails == after}, withID...)
	expect(t, through, "asked again", wanted{granted: 1, used: want + 2}, ops[0])
}

// failingTogether calls at once, so that callers share batches. No more than the
// capacity pass in all.
func failingTogether(t *testing.T, f *faulty, through store.Store, fails fault, name string) {
	const callers, capacity = 50, 5
	op := take("fault crowd", fmt.Sprint(name, fails), bucket(1, capacity), 1, T0)
	leased := op
	leased.Cell.Limit, leased.Now = "fault crowd lease", 0
	leased.Params = law.Params{
		Kind: law.Bucket, Unit: 1000, Capacity: capacity * 1000, Step: hour, Drain: 1,
		Prefetch: 1000, PrefetchLife: minute,
	}
	leased.Cost = leased.Params.Unit
	for _, op := range []law.Op{op, leased} {
		var admitted, failures atomic.Int64
		ask := func(_, _ int) {
			outs, err := applied(context.Background(), through, op)
			if err != nil {
				failures.Add(1)
			} else {
				admitted.Add(outs[0].Granted)
			}
		}
		f.fails.Store(int32(fails))
		concurrently(callers, 1, ask)
		if admitted.Load() != 0 || failures.Load() != callers {
			t.Errorf("%s: of %d callers of a store that fails %d were admitted and %d got an error", op.Cell.Limit,
				callers, admitted.Load(), failures.Load())
		}
		f.mend(t, through)
		concurrently(callers, 1, ask)
		held := int64(0) // of a store that prefetches itself, coalesced callers may leave what it holds
		if _, ok := store.As[*prefetch.Store](f.Store); ok {
			held = op.Params.Prefetch / op.Params.Unit
		}
		if got := admitted.Load(); got > capacity || fails != after && got < capacity-held {
			t.Errorf("%s: %d were admitted after the failure, of a capacity of %d", op.Cell.Limit, got, capacity)
		}
	}
}

// failingPart charges a cell that is known to be full and one that is not, in one
// batch: a wrapper may answer for the first by itself, and the second fails.
func failingPart(t *testing.T, f *faulty, through store.Store, fails fault, name string) {
	hourly := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: 3600 * sec, Drain: 1000}
	key := fmt.Sprint(name, fails)
	full, open := take("fault full", key, hourly, 1, 0), take("fault open", key, hourly, 1, 0)
	open.Group = 2
	one(t, through, full)
	one(t, through, full)
	f.fails.Store(int32(fails))
	outs := make([]law.Outcome, 2)
	err := through.Apply(context.Background(), []law.Op{full, open}, outs)
	f.mend(t, through)
	if outs[0].Granted != 0 || outs[1].Granted != 0 {
		t.Errorf("admitted by a store that failed: %+v", outs)
	}
	if !errors.Is(errors.Join(err, outs[1].Err), errFault) {
		t.Errorf("%v, %+v: the fault of the store is told to nobody", err, outs[1])
	}
}

// Failing is a store that answers every batch with an error, and does nothing. It is safe for concurrent use.
type Failing struct {
	store.Store
	Err error
}

// Apply returns the error, or that of a context that has ended.
func (f Failing) Apply(ctx context.Context, _ []law.Op, outs []law.Outcome) error {
	store.Void(outs)
	if err := ctx.Err(); err != nil {
		return err
	}
	return f.Err
}
