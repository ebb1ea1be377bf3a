package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// newCharge returns a charge of one unit to a bucket of capacity three that drains one unit a second. now is its time
// in microseconds; 0 is the server's.
func newCharge(group uint32, key string, now int64) law.Op {
	return law.Op{
		Verb: law.Take, Group: group, Cell: law.Cell{Limit: "l", Key: key}, Cost: 1000, Count: 1, Now: now,
		Params: law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: 1_000_000, Drain: 1000},
	}
}

// TestBatchesOfSingleChargesMatchPackageLaw compares the outcomes of batches with the store in memory. Some cells have
// room; others are full, given back to, blocked or ahead of the clock, so that take_sums does not grant their charges.
func TestBatchesOfSingleChargesMatchPackageLaw(t *testing.T) {
	t.Parallel()
	const now = 1_800_000_000_000_000
	s, memoryStore := openAt(t, migrated.Postgres(t)), memory.New(nil)
	charge := func(key string, change func(*law.Op)) law.Op {
		op := newCharge(0, key, now)
		if change != nil {
			change(&op)
		}
		return op
	}
	for step, ops := range [][]law.Op{
		{charge("room", nil), charge("new", nil), charge("also new", nil)},
		{charge("full", func(op *law.Op) { op.Cost = 3000 }), charge("room", nil), charge("window", func(op *law.Op) {
			op.Params.Kind, op.Params.Drain = law.Window, 0
		})},
		{charge("given back", func(op *law.Op) { op.Cost = 2000 })},
		{charge("given back", func(op *law.Op) {
			op.Verb, op.Cost, op.Level, op.At = law.Return, 1000, 2000, now
		})},
		{charge("blocked", func(op *law.Op) { op.Verb, op.TTL, op.Reason = law.Block, 60_000_000, "test" })},
		{charge("ahead", func(op *law.Op) { op.Now += 3_600_000_000 })},
		// take_sums grants some of these charges, package law refuses some, and a second call decides the others.
		{
			charge("room", nil), charge("full", nil), charge("new 2", nil),
			charge("window", nil), charge("given back", nil),
			charge("blocked", nil), charge("ahead", nil), charge("new 2", nil), charge("new 3", nil),
			charge("full", func(op *law.Op) { op.Cost = 2000 }),
		},
		// The sums of some cells are above their capacities, so the driver does not try take_sums.
		{
			charge("too much", func(op *law.Op) { op.Cost = 4000 }), charge("new 5", nil),
			charge("a part", func(op *law.Op) { op.Count, op.Partial = 5, true }),
		},
		{
			charge("full", func(op *law.Op) { op.Params.Block = 5_000_000 }), charge("room", nil),
			charge("room", func(op *law.Op) { op.Cost = 2000 }),
		},
		{charge("full", nil), charge("new 4", nil)},
	} {
		for i := range ops {
			ops[i].Group = uint32(i)
		}
		// After a batch with an undecided op, the next 8 skip take_sums. So 9 small batches precede each later step.
		for range 9 {
			if step < 5 {
				break
			}
			batch := []law.Op{
				newCharge(0, fmt.Sprint("a ", step), now), newCharge(1, fmt.Sprint("b ", step), now),
			}
			if err := s.Apply(t.Context(), batch, make([]law.Outcome, 2)); err != nil {
				t.Fatal(err)
			}
		}
		got, want := make([]law.Outcome, len(ops)), make([]law.Outcome, len(ops))
		err := errors.Join(s.Apply(t.Context(), ops, got), memoryStore.Apply(t.Context(), slices.Clone(ops), want))
		if err != nil {
			t.Fatal(err)
		}
		for i := range ops {
			if got[i] != want[i] {
				t.Errorf("step %d, %q of %d:\n got %+v\nwant %+v", step, ops[i].Cell.Key, ops[i].Cost, got[i], want[i])
			}
		}
	}
}

// TestRequestsOfSeveralChargesAreSummedUp charges new cells, and then lets apply_plain return an empty array, which is
// an error. A batch whose charges all fit must do without apply_plain; one with a full cell must call it, and fail.
func TestRequestsOfSeveralChargesAreSummedUp(t *testing.T) {
	t.Parallel()
	const now = 1_800_000_000_000_000
	dsn := migrated.Postgres(t)
	s, conn, memoryStore := openAt(t, dsn), connect(t, dsn), memory.New(nil)
	apply := func(ops []law.Op) error {
		got, want := make([]law.Outcome, len(ops)), make([]law.Outcome, len(ops))
		if err := s.Apply(t.Context(), ops, got); err != nil {
			return err
		}
		if err := memoryStore.Apply(t.Context(), slices.Clone(ops), want); err != nil {
			t.Fatal(err)
		}
		for i := range ops {
			if got[i] != want[i] {
				t.Errorf("%q:\n got %+v\nwant %+v", ops[i].Cell.Key, got[i], want[i])
			}
		}
		return nil
	}
	ops := []law.Op{
		newCharge(1, "new", now), asWindow(newCharge(1, "window", now)), newCharge(2, "new 2", now),
		newCharge(2, "new", now), newCharge(3, "alone", now),
	}
	ops[1].Cell.Limit = "w"
	if err := apply(ops); err != nil {
		t.Fatal(err)
	}
	const replaceApplyPlain = `create or replace function headgate_internal.apply_plain_2(
			p_limits text[], p_keys text[], p_modes smallint[], p_ops bigint[], p_notes text[],
			p_prints bigint[], p_parts int[])
		returns bigint[] language sql volatile as $$ select '{}'::bigint[] $$`
	mustExec(t, conn, replaceApplyPlain)
	ops[4].Cell.Key = "also new"
	// "new" has 2 of 3 units: this batch fills it, and the next one finds it full.
	if err := apply(ops[2:]); err != nil {
		t.Fatal(err)
	}
	if err := apply(ops); err == nil {
		t.Error("a batch with a full cell: got no error, want that of apply_plain")
	}
	var level int64
	if err := conn.QueryRow(t.Context(), `select sum(level) from headgate.cells`).Scan(&level); err != nil || level != 8000 {
		t.Errorf("levels: got %d, %v; want 8000 of the 5 + 3 granted charges", level, err)
	}
}

// TestPassHeldFailsOnlyTheChargeOfALockedRow locks the row of one of three keys. With store.PassHeld, its charge must
// return ErrHeld, and the other two must be granted.
func TestPassHeldFailsOnlyTheChargeOfALockedRow(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s := openAt(t, dsn)
	ops := []law.Op{newCharge(1, "a", 0), newCharge(2, "k", 0), newCharge(3, "z", 0)}
	outs := make([]law.Outcome, 3)
	if err := s.Apply(store.PassHeld(t.Context(), true), ops, outs); err != nil {
		t.Fatal(err)
	}
	tx, err := connect(t, dsn).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, `update headgate.cells set reason = 'held' where key = 'k'`)
	if err := s.Apply(store.PassHeld(t.Context(), true), ops, outs); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(outs[1].Err, store.ErrHeld) || outs[0].Granted != 1 || outs[2].Granted != 1 {
		t.Errorf("with a locked row: got %+v, want ErrHeld for the second alone", outs)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), ops, outs); err != nil || outs[1].Granted != 1 {
		t.Errorf("after the unlock: got %+v, %v; want 1 granted", outs, err)
	}
}

// TestTimeOfANewCellIsNotBeforeTheWaitEnds lets a batch of a locked key and a new key wait. The time of the new cell
// must not be before the wait ends, since another cell of its key may have existed until then.
func TestTimeOfANewCellIsNotBeforeTheWaitEnds(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s, locker, watcher := openAt(t, dsn), connect(t, dsn), connect(t, dsn)
	ops, outs := []law.Op{newCharge(1, "a", 0), newCharge(2, "new", 0)}, make([]law.Outcome, 2)
	if err := s.Apply(t.Context(), ops[:1], outs[:1]); err != nil {
		t.Fatal(err)
	}
	tx, err := locker.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, `update headgate.cells set reason = 'held' where key = 'a'`)
	done := make(chan error, 1)
	go func() { done <- s.Apply(t.Context(), ops, outs) }()
	waitForLock(t, watcher)
	var now int64
	if err := errors.Join(
		watcher.QueryRow(t.Context(), `select (extract(epoch from clock_timestamp()) * 1000000)::bigint`).Scan(&now),
		tx.Rollback(t.Context()), <-done,
	); err != nil {
		t.Fatal(err)
	}
	if out := outs[1]; out.Granted != 1 || out.State.At < now || out.Clock < now {
		t.Errorf("the new cell: got %+v, want a time of %d or later", out, now)
	}
}

// waitForLock waits until a session of the database waits for a lock.
func waitForLock(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	await.Until(t, "a session that waits for a lock", func() (waits bool) {
		if err := conn.QueryRow(t.Context(), `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
}

// waitForWaiter waits until a session waits for a lock of the holder.
func waitForWaiter(t *testing.T, watcher, holder *pgx.Conn) {
	t.Helper()
	await.Until(t, "a session that waits for another", func() (waits bool) {
		if err := watcher.QueryRow(t.Context(), `select exists (select from pg_stat_activity
			where datname = current_database() and $1 = any (pg_blocking_pids(pid)))`,
			int32(holder.PgConn().PID())).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
}
