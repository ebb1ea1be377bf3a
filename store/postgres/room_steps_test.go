package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/dbtest"
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
	t.Parallel()
	dsn := dbtest.Postgres(t)
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
					time.Sleep(time.Duration(100+rand.IntN(200)) * time.Millisecond)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	begin := time.Now()
	eventually(t, s, func() bool { return roomOf(t, s, onlyOne).Sharing })
	if took := time.Since(begin); took > 40*time.Second {
		t.Errorf("it began to share after %v", took)
	}
	stop()
	wg.Wait()
}

// TestAFloodHoldsUpNoCount has transactions lock the room of a limit, one after the other and without a gap.
func TestAFloodHoldsUpNoCount(t *testing.T) {
	t.Parallel()
	s, dsn := bounded(t, 1)
	fillKeys(t, s, onlyOne, "own", 1)
	flood, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	// Many transactions in one query of each session, the sessions half a second apart: this process, which may pause,
	// is no part of it. If it pauses when one of the queries is over, the others still last for a while.
	const query = "begin; select from headgate.rooms for key share; select pg_sleep(0.2); commit; "
	for range 4 {
		conn := connect(t, dsn)
		wg.Go(func() {
			for flood.Err() == nil {
				if _, err := conn.Exec(context.Background(), strings.Repeat(query, 15)); err != nil {
					t.Error(err)
				}
			}
		})
		time.Sleep(500 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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
	for end := time.Now().Add(time.Minute); !holds(); sweep(t, s) {
		if time.Now().After(end) {
			t.Fatalf("still after a minute: %+v", roomOf(t, s, onlyOne))
		}
	}
}

// waitsForLock waits until a session of the database waits for a lock.
func waitsForLock(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var n int
		err := conn.QueryRow(t.Context(),
			`select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
	t.Fatal("no session waits for a lock")
}

// TestASlowCountOfFewKeysIsRepeated because it was the machine that was slow: in the pause
// after it a flood would make several times as many keys as the limit may have.
func TestASlowCountOfFewKeysIsRepeated(t *testing.T) {
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
