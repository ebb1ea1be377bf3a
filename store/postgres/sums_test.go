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

// chargeOf returns a charge of one unit at a time of the test; 0 is the server's time.
func chargeOf(group uint32, key string, now int64) law.Op {
	return law.Op{
		Verb: law.Take, Group: group, Cell: law.Cell{Limit: "l", Key: key}, Cost: 1000, Count: 1, Now: now,
		Params: law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: 1_000_000, Drain: 1000},
	}
}

// TestBatchesOfSingleChargesMatchPackageLaw compares batches with the store in memory. Their cells are in all
// the states in which an update of sums cannot grant them.
func TestBatchesOfSingleChargesMatchPackageLaw(t *testing.T) {
	t.Parallel()
	const now = 1_800_000_000_000_000
	s, m := openAt(t, migrated.Postgres(t)), memory.New(nil)
	charge := func(key string, change func(*law.Op)) law.Op {
		op := chargeOf(0, key, now)
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
		{charge("held up", func(op *law.Op) { op.Verb, op.TTL, op.Reason = law.Block, 60_000_000, "test" })},
		{charge("ahead", func(op *law.Op) { op.Now += 3_600_000_000 })},
		// These cells and others: some are granted, some are refused, and a second call decides the rest.
		{
			charge("room", nil), charge("full", nil), charge("new 2", nil),
			charge("window", nil), charge("given back", nil),
			charge("held up", nil), charge("ahead", nil), charge("too much", func(op *law.Op) { op.Cost = 4000 }),
			charge("a part", func(op *law.Op) { op.Count, op.Partial = 5, true }), charge("new 2", nil), charge("new 3", nil),
			charge("full", func(op *law.Op) { op.Cost = 2000 }),
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
		// The batches of the last steps must not skip take_sums, as batches do after one with a rest.
		for range 9 {
			if step < 5 {
				break
			}
			warm := []law.Op{
				chargeOf(0, fmt.Sprint("warm ", step), now), chargeOf(1, fmt.Sprint("also warm ", step), now),
			}
			if err := s.Apply(t.Context(), warm, make([]law.Outcome, 2)); err != nil {
				t.Fatal(err)
			}
		}
		got, want := make([]law.Outcome, len(ops)), make([]law.Outcome, len(ops))
		err := errors.Join(s.Apply(t.Context(), ops, got), m.Apply(t.Context(), slices.Clone(ops), want))
		if err != nil {
			t.Fatal(err)
		}
		for i := range ops {
			if got[i] != want[i] {
				t.Errorf("step %d, %q of %d: \n%+v, want\n%+v", step, ops[i].Cell.Key, ops[i].Cost, got[i], want[i])
			}
		}
	}
}

// TestRequestsOfSeveralChargesAreSummedUp applies batches of requests on common cells, while apply_plain returns
// nothing. apply_plain decides a batch in which a charge has no room, and no batch in which all charges fit.
func TestRequestsOfSeveralChargesAreSummedUp(t *testing.T) {
	t.Parallel()
	const now = 1_800_000_000_000_000
	dsn := migrated.Postgres(t)
	s, conn, m := openAt(t, dsn), connect(t, dsn), memory.New(nil)
	apply := func(ops []law.Op) error {
		got, want := make([]law.Outcome, len(ops)), make([]law.Outcome, len(ops))
		if err := s.Apply(t.Context(), ops, got); err != nil {
			return err
		}
		if err := m.Apply(t.Context(), slices.Clone(ops), want); err != nil {
			t.Fatal(err)
		}
		for i := range ops {
			if got[i] != want[i] {
				t.Errorf("%q: \n%+v, want\n%+v", ops[i].Cell.Key, got[i], want[i])
			}
		}
		return nil
	}
	requests := []law.Op{
		chargeOf(1, "new", now), inWindow(chargeOf(1, "window", now)), chargeOf(2, "new 2", now),
		chargeOf(2, "new", now), chargeOf(3, "alone", now),
	}
	requests[1].Cell.Limit = "w"
	if err := apply(requests); err != nil {
		t.Fatal(err)
	}
	const put = `create or replace function headgate_internal.apply_plain_1(
			p_limits text[], p_keys text[], p_modes smallint[], p_ops bigint[], p_notes text[],
			p_prints bigint[], p_parts int[])
		returns bigint[] language sql volatile as $$ select '{}'::bigint[] $$`
	if _, err := conn.Exec(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	requests[4].Cell.Key = "also new" // "new" already has two of three
	if err := apply(requests[3:]); err != nil {
		t.Fatal(err)
	}
	if err := apply(requests); err == nil {
		t.Error("apply_plain was not asked about cells of which one has no room")
	}
	var level int64
	if err := conn.QueryRow(t.Context(), `select sum(level) from headgate.cells`).Scan(&level); err != nil || level != 7000 {
		t.Errorf("the cells have %d, want that of seven charges: a batch that was not granted has left something, %v", level, err)
	}
}

// TestSinglesOfAHeldRowArePassedBy holds the row of one of three keys with one charge each.
func TestSinglesOfAHeldRowArePassedBy(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s := openAt(t, dsn)
	ops := []law.Op{chargeOf(1, "a", 0), chargeOf(2, "k", 0), chargeOf(3, "z", 0)}
	outs := make([]law.Outcome, 3)
	if err := s.Apply(store.PassHeld(t.Context(), true), ops, outs); err != nil {
		t.Fatal(err)
	}
	tx, err := connect(t, dsn).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `update headgate.cells set reason = 'held' where key = 'k'`); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(store.PassHeld(t.Context(), true), ops, outs); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(outs[1].Err, store.ErrHeld) || outs[0].Granted != 1 || outs[2].Granted != 1 {
		t.Errorf("%+v", outs)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), ops, outs); err != nil || outs[1].Granted != 1 {
		t.Errorf("%+v, %v", outs, err)
	}
}

// TestANewCellIsDatedAfterTheWait lets a batch of a held key and a new key wait. The new cell is not dated before
// the wait, when another cell of its key may have existed.
func TestANewCellIsDatedAfterTheWait(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s, other, watcher := openAt(t, dsn), connect(t, dsn), connect(t, dsn)
	ops, outs := []law.Op{chargeOf(1, "a", 0), chargeOf(2, "new", 0)}, make([]law.Outcome, 2)
	if err := s.Apply(t.Context(), ops[:1], outs[:1]); err != nil {
		t.Fatal(err)
	}
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `update headgate.cells set reason = 'held' where key = 'a'`); err != nil {
		t.Fatal(err)
	}
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
		t.Errorf("the new cell: %+v, want it at %d or later", out, now)
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

// waitForBlock waits until a session waits for a lock of holder.
func waitForBlock(t *testing.T, watcher, holder *pgx.Conn) {
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
