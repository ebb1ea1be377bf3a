package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
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
	if err := db.QueryRow(context.Background(), `select allowed from headgate.take($1, $2)`, onlyOne.Name(), key).Scan(&allowed); err != nil {
		tb.Error(err)
	}
	return allowed
}

// TestALimitDoesNotBeginToShareBesideAnOpenTransaction that has made a cell: others do
// not see the cell, and its key would pass a second time by the one that keys share. Nor
// beside one that does not see that there is a maximum, and makes cells without asking.
func TestALimitDoesNotBeginToShareBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		begin  string
		before bool // the maximum is set: it is seen
		makes  bool // a cell at once
	}{
		"that has made a cell":                 {"begin", true, true},
		"that has made one before the maximum": {"begin", false, true},
		"that has a snapshot from before":      {"begin isolation level repeatable read", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.Postgres(t)
			s := openAt(t, dsn)
			open, other := connect(t, dsn), connect(t, dsn)
			run := func(conn *pgx.Conn, sql string) {
				t.Helper()
				if _, err := conn.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			if tt.before { // with a key that makes the room, else others would wait for it
				run(other, "select headgate.set_max_keys(2)")
				takeIn(t, other, "first")
				sweep(t, s) // notes which transactions are open, which may not have seen the maximum
				sweep(t, s)
			}
			run(open, tt.begin)
			run(open, "select")
			if tt.makes && !takeIn(t, open, "k") {
				t.Error("the first of a key was refused")
			}
			if !tt.before {
				run(other, "select headgate.set_max_keys(2)")
			}
			fillKeys(t, s, onlyOne, "own", 2)
			for range 3 {
				sweep(t, s)
				if r := roomOf(t, s, onlyOne); r.Sharing {
					t.Fatalf("it shares: %+v", r)
				}
			}
			if !tt.makes && !takeIn(t, open, "k") {
				t.Error("the first of a key was refused")
			}
			run(open, "commit")
			eventually(t, s, func() bool { return roomOf(t, s, onlyOne).Sharing })
			if takeIn(t, other, "k") {
				t.Error("the second of a key has passed")
			}
		})
	}
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
		{setter, "select headgate.set_max_keys(2)"},
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
	s, dsn := bounded(t, 10)
	fillKeys(t, s, onlyOne, "own", 10)
	sweep(t, s)
	flood, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for w := range 8 {
		conn := connect(t, dsn)
		wg.Go(func() {
			for i := 0; flood.Err() == nil; i++ {
				err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
					takeIn(t, tx, fmt.Sprint(w, "-", i))
					time.Sleep(100 * time.Millisecond)
					return nil
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
	if _, err := tx.Exec(t.Context(), `select from headgate.rooms where limit_name = $1 for update`, onlyOne.Name()); err != nil {
		t.Fatal(err)
	}
	passed, taker := make(chan bool), connect(t, dsn)
	go func() { passed <- takeIn(t, taker, "k") }()
	waitsForLock(t, connect(t, dsn))
	for _, sql := range []string{
		`insert into headgate.cells select (jsonb_populate_record(c, '{"key": "k"}')).* from headgate.cells c where limit_name = $1 and key = 'own0'`,
		`select headgate.begin_sharing($1)`,
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

// TestSharingDoesNotEndBesideAnOpenTransaction that has charged the shared cell: others
// see it as it was before.
func TestSharingDoesNotEndBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	for i, end := range []string{"commit", "rollback", "commit", "rollback"} {
		s, dsn := bounded(t, 2)
		open, other := connect(t, dsn), connect(t, dsn)
		fillKeys(t, s, onlyOne, "own", 2)
		eventually(t, s, func() bool { return roomOf(t, s, onlyOne).Sharing })
		tx, err := open.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if i < 2 { // locks the room too
			if !takeIn(t, tx, "k") {
				t.Error("the first of a key was refused")
			}
		} else {
			op := law.Op{Verb: law.Take, Cell: law.SharedCell(onlyOne.Name(), 1), Params: onlyOne.Params(), Cost: onlyOne.Params().Unit, Count: 1}
			outs := make([]law.Outcome, 1)
			if err := s.InTx(tx).Apply(t.Context(), []law.Op{op}, outs); err != nil || outs[0].Granted != 1 {
				t.Errorf("the shared cell: %+v, %v", outs[0], err)
			}
		}
		if _, err := other.Exec(t.Context(), `select headgate.reset($1, 'own0'), headgate.reset($1, 'own1')`, onlyOne.Name()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			sweep(t, s)
			if r := roomOf(t, s, onlyOne); !r.Sharing {
				t.Fatalf("it does not share any more: %+v", r)
			}
		}
		if _, err := tx.Exec(t.Context(), end); err != nil {
			t.Fatal(err)
		}
		if end == "rollback" {
			eventually(t, s, func() bool { return !roomOf(t, s, onlyOne).Sharing })
		}
		sweep(t, s)
		if got := takeIn(t, other, "k"); got != (end == "rollback") {
			t.Errorf("after %s: the key passes: %v", end, got)
		}
	}
}

// eventually sweeps until something holds.
func eventually(t *testing.T, s *postgres.Store, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); sweep(t, s) {
		if time.Now().After(end) {
			t.Fatalf("still after 20 s: %+v", roomOf(t, s, onlyOne))
		}
	}
}

// waitsForLock waits until a session of the database waits for a lock.
func waitsForLock(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var n int
		err := conn.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
	t.Fatal("no session waits for a lock")
}
