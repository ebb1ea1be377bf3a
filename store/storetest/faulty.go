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

// fault is the moment at which a store fails.
type fault int32

const (
	faultNone fault = iota
	faultBefore
	faultDuring
	faultAfter
)

func (f fault) String() string { return [...]string{"none", "before", "during", "after"}[f] }

var errFault = fmt.Errorf("%w: the fault of a test", store.ErrUnknownOutcome)

// faulty is a store that fails on demand: before it does anything; in the middle, with
// grants that were not charged in half of the outcomes; or after the commit, with all outcomes.
type faulty struct {
	store.Store
	fails atomic.Int32 // the present fault
}

func (f *faulty) Unwrap() store.Store { return f.Store }

func (f *faulty) Close() error { return nil } // called by the wrapper; the suite closes the store

func (f *faulty) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	switch fault(f.fails.Load()) {
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

// stack wraps a store as headgate serve does, but without a sweeper, which would disturb tests. It treats every store
// as remote.
func stack(s store.Store) store.Store {
	return front.New(&remote{s}, &front.Config{
		SweepEvery: -1, Guard: patientGuard(), Coalesce: &front.CoalesceConfig{Timeout: time.Minute},
	})
}

// patientGuard returns a guard's settings for tests that are not about its deadline: the default is short on a busy
// machine.
func patientGuard() *guard.Config {
	return &guard.Config{Deadline: time.Minute, Logger: slog.New(slog.DiscardHandler)}
}

// repair ends the fault, and waits until a wrapper calls the store again, which a circuit breaker does within a second.
func (f *faulty) repair(t *testing.T, through store.Store) {
	t.Helper()
	f.fails.Store(int32(faultNone))
	check := check(take("fault mended", "k", bucket(1, 5), 1, T0))
	await.NoError(t, "a store that works to be asked", func() error {
		_, err := applyErr(context.Background(), through, check)
		return err
	})
}

// remote hides that a store is local.
type remote struct{ store.Store }

func (r *remote) Unwrap() store.Store { return r.Store }

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
		for _, fails := range []fault{faultBefore, faultDuring, faultAfter} {
			t.Run(fmt.Sprint(name, " over a store that fails ", fails), func(t *testing.T) {
				withStore(t, func(t *testing.T, s store.Store) {
					f := &faulty{Store: s}
					through := wrap(f)
					defer through.Close()
					testSingleCallsFail(t, f, through, fails, name)
					testSharedBatchesFail(t, f, through, fails, name)
					testPartOfBatchFails(t, f, through, fails, name)
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

// testSingleCallsFail lets calls of one caller fail: one charge, several groups, and a request with an id.
func testSingleCallsFail(t *testing.T, f *faulty, through store.Store, fails fault, name string) {
	p := bucket(1, 5)
	p.Prefetch, p.PrefetchLife = 2*p.Unit, sec
	key := fmt.Sprint(name, fails)
	prefetched := take("fault lease", key, p, 1, 0)
	ops := []law.Op{
		take("fault", key, bucket(1, 5), 2, T0), take("fault other", key, bucket(1, 5), 2, T0),
		take("fault third", key, bucket(1, 5), 2, T0),
	}
	ops[2].Group = 2
	request := withID("fault "+key, take("fault id", key, bucket(1, 5), 2, T0))
	f.fails.Store(int32(fails))
	expectFailure(t, through, prefetched)
	expectFailure(t, through, ops...)
	expectFailure(t, through, request...)
	f.repair(t, through)
	want := int64(0)
	if fails == faultAfter {
		want = 2
	}
	for _, op := range append(ops, request...) {
		expectInUse(t, through, op, want)
	}
	expect(t, through, "asked again with its id", outcome{granted: 1, replayed: fails == faultAfter}, request...)
	expect(t, through, "asked again", outcome{granted: 1, used: want + 2}, ops[0])
}

// testSharedBatchesFail lets calls of many callers fail, who share batches. No more than the capacity may pass in all.
func testSharedBatchesFail(t *testing.T, f *faulty, through store.Store, fails fault, name string) {
	const callers, capacity = 50, 5
	op := take("fault crowd", fmt.Sprint(name, fails), bucket(1, capacity), 1, T0)
	prefetched := op
	prefetched.Cell.Limit, prefetched.Now = "fault crowd lease", 0
	prefetched.Params = law.Params{
		Kind: law.Bucket, Unit: 1000, Capacity: capacity * 1000, Step: hour, Drain: 1,
		Prefetch: 1000, PrefetchLife: minute,
	}
	prefetched.Cost = prefetched.Params.Unit
	for _, op := range []law.Op{op, prefetched} {
		var admitted, failures atomic.Int64
		call := func(_, _ int) {
			outs, err := applyErr(context.Background(), through, op)
			if err != nil {
				failures.Add(1)
			} else {
				admitted.Add(outs[0].Granted)
			}
		}
		f.fails.Store(int32(fails))
		runAtOnce(callers, 1, call)
		if admitted.Load() != 0 || failures.Load() != callers {
			t.Errorf("%s: of %d callers of a store that fails %d were admitted and %d got an error", op.Cell.Limit,
				callers, admitted.Load(), failures.Load())
		}
		f.repair(t, through)
		runAtOnce(callers, 1, call)
		unused := int64(0) // tokens that a store which prefetches itself may still hold for coalesced callers
		if _, ok := store.As[*prefetch.Store](f.Store); ok {
			unused = op.Params.Prefetch / op.Params.Unit
		}
		if got := admitted.Load(); got > capacity || fails != faultAfter && got < capacity-unused {
			t.Errorf("%s: %d were admitted after the failure, of a capacity of %d", op.Cell.Limit, got, capacity)
		}
	}
}

// testPartOfBatchFails charges a full cell and one with room in one batch: a wrapper may refuse the first charge by
// itself, and the second fails.
func testPartOfBatchFails(t *testing.T, f *faulty, through store.Store, fails fault, name string) {
	hourly := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: 3600 * sec, Drain: 1000}
	key := fmt.Sprint(name, fails)
	full, free := take("fault full", key, hourly, 1, 0), take("fault open", key, hourly, 1, 0)
	free.Group = 2
	applyOne(t, through, full)
	applyOne(t, through, full)
	f.fails.Store(int32(fails))
	outs := make([]law.Outcome, 2)
	err := through.Apply(context.Background(), []law.Op{full, free}, outs)
	f.repair(t, through)
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

// Apply returns Err, or the error of a context that has ended.
func (f Failing) Apply(ctx context.Context, _ []law.Op, outs []law.Outcome) error {
	store.Void(outs)
	return cmp.Or(ctx.Err(), f.Err)
}
