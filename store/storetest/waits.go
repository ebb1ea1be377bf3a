package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Hold begins a transaction that locks the row of a cell. It returns a store that charges within the transaction, and a
// function that commits it.
type Hold func(t *testing.T, c law.Cell) (in store.Store, commit func() error)

// TakeBySQL takes one unit of a limit by calling the SQL function or procedure.
type TakeBySQL func(ctx context.Context, notation, key string) error

// RunWaits checks that a charge that waits for the row of its key reads the clock after the wait. Each charge waits for
// 2.5 s, while another charge is committed. Read before the wait, the clock would seem to be set back by more than
// law allows a cell to be ahead, and the cell would follow it and forget the other charge.
func RunWaits(t *testing.T, s store.Store, hold Hold, bySQL TakeBySQL) {
	t.Helper()
	const second = 1_000_000
	limits := map[string]law.Params{
		"token-bucket 10/1s":   {Kind: law.Bucket, Unit: 100_000, Capacity: second, Step: 1, Drain: 1},
		"fixed-window 10/1s":   {Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 10_000, Step: second, Drain: law.Max},
		"sliding-window 10/1s": {Kind: law.Window, Unit: 1000, Capacity: 10_000, Step: second},
		"sliding-log 10/1s":    slidingLog(10, second),
	}
	var all []waiting
	for name, waits := range map[string]func(context.Context, law.Op) error{
		"alone": func(ctx context.Context, op law.Op) error { return applied(ctx, s, op) },
		"several": func(ctx context.Context, op law.Op) error {
			next := op
			next.Group++
			return applied(ctx, s, op, next)
		},
		"once": func(ctx context.Context, op law.Op) error {
			op.ID, op.TTL = "id", second
			return applied(ctx, s, op)
		},
		"by SQL": func(ctx context.Context, op law.Op) error { return bySQL(ctx, op.Cell.Limit, op.Cell.Key) },
	} {
		for notation, p := range limits {
			w := waiting{name: name + ", " + notation, op: take(notation, name, p, 1, 0), answered: make(chan error, 1)}
			one(t, s, w.op)
			w.in, w.commit = hold(t, w.op.Cell)
			go func() { w.answered <- waits(t.Context(), w.op) }()
			all = append(all, w)
		}
	}
	time.Sleep(2500 * time.Millisecond)
	for _, w := range all {
		first := one(t, w.in, w.op).State.At
		if err := w.commit(); err != nil {
			t.Fatalf("%s: commit: %v", w.name, err)
		}
		if err := <-w.answered; err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		w.op.Verb = law.Check
		if at := one(t, s, w.op).State.At; at < first {
			t.Errorf("%s: the charge that waited took the cell back by %d us", w.name, first-at)
		}
	}
}

// waiting is a charge that waits for the row of its cell.
type waiting struct {
	name     string
	op       law.Op
	in       store.Store // charges within the transaction that holds the row
	commit   func() error
	answered chan error // receives the result of the charge
}

// applied applies requests to one cell.
func applied(ctx context.Context, s store.Store, ops ...law.Op) error {
	outs := make([]law.Outcome, len(ops))
	err := s.Apply(ctx, ops, outs)
	for i := range outs {
		err = errors.Join(err, outs[i].Err)
	}
	return err
}
