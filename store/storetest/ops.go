package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// T0 is a time for tests, 2100-01-01T00:00:00Z in microseconds: so far ahead that no store removes charges of then.
const T0 = int64(4_102_444_800_000_000)

const (
	sec    = 1_000_000
	minute = 60 * sec
	hour   = 60 * minute
	day    = 24 * hour
)

// bucket returns a token bucket of n units a second with a burst.
func bucket(n, burst int64) law.Params {
	return law.Params{Kind: law.Bucket, Unit: 1_000_000, Capacity: burst * 1_000_000, Step: 1, Drain: n}
}

// slidingLog returns a log of n units in a window of microseconds.
func slidingLog(n, window int64) law.Params {
	return law.Params{Kind: law.Log, Unit: 1000, Capacity: n * 1000, Step: window}
}

// slidingWindow returns a sliding window of n units in microseconds.
func slidingWindow(n, window int64) law.Params {
	return law.Params{Kind: law.Window, Unit: 1000, Capacity: n * 1000, Step: window}
}

// fixedWindow returns a fixed window of n units in microseconds, aligned to the epoch.
func fixedWindow(n, window int64) law.Params {
	return law.Params{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: n * 1000, Step: window, Drain: law.Max}
}

// take returns an op that takes n units.
func take(limit, key string, p law.Params, n, now int64) law.Op {
	return law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: limit, Key: key}, Params: p,
		Cost: n * p.Unit, Count: 1, Now: now,
	}
}

// withID gives ops, in place, an ID that is remembered for a minute, and returns them.
func withID(id string, ops ...law.Op) []law.Op {
	for i := range ops {
		ops[i].ID, ops[i].TTL = id, minute
	}
	return ops
}

// deferUpTo20s lets ops, in place, start up to 20 s later, and returns them.
func deferUpTo20s(ops ...law.Op) []law.Op {
	for i := range ops {
		ops[i].Deferred, ops[i].Ceiling = true, ops[i].Params.Ceiling(20*sec)
	}
	return ops
}

// check returns an op that checks whether a charge would be admitted.
func check(op law.Op) law.Op {
	op.Verb, op.Count, op.ID, op.TTL, op.Deferred, op.Ceiling = law.Check, 1, "", 0, false, 0
	return op
}

// reset returns an op that resets the cell of another op.
func reset(op law.Op, now int64) law.Op {
	return law.Op{Verb: law.Reset, Cell: op.Cell, Params: op.Params, Cost: 1, Count: 1, Now: now}
}

// settle returns an op that settles a charge at n units.
func settle(op law.Op, n, now int64) law.Op {
	return law.Op{
		Verb: law.Settle, Group: op.Group, Cell: op.Cell, Params: op.Params, Window: op.Window,
		ID: op.ID, Cost: n * op.Params.Unit, Count: 1, Now: now,
	}
}

// cancel returns an op that cancels a charge.
func cancel(op law.Op, now int64) law.Op {
	op = settle(op, 0, now)
	op.Cost = law.Cancelled
	return op
}

// extend returns an op that extends a charge to n units.
func extend(op law.Op, n, now int64) law.Op {
	op.Verb, op.Cost, op.Count, op.Now = law.Extend, n*op.Params.Unit, 1, now
	return op
}

// mapOps returns what build, such as settle, returns for each of a request's charges.
func mapOps(ops []law.Op, build func(op law.Op, n, now int64) law.Op, n, now int64) []law.Op {
	list := make([]law.Op, len(ops))
	for i, op := range ops {
		list[i] = build(op, n, now)
	}
	return list
}

// applyErr applies a batch. The error includes the errors of its ops.
func applyErr(ctx context.Context, s store.Store, ops ...law.Op) ([]law.Outcome, error) {
	outs := make([]law.Outcome, len(ops))
	err := s.Apply(ctx, ops, outs)
	for i := range outs {
		err = errors.Join(err, outs[i].Err)
	}
	return outs, err
}

// apply applies a batch, and ends the test if the whole batch fails.
func apply(tb testing.TB, s store.Store, ops ...law.Op) []law.Outcome {
	tb.Helper()
	outs := make([]law.Outcome, len(ops))
	if err := s.Apply(context.Background(), ops, outs); err != nil {
		tb.Fatalf("apply: %v", err)
	}
	return outs
}

// applyOne applies one op, and ends the test if that fails.
func applyOne(tb testing.TB, s store.Store, op law.Op) law.Outcome {
	tb.Helper()
	out := apply(tb, s, op)[0]
	if out.Err != nil {
		tb.Fatalf("apply: %v", out.Err)
	}
	return out
}

// try applies a batch, and fails the test after an error without ending it. It may be called by any goroutine.
func try(tb testing.TB, s store.Store, ops ...law.Op) []law.Outcome {
	tb.Helper()
	outs, err := applyErr(context.Background(), s, ops...)
	if err != nil {
		tb.Errorf("apply: %v", err)
	}
	return outs
}

// outcome is the expected outcome of an op.
type outcome struct {
	granted  int64 // 1 or 0 for a charge; the units that a settlement returns; the units charged after an extension
	replayed bool
	used     int64 // units in use; 0: any
	err      error // if it is not nil, the other fields are not compared
}

// expect applies a batch, checks that all ops have one expected outcome, and returns the outcomes.
func expect(t *testing.T, s store.Store, name string, want outcome, ops ...law.Op) []law.Outcome {
	t.Helper()
	outs := apply(t, s, ops...)
	want.compare(t, name, ops, outs)
	return outs
}

// compare compares the outcomes of a batch with the expected one.
func (w outcome) compare(t *testing.T, name string, ops []law.Op, outs []law.Outcome) {
	t.Helper()
	for i, out := range outs {
		p := &ops[i].Params
		granted := w.granted
		if v := ops[i].Verb; v == law.Settle || v == law.Extend {
			granted *= p.Unit
		}
		if !errors.Is(out.Err, w.err) || w.err == nil && (out.Granted != granted || out.Replayed != w.replayed ||
			w.used != 0 && out.Used != w.used*p.Unit) {
			t.Errorf("%s, op %d: got %+v, want %+v", name, i+1, out, w)
		}
	}
}

// expectInUse checks how many units of an op's cell are in use at the time of the op.
func expectInUse(t *testing.T, s store.Store, op law.Op, units int64) {
	t.Helper()
	op = check(op)
	op.Cost = 1
	if out := applyOne(t, s, op); out.Used-out.Granted != units*op.Params.Unit {
		t.Errorf("%v: got %d credits in use, want %d units", op.Cell, out.Used-out.Granted, units)
	}
}
