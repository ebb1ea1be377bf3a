package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/mysql"
)

// summedLimits are limits, each with its earlier parameters.
var summedLimits = [][2]law.Params{
	{
		{Kind: law.Bucket, Unit: 10, Capacity: 500, Step: 100_000, Drain: 3},
		{Kind: law.Bucket, Unit: 7, Capacity: 50, Step: 1000, Drain: 3},
	},
	{
		{Kind: law.Bucket, Unit: 10, Capacity: 3000, Step: 5_000_000, Drain: 90},
		{Kind: law.Bucket, Unit: 10, Capacity: 50, Step: 50_000_000, Drain: 1},
	},
	{
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1, Capacity: 50, Step: 700_000, Drain: 50},
		{Kind: law.Window, Unit: 1, Capacity: 5, Step: 70_000},
	},
	{
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1, Capacity: 4000, Step: 10_000_000_000_000, Drain: 1},
		{Kind: law.Bucket, Unit: 1, Capacity: 50, Step: 1_000_000, Drain: law.Max},
	},
}

// summedBatch returns requests of one charge and of several, some of them on the same cells.
func summedBatch(rng *rand.Rand, now int64) (ops []law.Op) {
	epoch, strange, fresh := 2*rng.IntN(2), rng.IntN(3) == 0, rng.IntN(3) == 0
	for group := range 1 + rng.IntN(25) {
		charges, id := 1, ""
		if rng.IntN(4) == 0 {
			charges = 1 + rng.IntN(4)
		}
		if strange && rng.IntN(20) == 0 {
			id = fmt.Sprint("id ", rng.IntN(1000))
		}
		for range charges {
			limit := epoch + rng.IntN(2)
			if strange && rng.IntN(20) == 0 {
				limit = rng.IntN(4)
			}
			p := summedLimits[limit][0]
			key := rng.IntN(20)
			if fresh && rng.IntN(4) == 0 {
				key = rng.Int()
			}
			op := law.Op{
				Verb: law.Take, Group: uint32(group + 1), ID: id, Params: p, Now: now,
				Cell: law.Cell{Limit: fmt.Sprint("limit ", limit), Key: fmt.Sprint(key)},
				Cost: p.Unit * (1 + rng.Int64N(2)), Count: 1,
			}
			if id != "" {
				op.TTL = 1_000_000
			}
			if charges == 1 {
				vary(rng, &op, limit, strange)
			}
			ops = append(ops, op)
		}
	}
	return ops
}

// vary changes a charge, mostly to one that sums may decide unless strange is set.
func vary(rng *rand.Rand, op *law.Op, limit int, strange bool) {
	which := rng.IntN(40)
	if which >= 8 && !strange {
		return
	}
	switch which {
	case 0, 1, 2, 3, 4, 5:
		op.Count, op.Partial = 1+rng.Int64N(9), rng.IntN(2) == 0
	case 6, 7:
		op.Ceiling = op.Params.Capacity / 2
	case 8, 9:
		op.Params = summedLimits[limit][1]
	case 10, 11:
		op.Verb, op.TTL, op.Reason = law.Block, 1+rng.Int64N(1_000_000), "why"
	case 12, 13:
		op.Verb = law.Check
	case 14:
		op.Verb = law.Reset
	case 15, 16:
		op.Now += rng.Int64N(20_000_000) - 10_000_000
	}
}

// TestSumsDecideAsOneRequestAfterAnother compares batches with the memory store bit by bit: cells that several requests
// charge, requests on several cells, new cells, refusals, and ops that sums do not decide.
func TestSumsDecideAsOneRequestAfterAnother(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, m := openUnmigrated(t, url), memory.New(nil)
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	now := int64(1_800_000_000_000_000)
	rounds := tier.Pick(120, 1000, 5000)
	failed := 0
	for round := range rounds {
		now += rng.Int64N(1 << (1 + rng.IntN(24)))
		ops := summedBatch(rng, now)
		got, want := make([]law.Outcome, len(ops)), make([]law.Outcome, len(ops))
		if err := s.Apply(t.Context(), ops, got); err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		if mysql.TrySums(s) {
			failed++
		}
		if err := m.Apply(t.Context(), ops, want); err != nil {
			t.Fatal(err)
		}
		for i := range ops {
			if got[i] != want[i] && (got[i].Err == nil || want[i].Err == nil) {
				t.Fatalf("seed %d, round %d, op %d of %d: %+v\n got %+v\nwant %+v", seed, round, i, len(ops), ops[i],
					got[i], want[i])
			}
		}
	}
	t.Logf("%d of %d batches could not be decided by sums", failed, rounds)
	if knowsReturning(t, plainDB(t, url)) && (failed == 0 || failed > rounds/2) {
		t.Errorf("seed %d: %d of %d batches could not be decided by sums: too few to compare", seed, failed, rounds)
	}
}

// takeThree charges three keys, the second of which is the key of takeSingle.
func takeThree(ctx context.Context, s *mysql.Store) (granted int64, err error) {
	var ops []law.Op
	for i, key := range []string{"a", "k", "z"} {
		ops = append(ops, law.Op{
			Verb: law.Take, Group: uint32(i), Cell: law.Cell{Limit: "l", Key: key}, Params: neverDrains, Cost: 1, Count: 1,
		})
	}
	outs := make([]law.Outcome, len(ops))
	err = s.Apply(ctx, ops, outs)
	for i := range outs {
		if granted += outs[i].Granted; outs[i].Err != nil {
			err = errors.Join(err, outs[i].Err)
		}
	}
	return granted, err
}

// sumLevels returns the sum of the levels of all cells, and the lowest level.
func sumLevels(t *testing.T, db *sql.DB) (sum, least int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT SUM(level), MIN(level) FROM headgate_cells").Scan(&sum,
		&least); err != nil {
		t.Fatal(err)
	}
	return sum, least
}

// takeTwice charges by takeThree twice, since the first charge of new keys does not use sums.
func takeTwice(t *testing.T, s *mysql.Store) {
	t.Helper()
	for range 2 {
		if _, err := takeThree(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		mysql.TrySums(s)
	}
}

// TestABatchKilledWhileItWaits kills a batch that waits for the second of three rows: the error must say that nothing
// was done.
func TestABatchKilledWhileItWaits(t *testing.T) {
	t.Parallel()
	s, db := openKillable(t)
	takeTwice(t, s)
	tx := beginTx(t, db)
	run(t, tx, "UPDATE headgate_cells SET reason = 'held' WHERE cell_key = 'k'")
	failed := make(chan error, 1)
	go func() {
		_, err := takeThree(context.Background(), s)
		failed <- err
	}()
	killWaiting(t, db, "headgate_cells", failed)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if sum, least := sumLevels(t, db); sum != 6 || least != 2 {
		t.Errorf("the levels are %d together, the least %d; want 6 and 2", sum, least)
	}
}

// TestBatchesKilledAtAnyTime kills statements without end: all granted charges must be charged, beyond them at most
// those of unknown outcome, and each batch as a whole.
func TestBatchesKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	s, db := openKillable(t)
	if _, err := takeThree(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	granted, unknown := killWhile(t, db, func(ctx context.Context, _ int64) error {
		n, err := takeThree(ctx, s)
		if err == nil && n != 3 {
			err = fmt.Errorf("granted %d of 3", n)
		}
		return err
	})
	sum, least := sumLevels(t, db)
	if least < 1+granted || least > 1+granted+unknown || sum != 3*least {
		t.Errorf("the levels are %d together, the least %d, after %d granted and %d not known", sum, least, 1+granted,
			unknown)
	}
}

// TestALockedRowDelaysNoOtherKey locks the row of one of three keys. The other keys must be charged after a second,
// without the locked one; a charge that waits for it alone is made when the row is free.
func TestALockedRowDelaysNoOtherKey(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, db := openUnmigrated(t, url), plainDB(t, url)
	takeTwice(t, s)
	tx := beginTx(t, db)
	run(t, tx, "UPDATE headgate_cells FORCE INDEX (PRIMARY) SET reason = 'held' "+
		"WHERE limit_name = 'l' AND cell_key = 'k'")
	charge := func(group uint32, key string) law.Op {
		return law.Op{
			Verb: law.Take, Group: group, Cell: law.Cell{Limit: "l", Key: key}, Params: neverDrains, Cost: 1, Count: 1,
		}
	}
	// freed has the row free after a batch has waited for it for longer than it would beside others.
	freed := func(ops ...law.Op) []law.Outcome {
		outs := make([]law.Outcome, len(ops))
		done := make(chan error, 1)
		go func() { done <- s.Apply(store.PassHeld(context.Background(), true), ops, outs) }()
		begin := serverClock(t, db)
		await.Until(t, "1.5 s to pass", func() bool { return serverClock(t, db) > begin+1_500_000 })
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := await.Receive(t, "the batch", done); err != nil {
			t.Fatal(err)
		}
		return outs
	}
	outs := make([]law.Outcome, 4) // the last request has two keys
	ops := []law.Op{charge(1, "a"), charge(2, "k"), charge(3, "k"), charge(3, "z")}
	if err := s.Apply(store.PassHeld(t.Context(), true), ops, outs); err != nil {
		t.Fatal(err)
	}
	for i, out := range outs[1:] {
		if !errors.Is(out.Err, store.ErrHeld) || !errors.Is(out.Err, store.ErrConflict) || out.Granted != 0 {
			t.Errorf("charge %d: %+v, want ErrHeld", i+2, out)
		}
	}
	if outs[0].Used != 3 || outs[0].Err != nil {
		t.Errorf("a key that is free: %+v", outs[0])
	}
	op := charge(1, "k")
	op.Count, op.Partial = 2, true
	if out := freed(op)[0]; out.Used != 4 {
		t.Errorf("what waits for the row alone: %+v", out)
	}
	if sum, least := sumLevels(t, db); sum != 9 || least != 2 {
		t.Errorf("the levels are %d together, the least %d; want 9 and 2", sum, least)
	}
}
