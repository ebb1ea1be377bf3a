package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Hold begins a transaction that locks the row of a cell. It returns a store that charges within it, and its commit.
type Hold func(t *testing.T, c law.Cell) (holder store.Store, commit func() error)

// TakeBySQL takes one unit of a limit by calling the SQL function or procedure.
type TakeBySQL func(ctx context.Context, notation, key string) error

// RunWaits checks that a charge that waits for the row of its key reads the clock after the wait. Each charge waits for
// at least 2.5 s, until another charge is committed. If the store read the clock before the wait, the clock would seem
// to be set back by more than law allows a cell to be ahead, and the cell would follow it and forget the other charge.
func RunWaits(t *testing.T, s store.Store, hold Hold, bySQL TakeBySQL) {
	t.Helper()
	limits := map[string]law.Params{ // by the names that SQL gives their cells
		"token-bucket 10/s burst 10": {Kind: law.Bucket, Unit: 100_000, Capacity: sec, Step: 1, Drain: 1},
		"fixed-window 10/1s":         fixedWindow(10, sec), "sliding-window 10/1s": slidingWindow(10, sec),
		"sliding-log 10/1s": slidingLog(10, sec),
	}
	var charges []waitingCharge
	batch := func(ctx context.Context, ops ...law.Op) error {
		_, err := applyErr(ctx, s, ops...)
		return err
	}
	for name, charge := range map[string]func(context.Context, law.Op) error{
		"alone": func(ctx context.Context, op law.Op) error { return batch(ctx, op) },
		"several": func(ctx context.Context, op law.Op) error {
			next := op
			next.Group++
			return batch(ctx, op, next)
		},
		"once": func(ctx context.Context, op law.Op) error {
			op.ID, op.TTL = "id", sec
			return batch(ctx, op)
		},
		"by SQL": func(ctx context.Context, op law.Op) error { return bySQL(ctx, op.Cell.Limit, op.Cell.Key) },
	} {
		for notation, p := range limits {
			w := waitingCharge{name: name + ", " + notation, op: take(notation, name, p, 1, 0), charge: charge}
			applyOne(t, s, w.op)
			charges = append(charges, w)
		}
	}
	// All cells exist before the first row is locked. If a sweep has deleted the row before a locked one, the lock of a
	// REPEATABLE READ transaction covers the gap as well, as soon as InnoDB purges the deleted row. A new cell in that
	// gap would wait, and nobody would commit.
	results := make([]chan error, len(charges))
	for i := range charges {
		w := &charges[i]
		w.holder, w.commit = hold(t, w.op.Cell)
		results[i] = make(chan error, 1)
		go func() { results[i] <- w.charge(t.Context(), w.op) }()
	}
	awaitClock(t, s, 2_500_000)
	for i, w := range charges {
		holderAt := applyOne(t, w.holder, w.op).State.At
		commitAndAwait(t, w.name, w.commit, results[i])
		if at := applyOne(t, s, check(w.op)).State.At; at < holderAt {
			t.Errorf("%s: the charge that waited took the cell back by %d us, want no step back", w.name, holderAt-at)
		}
	}
}

// RunSweepDuringACommit checks that a sweep keeps the entries of a log that an uncommitted charge has counted. A COMMIT
// can take seconds, for example while a standby does not confirm it, and meanwhile the cell looks as if it had been
// empty for long. If the entries were gone, nothing would subtract them from the level of the cell, and the key would
// have less than its limit for as long as it is used.
func RunSweepDuringACommit(t *testing.T, s store.Store, hold Hold) {
	t.Helper()
	op := take("sliding-log 10/1d", t.Name(), slidingLog(10, day), 1, 0)
	check := check(op)
	now := applyOne(t, s, check).Clock
	op.Now = now - day - hour
	applyOne(t, s, op) // it counted for a day, until an hour ago
	holder, commit := hold(t, op.Cell)
	op.Now = now - 2*hour
	applyOne(t, holder, op) // decided while the first charge counted, it still counts now
	if _, err := s.Sweep(t.Context(), 1_000_000); err != nil {
		t.Fatalf("sweep: %v", err)
	}
	if err := commit(); err != nil {
		t.Fatalf("commit: %v", err)
	}
	if used := applyOne(t, s, check).Used; used != 2*op.Params.Unit {
		t.Errorf("got %d credits in use, want %d: the second charge and the check", used, 2*op.Params.Unit)
	}
}

// RunSetBack checks that a charge which waits for the row of its key while the server's clock is set back is not
// decided by the clock from before. The cell has followed the new clock by then, and would seem to be empty. shift sets
// how far the server's clock is ahead.
func RunSetBack(t *testing.T, s store.Store, hold Hold, shift func(ahead time.Duration)) {
	t.Helper()
	p := law.Params{Kind: law.Bucket, Unit: 100_000, Capacity: 500_000, Step: 1, Drain: 1}
	for name, otherKeys := range map[string]int{"alone": 0, "with another key": 1, "with many keys": 40} {
		name = t.Name() + ", " + name
		shift(10 * time.Second)
		applyOne(t, s, take("token-bucket 10/1s burst 5", name, p, 4, 0))
		ops := []law.Op{take("token-bucket 10/1s burst 5", name, p, 1, 0)}
		for i := range otherKeys {
			op := take("token-bucket 10/1s burst 5", fmt.Sprint(name, i), p, 1, 0)
			op.Group = uint32(2 + i)
			ops = append(ops, op)
		}
		holder, commit := hold(t, ops[0].Cell)
		outs := make([]law.Outcome, len(ops))
		result := make(chan error, 1)
		go func() { result <- s.Apply(context.Background(), ops, outs) }()
		// The charge needs time to begin to wait. A check by s could join its batch behind a stack, so holder checks.
		awaitClock(t, holder, 300_000)
		shift(0)
		holderOut := applyOne(t, holder, ops[0])
		commitAndAwait(t, name, commit, result)
		if at := outs[0].State.At; outs[0].Err != nil || at == 0 || at-holderOut.State.At > 5_000_000 {
			t.Errorf("%s: got %+v of the charge that waited, want it 5 s ahead of %d at most", name, outs[0], holderOut.State.At)
		}
	}
}

// commitAndAwait commits, and waits for the result of the charge that waited. It must not have ended before the commit.
func commitAndAwait(t *testing.T, name string, commit func() error, result <-chan error) {
	t.Helper()
	hasEnded := len(result) > 0
	if err := commit(); err != nil {
		t.Fatalf("%s: commit: %v", name, err)
	}
	if err := <-result; err != nil || hasEnded {
		t.Fatalf("%s: %v; it ended before the commit: %t", name, err, hasEnded)
	}
}

// awaitClock waits until the clock of a store has moved on by some microseconds.
func awaitClock(t *testing.T, s store.Store, us int64) {
	t.Helper()
	check := check(take("clock", "k", bucket(1, 1), 1, 0))
	begin := applyOne(t, s, check).Clock
	await.Until(t, "the clock of the store to move on", func() bool { return applyOne(t, s, check).Clock-begin >= us })
}

// waitingCharge is a charge that waits for the row of its cell.
type waitingCharge struct {
	name   string
	op     law.Op
	charge func(context.Context, law.Op) error
	holder store.Store // charges within the transaction that holds the row
	commit func() error
}
