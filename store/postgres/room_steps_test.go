package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/postgres"
)

// onlyOne is a limit of which a key passes one in the time of a test.
var onlyOne = headgate.MustParse("fixed-window 1/365d")

// takeIn takes one of a key, and returns whether it passed.
func takeIn(tb testing.TB, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, key string,
) (allowed bool) {
	tb.Helper()
	if err := db.QueryRow(context.Background(), `select allowed from headgate.take($1, $2)`, onlyOne.Name(), key).Scan(
		&allowed); err != nil {
		tb.Error(err)
	}
	return allowed
}

// TestAMaximumAndACountInOneTransaction do not let a limit share beside a transaction
// that began before they were committed.
func TestAMaximumAndACountInOneTransaction(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	dsn := migrated.Postgres(t)
	s := openAt(t, dsn)
	setter, old := connect(t, dsn), connect(t, dsn)
	fillKeys(t, s, onlyOne, "own", 2)
	for _, step := range []struct {
		conn *pgx.Conn
		sql  string
	}{
		{setter, "begin"},
		{setter, "select headgate.set_max_keys_1(2)"},
		{setter, "select headgate.sweep(10)"},
		{setter, "select headgate.sweep(10)"},
		{old, "begin isolation level repeatable read"},
		{old, "select"},
		{setter, "commit"},
	} {
		if _, err := step.conn.Exec(t.Context(), step.sql); err != nil {
			t.Fatal(err)
		}
	}
	takeIn(t, setter, "another") // makes the room
	for range 3 {
		sweep(t, s)
		if r := roomOf(t, s, onlyOne); r.Sharing {
			t.Fatalf("it shares: %+v", r)
		}
	}
	if !takeIn(t, old, "k") {
		t.Error("the first of a key was refused")
	}
	if _, err := old.Exec(t.Context(), "commit"); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, func() bool { return roomOf(t, s, onlyOne).Sharing })
	if takeIn(t, setter, "k") {
		t.Error("the second of a key has passed")
	}
}

// TestALimitBeginsToShareInAFlood of transactions that stay open for a while, so that at
// each time one of them has made a cell.
func TestALimitBeginsToShareInAFlood(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	s, dsn := bounded(t, 50)
	fillKeys(t, s, onlyOne, "own", 1)
	sweep(t, s)
	sweep(t, s) // now every transaction that is open has seen the maximum
	flood, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for w := range 16 {
		conn := connect(t, dsn)
		wg.Go(func() {
			for i := 0; flood.Err() == nil; i++ {
				err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
					takeIn(t, tx, fmt.Sprint(w, "-", i))
					_, err := tx.Exec(context.Background(), "select pg_sleep(0.1 + 0.2 * random())")
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	eventually(t, s, func() bool { return roomOf(t, s, onlyOne).Sharing })
	stop()
	wg.Wait()
}

// TestAFloodHoldsUpNoCount has transactions lock the room of a limit, one after the other and without a gap.
func TestAFloodHoldsUpNoCount(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	s, dsn := bounded(t, 1)
	fillKeys(t, s, onlyOne, "own", 1)
	flood, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	// Many transactions in one query of each session, the sessions half a second apart: this process, which may pause,
	// is no part of it. If it pauses when one of the queries is over, the others still last for a while.
	const query = "begin; select from headgate.rooms for key share; select pg_sleep(0.2); commit; "
	for i := range 4 {
		conn := connect(t, dsn)
		wg.Go(func() {
			_, err := conn.Exec(context.Background(), fmt.Sprintf("select pg_sleep(%d * 0.5)", i))
			queries := strings.Repeat(query, 15)
			for ; err == nil && flood.Err() == nil; _, err = conn.Exec(context.Background(), queries) {
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	waiting := connect(t, dsn)
	await.Until(t, "the flood", func() (begun bool) {
		if err := waiting.QueryRow(t.Context(), `select count(*) = 4 from pg_stat_activity
			where datname = current_database() and query like '`+query+`%'`).Scan(&begun); err != nil {
			t.Fatal(err)
		}
		return begun
	})
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	for _, call := range []string{"begin_sharing_1", "end_sharing_1"} {
		_, err := connect(t, dsn).Exec(ctx, "select headgate."+call+"($1)", onlyOne.Name())
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "55P03" {
			t.Errorf("%s: %v, want 55P03", call, err)
		}
	}
	stop()
	wg.Wait()
}

// TestACellThatIsMadeMeanwhileIsTheKeysOwn lets a limit begin to share, and a key get a
// cell, between the look of a take for its cell and its look whether the limit shares.
func TestACellThatIsMadeMeanwhileIsTheKeysOwn(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	s, dsn := bounded(t, 2)
	fillKeys(t, s, onlyOne, "own", 1)
	sweep(t, s)
	sweep(t, s) // now every transaction that is open has seen the maximum
	conn := connect(t, dsn)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `select from headgate.rooms where limit_name = $1 for update`,
		onlyOne.Name()); err != nil {
		t.Fatal(err)
	}
	passed, taker := make(chan bool), connect(t, dsn)
	go func() { passed <- takeIn(t, taker, "k") }()
	waitsForLock(t, connect(t, dsn))
	for _, sql := range []string{
		`insert into headgate.cells (limit_name, key, law, level, at, unit, step, empty_at)
			select limit_name, 'k', law, level, at, unit, step, empty_at from headgate.cells where limit_name = $1 and key = 'own0'`,
		`select headgate.begin_sharing_1($1)`,
	} {
		if tag, err := tx.Exec(t.Context(), sql, onlyOne.Name()); err != nil || tag.RowsAffected() != 1 {
			t.Fatal(tag, err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if <-passed {
		t.Error("the key has passed by the shared cell, and has one of its own")
	}
	if !roomOf(t, s, onlyOne).Sharing {
		t.Errorf("it does not share: nothing was tested: %+v", roomOf(t, s, onlyOne))
	}
}

// eventually sweeps until something holds.
func eventually(t *testing.T, s *postgres.Store, holds func() bool) {
	t.Helper()
	await.Until(t, "what a sweep brings about", func() bool {
		if holds() {
			return true
		}
		sweep(t, s)
		return false
	})
}

// waitsForLock waits until a session of the database waits for a lock.
func waitsForLock(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	await.Until(t, "a session that waits for a lock", func() (waits bool) {
		if err := conn.QueryRow(t.Context(), `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
}

// waitsFor waits until a session waits for what another one has locked.
func waitsFor(t *testing.T, watcher, holder *pgx.Conn) {
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

// TestASlowCountOfFewKeysIsRepeated because it was the machine that was slow: in the pause
// after it a flood would make several times as many keys as the limit may have.
func TestASlowCountOfFewKeysIsRepeated(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	s, dsn := bounded(t, 20)
	fillKeys(t, s, onlyOne, "own", 9)
	sweep(t, s)
	conn := connect(t, dsn)
	tag, err := conn.Exec(t.Context(), `update headgate.key_counts set took = 3600000000 where keys = 9`)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%v, %v; want one count of 9 keys", tag, err)
	}
	fillKeys(t, s, onlyOne, "more", 11)
	sweep(t, s)
	if r := roomOf(t, s, onlyOne); r.Keys != 20 || !r.Sharing {
		t.Errorf("%+v; want 20 keys, and that it shares", r)
	}
}
