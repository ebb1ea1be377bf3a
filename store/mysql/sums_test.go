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

// sumsLimits are the parameters of limits, each as it is and as it was before a change.
var sumsLimits = [][2]law.Params{
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

// randomBatch returns the ops of up to 25 requests of one to four charges, some of them on the same cells. A third of
// the batches may have ops that sums do not decide.
func randomBatch(rng *rand.Rand, now int64) (ops []law.Op) {
	firstLimit, needsRows, hasNewKeys := 2*rng.IntN(2), rng.IntN(3) == 0, rng.IntN(3) == 0
	for group := range 1 + rng.IntN(25) {
		charges, id := 1, ""
		if rng.IntN(4) == 0 {
			charges = 1 + rng.IntN(4)
		}
		if needsRows && rng.IntN(20) == 0 {
			id = fmt.Sprint("id ", rng.IntN(1000))
		}
		for range charges {
			limit := firstLimit + rng.IntN(2)
			if needsRows && rng.IntN(20) == 0 {
				limit = rng.IntN(4)
			}
			p := sumsLimits[limit][0]
			key := rng.IntN(20)
			if hasNewKeys && rng.IntN(4) == 0 {
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
				varyOp(rng, &op, limit, needsRows)
			}
			ops = append(ops, op)
		}
	}
	return ops
}

// varyOp changes some ops: unless needsRows is set, only in ways that sums decide.
func varyOp(rng *rand.Rand, op *law.Op, limit int, needsRows bool) {
	variant := rng.IntN(40)
	if variant >= 8 && !needsRows {
		return
	}
	switch variant {
	case 0, 1, 2, 3, 4, 5:
		op.Count, op.Partial = 1+rng.Int64N(9), rng.IntN(2) == 0
	case 6, 7:
		op.Ceiling = op.Params.Capacity / 2
	case 8, 9:
		op.Params = sumsLimits[limit][1]
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

// TestSumsDecideAsMemory compares the outcomes of random batches with the memory store bit by bit, except errors: cells
// that several requests charge, requests on several cells, new cells, refusals, and ops that sums do not decide.
func TestSumsDecideAsMemory(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, memoryStore := openStore(t, url), memory.New(nil)
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	now := int64(1_800_000_000_000_000)
	rounds := tier.Pick(120, 1000, 5000)
	failed := 0
	for round := range rounds {
		now += rng.Int64N(1 << (1 + rng.IntN(24)))
		ops := randomBatch(rng, now)
		got, want := make([]law.Outcome, len(ops)), make([]law.Outcome, len(ops))
		if err := s.Apply(t.Context(), ops, got); err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		if mysql.TrySums(s) {
			failed++
		}
		if err := memoryStore.Apply(t.Context(), ops, want); err != nil {
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
	if hasReturning(t, openPlainDB(t, url)) && (failed == 0 || failed > rounds/2) {
		t.Errorf("seed %d: got %d of %d batches that sums did not decide, want from 1 to half", seed, failed, rounds)
	}
}

// takeThree charges 1 to each of three keys of hugeBucket, in one batch. The second key is the key of takeSingle.
func takeThree(ctx context.Context, s *mysql.Store) (granted int64, err error) {
	ops := []law.Op{hugeBucketOp(0, "a"), hugeBucketOp(1, "k"), hugeBucketOp(2, "z")}
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
func sumLevels(t *testing.T, db *sql.DB) (sum, minLevel int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT SUM(level), MIN(level) FROM headgate_cells").Scan(&sum,
		&minLevel); err != nil {
		t.Fatal(err)
	}
	return sum, minLevel
}

// takeThreeTwice calls takeThree twice: the first batch makes the cells. The next batch may be decided by sums.
func takeThreeTwice(t *testing.T, s *mysql.Store) {
	t.Helper()
	for range 2 {
		if _, err := takeThree(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		mysql.TrySums(s)
	}
}

// TestKilledBatchChargesNothing checks that a batch that is killed while it waits for the second of three rows charges
// nothing, and returns an error that says so.
func TestKilledBatchChargesNothing(t *testing.T) {
	t.Parallel()
	s, db := openKillable(t)
	takeThreeTwice(t, s)
	tx := beginTx(t, db)
	mustExec(t, tx, "UPDATE headgate_cells SET reason = 'held' WHERE cell_key = 'k'")
	errs := make(chan error, 1)
	go func() {
		_, err := takeThree(context.Background(), s)
		errs <- err
	}()
	killWaitingStatement(t, db, "headgate_cells", errs)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if sum, minLevel := sumLevels(t, db); sum != 6 || minLevel != 2 {
		t.Errorf("got the sum %d and the minimum %d of the levels, want 6 and 2", sum, minLevel)
	}
}

// TestBatchesKilledAtAnyTime checks that while all statements are killed, all granted charges are charged, beyond them
// at most the charges of unknown outcome, and each batch as a whole.
func TestBatchesKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	s, db := openKillable(t)
	if _, err := takeThree(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	granted, unknown := sendDuringKills(t, db, func(ctx context.Context, _ int64) error {
		n, err := takeThree(ctx, s)
		if err == nil && n != 3 {
			err = fmt.Errorf("granted %d of 3", n)
		}
		return err
	})
	sum, minLevel := sumLevels(t, db)
	if minLevel < 1+granted || minLevel > 1+granted+unknown || sum != 3*minLevel {
		t.Errorf("got the sum %d and the minimum %d of the levels, want each from %d to %d", sum, minLevel, 1+granted,
			1+granted+unknown)
	}
}

// TestPassHeldChargesTheOtherKeys checks that a batch with store.PassHeld charges the keys whose rows are not locked,
// and returns ErrHeld for requests with a locked row, while a batch of the locked key alone waits until the row is
// free.
func TestPassHeldChargesTheOtherKeys(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, db := openStore(t, url), openPlainDB(t, url)
	takeThreeTwice(t, s)
	tx := beginTx(t, db)
	mustExec(t, tx, "UPDATE headgate_cells FORCE INDEX (PRIMARY) SET reason = 'held' "+
		"WHERE limit_name = 'l' AND cell_key = 'k'")
	// applyAndFree unlocks the row after the batch has waited for longer than the second that PassHeld allows.
	applyAndFree := func(ops ...law.Op) []law.Outcome {
		outs := make([]law.Outcome, len(ops))
		applyErr := make(chan error, 1)
		go func() { applyErr <- s.Apply(store.PassHeld(context.Background(), true), ops, outs) }()
		begin := serverClock(t, db)
		await.Until(t, "1.5 s to pass", func() bool { return serverClock(t, db) > begin+1_500_000 })
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := await.Receive(t, "the batch", applyErr); err != nil {
			t.Fatal(err)
		}
		return outs
	}
	outs := make([]law.Outcome, 4) // the last request has two keys
	ops := []law.Op{hugeBucketOp(1, "a"), hugeBucketOp(2, "k"), hugeBucketOp(3, "k"), hugeBucketOp(3, "z")}
	if err := s.Apply(store.PassHeld(t.Context(), true), ops, outs); err != nil {
		t.Fatal(err)
	}
	for i, out := range outs[1:] {
		if !errors.Is(out.Err, store.ErrHeld) || !errors.Is(out.Err, store.ErrConflict) || out.Granted != 0 {
			t.Errorf("charge %d: got %+v, want ErrHeld", i+2, out)
		}
	}
	if outs[0].Used != 3 || outs[0].Err != nil {
		t.Errorf("the key without a lock: got %+v, want 3 used", outs[0])
	}
	op := hugeBucketOp(1, "k")
	op.Count, op.Partial = 2, true
	if out := applyAndFree(op)[0]; out.Used != 4 {
		t.Errorf("the locked key alone: got %+v, want 4 used", out)
	}
	if sum, minLevel := sumLevels(t, db); sum != 9 || minLevel != 2 {
		t.Errorf("got the sum %d and the minimum %d of the levels, want 9 and 2", sum, minLevel)
	}
}
