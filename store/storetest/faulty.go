package storetest

import (
	"cmp"
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

// fault is the moment at which a store fails, before, during or after the work on a batch, or none.
type fault int32

const (
	faultNone fault = iota
	faultBefore
	faultDuring
	faultAfter
)

func (f fault) String() string { return [...]string{"none", "before", "during", "after"}[f] }

var errFault = fmt.Errorf("%w: the fault of a test", store.ErrUnknownOutcome)

// faultyStore is a store that fails on demand: before it does anything; during the batch, when half of the outcomes
// are grants that were not charged; or after the commit, with all outcomes.
type faultyStore struct {
	store.Store
	fault atomic.Int32 // the current fault
}

func (f *faultyStore) Unwrap() store.Store { return f.Store }

func (f *faultyStore) Close() error { return nil } // called by the wrapper; the suite closes the store

func (f *faultyStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	switch fault(f.fault.Load()) {
	case faultBefore:
		return errFault
	case faultDuring:
		for i, op := range ops[:(len(ops)+1)/2] {
			granted := law.State{Kind: op.Params.Kind, Level: op.Cost, At: T0, Unit: op.Params.Unit, EmptyAt: T0 + 1}
			outs[i] = law.Outcome{Granted: op.Count, State: granted, Used: op.Cost, Clock: T0, EntryNumber: 1}
		}
		return errFault
	case faultAfter:
		return cmp.Or(f.Store.Apply(ctx, ops, outs), errFault)
	}
	return f.Store.Apply(ctx, ops, outs)
}

// stack wraps a store, as if it were remote, like headgate serve, but without a sweeper, which would disturb tests.
func stack(s store.Store) store.Store {
	return front.New(&remoteStore{s}, &front.Config{
		SweepEvery: -1, Guard: patientGuard(), Coalesce: &front.CoalesceConfig{Timeout: time.Minute},
	})
}

// patientGuard returns a guard's settings for tests that are not about its deadline: the default is short under load.
func patientGuard() *guard.Config {
	return &guard.Config{Deadline: time.Minute, Logger: slog.New(slog.DiscardHandler)}
}

// repair ends the fault, and waits until a wrapper calls the store again: a circuit breaker does so within a second.
func (f *faultyStore) repair(t *testing.T, wrapped store.Store) {
	t.Helper()
	f.fault.Store(int32(faultNone))
	check := check(take("fault mended", "k", bucket(1, 5), 1, T0))
	await.NoError(t, "a store that works to be asked", func() error {
		_, err := applyErr(context.Background(), wrapped, check)
		return err
	})
}

// remoteStore hides that a store is local.
type remoteStore struct{ store.Store }

func (r *remoteStore) Unwrap() store.Store { return r.Store }

// RunFailing lets a store in this process fail in each way, behind each wrapper and behind all of them. A failed batch
// must admit nobody, and later batches must see the state of the store. It runs in bubbles of testing/synctest.
func RunFailing(t *testing.T, open Open) {
	runFailing(t, func(t *testing.T, test func(t *testing.T, s store.Store)) {
		synctest.Test(t, func(t *testing.T) {
			s := open(t)
			test(t, s)
			s.Close()
			time.Sleep(time.Second) // until the goroutines of coarse clocks have ended
		})
	})
}

// runFailing runs the tests of RunFailing. withStore gives a test its store.
func runFailing(t *testing.T, withStore func(t *testing.T, test func(t *testing.T, s store.Store))) {
	for name, wrap := range map[string]func(store.Store) store.Store{
		"coalesce": func(s store.Store) store.Store { return coalesce.New(s, nil) },
		"prefetch": func(s store.Store) store.Store { return prefetch.New(s) },
		"deny":     func(s store.Store) store.Store { return deny.New(s) },
		"guard":    func(s store.Store) store.Store { return guard.New(s, patientGuard()) },
		"all four": stack,
	} {
		for _, kind := range []fault{faultBefore, faultDuring, faultAfter} {
			t.Run(fmt.Sprint(name, " over a store that fails ", kind), func(t *testing.T) {
				withStore(t, func(t *testing.T, s store.Store) {
					f := &faultyStore{Store: s}
					wrapped := wrap(f)
					defer wrapped.Close()
					testSingleCallsFail(t, f, wrapped, kind, name)
					testSharedBatchesFail(t, f, wrapped, kind, name)
					testPartOfBatchFails(t, f, wrapped, kind, name)
				})
			})
		}
	}
}

// expectFailure applies a batch to a store that fails, and checks the error and the outcomes.
func expectFailure(t *testing.T, s store.Store, ops ...law.Op) {
	t.Helper()
	outs := make([]law.Outcome, len(ops))
	err := s.Apply(context.Background(), ops, outs)
	if err != nil && !errors.Is(err, errFault) {
		t.Errorf("Apply: got %v, want the fault of the store", err)
	}
	for i := range outs {
		if out := outs[i]; out.Granted != 0 || out.Clock != 0 || out.State != (law.State{}) {
			t.Errorf("op %d of a failed batch: got %+v, want no outcome", i, out)
		}
		if err == nil && !errors.Is(outs[i].Err, errFault) {
			t.Errorf("op %d: got error %v, want the fault of the store", i, outs[i].Err)
		}
	}
}

// testSingleCallsFail lets calls of one caller fail: one charge, several groups, and a request with an id.
func testSingleCallsFail(t *testing.T, f *faultyStore, wrapped store.Store, kind fault, name string) {
	p := bucket(1, 5)
	p.Prefetch, p.PrefetchLife = 2*p.Unit, sec
	key := fmt.Sprint(name, kind)
	prefetchTake := take("fault lease", key, p, 1, 0)
	ops := []law.Op{
		take("fault", key, bucket(1, 5), 2, T0), take("fault other", key, bucket(1, 5), 2, T0),
		take("fault third", key, bucket(1, 5), 2, T0),
	}
	ops[2].Group = 2
	request := withID("fault "+key, take("fault id", key, bucket(1, 5), 2, T0))
	f.fault.Store(int32(kind))
	expectFailure(t, wrapped, prefetchTake)
	expectFailure(t, wrapped, ops...)
	expectFailure(t, wrapped, request...)
	f.repair(t, wrapped)
	want := int64(0)
	if kind == faultAfter {
		want = 2
	}
	for _, op := range append(ops, request...) {
		expectInUse(t, wrapped, op, want)
	}
	expect(t, wrapped, "retried with its id", outcome{granted: 1, replayed: kind == faultAfter}, request...)
	expect(t, wrapped, "another charge", outcome{granted: 1, used: want + 2}, ops[0])
}

// testSharedBatchesFail lets batches that many callers share fail. No more than the capacity may be admitted in all.
func testSharedBatchesFail(t *testing.T, f *faultyStore, wrapped store.Store, kind fault, name string) {
	const callers, capacity = 50, 5
	op := take("fault crowd", fmt.Sprint(name, kind), bucket(1, capacity), 1, T0)
	prefetchTake := op
	prefetchTake.Cell.Limit, prefetchTake.Now = "fault crowd lease", 0
	prefetchTake.Params = law.Params{
		Kind: law.Bucket, Unit: 1000, Capacity: capacity * 1000, Step: hour, Drain: 1,
		Prefetch: 1000, PrefetchLife: minute,
	}
	prefetchTake.Cost = prefetchTake.Params.Unit
	for _, op := range []law.Op{op, prefetchTake} {
		var admitted, failures atomic.Int64
		call := func(_, _ int) {
			outs, err := applyErr(context.Background(), wrapped, op)
			if err != nil {
				failures.Add(1)
			} else {
				admitted.Add(outs[0].Granted)
			}
		}
		f.fault.Store(int32(kind))
		runAtOnce(callers, 1, call)
		if admitted.Load() != 0 || failures.Load() != callers {
			t.Errorf("%s, while the store fails: got %d admitted and %d errors, want 0 and %d", op.Cell.Limit,
				admitted.Load(), failures.Load(), callers)
		}
		f.repair(t, wrapped)
		runAtOnce(callers, 1, call)
		spareTokens := int64(0) // a store that prefetches itself may still hold these for coalesced callers
		if _, ok := store.As[*prefetch.Store](f.Store); ok {
			spareTokens = op.Params.Prefetch / op.Params.Unit
		}
		got, errs := admitted.Load(), failures.Load()-callers
		if errs != 0 || got > capacity || kind != faultAfter && got < capacity-spareTokens {
			t.Errorf("%s, after the failure: got %d admitted and %d errors, want the capacity of %d and 0", op.Cell.Limit, got,
				errs, capacity)
		}
	}
}

// testPartOfBatchFails charges a full cell and an empty one in a batch that fails. A wrapper may refuse the first
// charge by itself; the second has to fail.
func testPartOfBatchFails(t *testing.T, f *faultyStore, wrapped store.Store, kind fault, name string) {
	hourly := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: 3600 * sec, Drain: 1000}
	key := fmt.Sprint(name, kind)
	takeFull, takeEmpty := take("fault full", key, hourly, 1, 0), take("fault open", key, hourly, 1, 0)
	takeEmpty.Group = 2
	applyOne(t, wrapped, takeFull)
	applyOne(t, wrapped, takeFull)
	f.fault.Store(int32(kind))
	outs := make([]law.Outcome, 2)
	err := wrapped.Apply(context.Background(), []law.Op{takeFull, takeEmpty}, outs)
	f.repair(t, wrapped)
	if outs[0].Granted != 0 || outs[1].Granted != 0 {
		t.Errorf("the failed batch: got %+v, want nothing admitted", outs)
	}
	if !errors.Is(errors.Join(err, outs[1].Err), errFault) {
		t.Errorf("got %v, %+v; want the fault of the store", err, outs[1])
	}
}

// Failing is a store that answers every batch with an error, and does nothing. It is safe for concurrent use.
type Failing struct {
	store.Store
	Err error
}

// Apply returns Err, or the error of a context that has ended.
func (f Failing) Apply(ctx context.Context, _ []law.Op, outs []law.Outcome) error {
	store.Void(outs)
	return cmp.Or(ctx.Err(), f.Err)
}
