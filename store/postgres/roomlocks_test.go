package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
)

// takes takes one of a key. It fails the test if that waits for a transaction that stays open.
func takes(t *testing.T, s *postgres.Store, limit headgate.Limit, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	outs := make([]law.Outcome, 1)
	op := law.Op{
		Verb: law.Take, Cell: law.Cell{Limit: limit.Name(), Key: key}, Params: limit.Params(),
		Cost: limit.Params().Unit, Count: 1,
	}
	if err := errors.Join(s.Apply(ctx, []law.Op{op}, outs), outs[0].Err); err != nil {
		t.Errorf("key %s: %v", key, err)
	}
}

// begun begins a transaction of its own session, at a level, with a snapshot of now if
// that has one.
func begun(t *testing.T, dsn string, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := connect(t, dsn).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err == nil {
		_, err = tx.Exec(t.Context(), "select 1")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// inOpenTx takes one of a key in a transaction that stays open until the test ends.
func inOpenTx(t *testing.T, s *postgres.Store, dsn string, limit headgate.Limit, key string) pgx.Tx {
	t.Helper()
	tx := begun(t, dsn, pgx.ReadCommitted)
	outs := make([]law.Outcome, 1)
	op := law.Op{
		Verb: law.Take, Cell: law.Cell{Limit: limit.Name(), Key: key}, Params: limit.Params(),
		Cost: limit.Params().Unit, Count: 1,
	}
	if err := errors.Join(s.InTx(tx).Apply(t.Context(), []law.Op{op}, outs), outs[0].Err); err != nil {
		t.Fatal(err)
	}
	return tx
}

// TestTheFirstKeyOfALimitBlocksNoOther leaves a transaction open that has made the first
// key of a limit.
func TestTheFirstKeyOfALimitBlocksNoOther(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	s, dsn := bounded(t, 1000)
	limit := headgate.MustParse("fixed-window 10/365d")
	sweep(t, s) // so that the maximum is in the store
	inOpenTx(t, s, dsn, limit, "first")
	takes(t, s, limit, "other")
}

// TestAKeyThatFoundNoRoomKeepsItsLimitFromSharing leaves two transactions open: one that
// has made the room of a limit, and one that has made a key without seeing that. While the
// second lasts nobody can see its key, so the limit must not begin to share.
func TestAKeyThatFoundNoRoomKeepsItsLimitFromSharing(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	s, dsn := bounded(t, 1)
	sweep(t, s)
	limit := headgate.MustParse("fixed-window 10/365d")
	first := inOpenTx(t, s, dsn, limit, "first")
	second := inOpenTx(t, s, dsn, limit, "second")
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if _, err := connect(t, dsn).Exec(ctx,
		"select headgate.set_max_keys_1(2), headgate.set_max_keys_1(1)"); err != nil {
		t.Errorf("the maximum cannot be set meanwhile: %v", err)
	}
	for _, tx := range []pgx.Tx{first, second} {
		if roomOf(t, s, limit).Sharing {
			t.Error("the limit shares while a transaction that has made a key is open")
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		sweep(t, s)
	}
	if r := roomOf(t, s, limit); !r.Sharing || r.Keys != 2 {
		t.Errorf("both are over: %+v", r)
	}
}

// TestAKeyMadeWhileItsRoomClosesBlocksNoOther leaves a transaction open that has stood in
// line for the room of its limit.
func TestAKeyMadeWhileItsRoomClosesBlocksNoOther(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	s, dsn := bounded(t, 1000)
	limit := headgate.MustParse("fixed-window 10/365d")
	takes(t, s, limit, "first")
	if _, err := connect(t, dsn).Exec(t.Context(), "select headgate.close_room_1($1)", limit.Name()); err != nil {
		t.Fatal(err)
	}
	inOpenTx(t, s, dsn, limit, "second")
	takes(t, s, limit, "other") // stands in line for a second
}

// TestASweepWaitsForNoTransaction leaves a transaction open that has stood in line for the
// room of a limit, which is to begin to share.
func TestASweepWaitsForNoTransaction(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	s, dsn := bounded(t, 2)
	limit := headgate.MustParse("fixed-window 10/365d")
	fillKeys(t, s, limit, "own", 1)
	sweep(t, s)
	if _, err := connect(t, dsn).Exec(t.Context(), "select headgate.close_room_1($1)", limit.Name()); err != nil {
		t.Fatal(err)
	}
	inOpenTx(t, s, dsn, limit, "held")
	fillKeys(t, s, limit, "own", 2)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if _, err := s.Sweep(ctx, 100); err != nil {
		t.Errorf("a sweep: %v", err)
	}
}

// TestASweepWaitsForNoRoom leaves a transaction open that has made the room of a limit with
// a maximum of its own, which the sweep is to write there.
func TestASweepWaitsForNoRoom(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	s, dsn := bounded(t, 100)
	sweep(t, s)
	limit, err := headgate.MustParse("fixed-window 10/365d").WithMaxKeys(2)
	if err != nil {
		t.Fatal(err)
	}
	tx := inOpenTx(t, s, dsn, limit, "first")
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		if _, err := s.Sweep(ctx, 100); err != nil {
			t.Errorf("a sweep: %v", err)
		}
		cancel()
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	fillKeys(t, s, limit, "own", 2)
	sweep(t, s)
	if r := roomOf(t, s, limit); !r.Sharing || r.Max != 2 {
		t.Errorf("when it is over: %+v", r)
	}
}

// TestACountThatForgetsALimitBlocksNoKey lets a count that has found a limit without keys
// wait for another count.
func TestACountThatForgetsALimitBlocksNoKey(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	s, dsn := bounded(t, 1000)
	sweep(t, s)
	empty, other := headgate.MustParse("fixed-window 10/365d"), headgate.MustParse("fixed-window 11/365d")
	conn := connect(t, dsn)
	if _, err := conn.Exec(t.Context(), "insert into headgate.rooms (limit_name) values ($1), ($2)", empty.Name(),
		other.Name()); err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "insert into headgate.key_counts values ($1, 0, 0, 0)",
		other.Name()); err != nil {
		t.Fatal(err)
	}
	counted := make(chan error, 1)
	go func() {
		_, err := s.Sweep(context.Background(), 100)
		counted <- err
	}()
	waitsForLock(t, connect(t, dsn))
	takes(t, s, empty, "new")
	if err := tx.Rollback(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-counted; err != nil {
		t.Error(err)
	}
}

// TestASharedCellThatSomebodyDeletes deletes the shared cell, the only way in SQL to clear it.
func TestASharedCellThatSomebodyDeletes(t *testing.T) {
	t.Parallel()
	s, dsn := bounded(t, 5)
	limit := headgate.MustParse("fixed-window 2/365d")
	fillKeys(t, s, limit, "own", 5)
	sweep(t, s)
	for range 2 {
		takes(t, s, limit, "new")
	}
	conn := connect(t, dsn)
	if _, err := conn.Exec(t.Context(), "delete from headgate.cells where key like 'headgate:shared:%'"); err != nil {
		t.Fatal(err)
	}
	l := headgate.New(s, nil)
	for i, want := range []bool{true, true, false} {
		if d, err := l.Allow(t.Context(), limit, "newer"); err != nil || d.Allowed != want || !d.Shared {
			t.Errorf("take %d: %+v, %v", i+1, d, err)
		}
	}
	if _, err := conn.Exec(t.Context(), "delete from headgate.cells"); err != nil {
		t.Fatal(err)
	}
	var allowed bool
	if err := conn.QueryRow(t.Context(), "select allowed from headgate.check($1, 'newest')", limit.Name()).Scan(
		&allowed); err != nil || !allowed {
		t.Errorf("check: %v, %v", allowed, err)
	}
	sweep(t, s)
	if r := roomOf(t, s, limit); r.Sharing || r.Keys != 0 {
		t.Errorf("all cells were deleted: %+v", r)
	}
}

// TestALimitSharesOnlyWhenAllKeysAreSeen lets a transaction make a key, and stay open
// while its limit becomes full: nobody can see that key, so the limit must not share yet.
// One whose snapshot is from before it shared must make no key.
func TestALimitSharesOnlyWhenAllKeysAreSeen(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			s, dsn := bounded(t, 2)
			limit := headgate.MustParse("fixed-window 10/365d")
			fillKeys(t, s, limit, "own", 1)
			sweep(t, s)
			take := func(tx pgx.Tx, key string) (out law.Outcome, err error) {
				outs := make([]law.Outcome, 1)
				op := law.Op{
					Verb: law.Take, Cell: law.Cell{Limit: limit.Name(), Key: key}, Params: limit.Params(),
					Cost: limit.Params().Unit, Count: 1,
				}
				err = s.InTx(tx).Apply(t.Context(), []law.Op{op}, outs)
				return outs[0], errors.Join(err, outs[0].Err)
			}
			early, late := begun(t, dsn, level), begun(t, dsn, level)
			if out, err := take(early, "early"); err != nil || out.Granted != 1 || out.Shared {
				t.Fatalf("%+v, %v", out, err)
			}
			fillKeys(t, s, limit, "own", 2)
			sweep(t, s)
			if roomOf(t, s, limit).Sharing {
				t.Error("the limit shares while a transaction that has made a key is open")
			}
			if err := early.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			waitUntilShared(t, s, limit)
			if out, err := take(late, "late"); err == nil && !out.Shared || err != nil &&
				!errors.Is(err, store.ErrConflict) {
				t.Errorf("a transaction that was begun before that: %+v, %v", out, err)
			}
		})
	}
}

// TestNoLimitSharesBeforeAllKnowOfTheMaximum sets a maximum while transactions are open
// that were begun without one: they make keys without a lock of the room.
func TestNoLimitSharesBeforeAllKnowOfTheMaximum(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	before := openAt(t, dsn)
	limit := headgate.MustParse("fixed-window 10/365d")
	made := inOpenTx(t, before, dsn, limit, "made")
	old := begun(t, dsn, pgx.RepeatableRead)
	if _, err := old.Exec(t.Context(), "select count(*) from headgate.settings"); err != nil {
		t.Fatal(err)
	}
	s := openWith(t, dsn, 1)
	fillKeys(t, s, limit, "own", 1)
	for _, tx := range []pgx.Tx{made, old} {
		for range 3 {
			sweep(t, s)
		}
		if roomOf(t, s, limit).Sharing {
			t.Error("the limit shares while a transaction is open that knows of no maximum")
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	waitUntilShared(t, s, limit)
}

// waitUntilShared sweeps until a limit that is full shares: transactions of the server's own, such as
// those of autovacuum, may be open for a while.
func waitUntilShared(t *testing.T, s *postgres.Store, limit headgate.Limit) {
	t.Helper()
	await.Until(t, "the limit to share", func() bool {
		sweep(t, s)
		return roomOf(t, s, limit).Sharing
	})
}

// TestAPeriodDoesNotEndWhileItsCellCounts asks for the end of a period, as one does who has
// counted some time ago, while its cell counts, and while a transaction is about to charge
// it.
func TestAPeriodDoesNotEndWhileItsCellCounts(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	s, dsn := bounded(t, 1)
	conn := connect(t, dsn)
	ended := func(limit headgate.Limit) (ended bool) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), "select headgate.end_sharing_1($1)", limit.Name()).Scan(
			&ended); err != nil {
			t.Fatal(err)
		}
		return ended
	}
	slow, quick := headgate.MustParse("fixed-window 10/365d"), headgate.MustParse("token-bucket 1000/s burst 10")
	for _, limit := range []headgate.Limit{slow, quick} {
		if _, err := conn.Exec(t.Context(),
			"insert into headgate.cells (limit_name, key, empty_at) values ($1, 'own', 9e15::bigint)",
			limit.Name()); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "insert into headgate.rooms (limit_name) values ($1)",
			limit.Name()); err != nil {
			t.Fatal(err)
		}
	}
	sweep(t, s)
	if fillKeys(t, s, slow, "new", 1) != 0 || fillKeys(t, s, quick, "new", 1) != 0 {
		t.Fatal("the limits do not share")
	}
	if ended(slow) {
		t.Error("it ended while its cell counted")
	}
	tx := begun(t, dsn, pgx.ReadCommitted)
	if _, err := tx.Exec(t.Context(), "select from headgate.cells where limit_name = $1 and key = "+
		"'headgate:shared:1' for update", quick.Name()); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the cell to be empty", func() (empty bool) {
		if err := conn.QueryRow(t.Context(), `select empty_at < (extract(epoch from clock_timestamp()) * 1000000)::bigint
			from headgate.cells where limit_name = $1 and key = 'headgate:shared:1'`, quick.Name()).Scan(&empty); err != nil {
			t.Fatal(err)
		}
		return empty
	})
	if ended(quick) {
		t.Error("it ended while a transaction held its cell")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !ended(quick) {
		t.Error("it does not end")
	}
}
