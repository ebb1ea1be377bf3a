package mysql_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// hookConnector is a connector that counts the texts that its connections query, and calls a hook between the two texts
// of a batch.
type hookConnector struct {
	driver.Connector
	texts   atomic.Int64
	pattern string                      // hook is called before each text with this part; empty: COMMIT;
	hook    func(driver.QueryerContext) // nil: none
}

// hookConn is a connection of a hookConnector.
type hookConn struct {
	driver.Conn
	connector *hookConnector
}

func (h *hookConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := h.Connector.Connect(ctx)
	return &hookConn{c, h}, err
}

func (c *hookConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *hookConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	conn := c.Conn.(driver.QueryerContext)
	c.connector.texts.Add(1)
	if c.connector.hook != nil && strings.Contains(query, cmp.Or(c.connector.pattern, "COMMIT;")) {
		c.connector.hook(conn)
	}
	return conn.QueryContext(ctx, query, args)
}

// openWithHook returns a store over the pool of a hookConnector, and the hookConnector.
func openWithHook(t *testing.T, url string) (*mysql.Store, *hookConnector) {
	t.Helper()
	h := &hookConnector{Connector: newConnector(t, url)}
	db := sql.OpenDB(h)
	t.Cleanup(func() { db.Close() })
	return mysql.New(db, nil), h
}

// windowOp returns an op that takes a cost of 1 of a window, which rows decide.
func windowOp(key string) law.Op {
	return law.Op{
		Verb: law.Take, Cell: law.Cell{Limit: "l", Key: key}, Cost: 1, Count: 1,
		Params: law.Params{Kind: law.Window, Unit: 1, Capacity: 1_000_000, Step: 3_600_000_000},
	}
}

// applyOne applies a batch of one op, and returns its outcome, or the error of the batch or the op.
func applyOne(ctx context.Context, s store.Store, op law.Op) (law.Outcome, error) {
	outs := make([]law.Outcome, 1)
	err := s.Apply(ctx, []law.Op{op}, outs)
	return outs[0], errors.Join(err, outs[0].Err)
}

// TestBatchIsDecidedAgainIfItsTransactionEnds checks that a batch whose transaction ends between its two texts, while
// another store charges the same cell, does not write its decision, but is decided again.
func TestBatchIsDecidedAgainIfItsTransactionEnds(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{"rolled back": "ROLLBACK", "committed": "COMMIT", "begun again": "START TRANSACTION"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := migrated.MariaDB(t)
			otherStore := openStore(t, url)
			s, h := openWithHook(t, url)
			rounds, charged, attempts := tier.Pick(60, 340, 1000), int64(0), 0
			h.hook = func(conn driver.QueryerContext) {
				if attempts++; attempts%2 == 0 {
					return // the batch is decided again
				}
				if err := exhaust(conn.QueryContext(t.Context(), statement, nil)); err != nil {
					t.Error(err)
				}
				if _, err := applyOne(t.Context(), otherStore, windowOp("k")); err != nil {
					t.Error(err)
				}
				charged++
			}
			for range rounds {
				out, err := applyOne(t.Context(), s, windowOp("k"))
				charged++
				if err != nil || out.Used != charged {
					t.Fatalf("got %+v, %v; want %d used", out, err, charged)
				}
			}
			if got := s.Info().Retries; got != int64(rounds-1) { // a race for a new cell, as in the first, is none
				t.Errorf("got %d retries, want %d", got, rounds-1)
			}
		})
	}
}

// TestInTxWritesNothingAfterItsTransactionEnds checks that a batch of InTx fails and writes nothing if the caller's
// transaction ends between the batch's two texts.
func TestInTxWritesNothingAfterItsTransactionEnds(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	h := &hookConnector{Connector: newConnector(t, url)}
	db := sql.OpenDB(h)
	t.Cleanup(func() { db.Close() })
	s := mysql.New(db, nil)
	if _, err := applyOne(t.Context(), s, windowOp("k")); err != nil {
		t.Fatal(err)
	}
	tx := beginTx(t, db)
	h.pattern, h.hook = "RELEASE SAVEPOINT", func(conn driver.QueryerContext) {
		if err := exhaust(conn.QueryContext(t.Context(), "ROLLBACK", nil)); err != nil {
			t.Error(err)
		}
	}
	if out, err := applyOne(t.Context(), s.InTx(tx), windowOp("k")); err == nil {
		t.Errorf("got %+v, want an error", out)
	}
	h.hook = nil
	_ = tx.Rollback()
	if out, err := applyOne(t.Context(), s, windowOp("k")); err != nil || out.Used != 2 {
		t.Errorf("the next charge: got %+v, %v; want two charges", out, err)
	}
}

// TestConnectionKilledBetweenTheTextsChargesNothing checks that a batch fails and charges nothing if its connection is
// killed between its two texts.
func TestConnectionKilledBetweenTheTextsChargesNothing(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	db := openPlainDB(t, url)
	s, h := openWithHook(t, url)
	h.hook = func(conn driver.QueryerContext) {
		rows, err := conn.QueryContext(t.Context(), "SELECT CONNECTION_ID()", nil)
		if err != nil {
			t.Error(err)
			return
		}
		id := make([]driver.Value, 1)
		err = rows.Next(id)
		if err = errors.Join(err, rows.Close()); err != nil {
			t.Error(err)
		}
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf("KILL CONNECTION %v", id[0])); err != nil {
			t.Error(err)
		}
	}
	for range tier.Pick(20, 100, 1000) {
		if out, err := applyOne(t.Context(), s, windowOp("k")); err == nil {
			t.Fatalf("got %+v, want an error", out)
		}
	}
	h.hook = nil
	if out, err := applyOne(t.Context(), s, windowOp("k")); err != nil || out.Used != 1 {
		t.Errorf("the next charge: got %+v, %v; want the only charge", out, err)
	}
}

// TestBatchIsDecidedAgainAfterARaceForANewCell checks that a batch is decided again, with the other charge, if another
// store makes its cell between its two texts.
func TestBatchIsDecidedAgainAfterARaceForANewCell(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	otherStore := openStore(t, url)
	s, h := openWithHook(t, url)
	raced := false
	h.hook = func(driver.QueryerContext) {
		if !raced {
			raced = true
			if _, err := applyOne(t.Context(), otherStore, windowOp("new")); err != nil {
				t.Error(err)
			}
		}
	}
	if out, err := applyOne(t.Context(), s, windowOp("new")); err != nil || out.Used != 2 {
		t.Errorf("got %+v, %v; want both charges", out, err)
	}
}

// TestNewCellsOfManyStoresAreExact checks that 24 callers of four stores, who race for 60 missing cells of capacity 5,
// are admitted 300 times.
func TestNewCellsOfManyStoresAreExact(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	const keys, capacity = 60, 5
	var wg sync.WaitGroup
	var granted atomic.Int64
	for range 4 {
		s := openStore(t, url)
		for range 6 {
			wg.Go(func() {
				for k := range keys {
					op := windowOp(fmt.Sprint(k))
					op.Params.Capacity = capacity
					out, err := applyOne(context.Background(), s, op)
					if err != nil {
						t.Error(err)
					}
					granted.Add(out.Granted)
				}
			})
		}
	}
	wg.Wait()
	if got := granted.Load(); got != keys*capacity {
		t.Errorf("got %d admissions, want %d", got, keys*capacity)
	}
}

// TestRoundTrips checks how many texts, each of which is a round trip, a store sends for batches of several verbs.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	s, h := openWithHook(t, migrated.MariaDB(t))
	log := law.Params{Kind: law.Log, Unit: 1, Capacity: 3, Step: 3_600_000_000}
	newOp := func(verb law.Verb, key string, p law.Params, cost int64, id string) law.Op {
		op := law.Op{Verb: verb, Cell: law.Cell{Limit: "l", Key: key}, Params: p, Cost: cost, Count: 1, ID: id}
		if id != "" && verb != law.Settle {
			op.TTL = 3_600_000_000
		}
		return op
	}
	window := windowOp("w").Params
	if _, err := applyOne(t.Context(), s, newOp(law.Check, "w", window, 1, "")); err != nil { // the first batch also examines the server
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		ops   []law.Op
		texts int64
	}{
		{"a new key", []law.Op{newOp(law.Take, "w", window, 1, "")}, 2},
		{"an existing key", []law.Op{newOp(law.Take, "w", window, 1, "")}, 2},
		{"a check", []law.Op{newOp(law.Check, "w", window, 1, "")}, 1},
		{"a check of a missing key", []law.Op{newOp(law.Check, "none", window, 1, "")}, 1},
		{"a refusal", []law.Op{newOp(law.Take, "w", window, 1_000_000, "")}, 2},
		{"a log", []law.Op{newOp(law.Take, "g", log, 1, "")}, 2},
		{"a log with an id", []law.Op{newOp(law.Take, "g", log, 1, "id")}, 2},
		{"the id is extended", []law.Op{newOp(law.Extend, "g", log, 2, "id")}, 2},
		{"the id is settled", []law.Op{newOp(law.Settle, "g", log, 1, "id")}, 2},
		{"a log twice", []law.Op{newOp(law.Take, "g2", log, 1, ""), newOp(law.Take, "g2", log, 1, "")}, 2},
		{"a refusal of a log, which reads when the cost fits", []law.Op{newOp(law.Take, "g", log, 2, "")}, 3},
		{"two refusals of a log, in one read", []law.Op{newOp(law.Take, "g", log, 2, ""), newOp(law.Take, "g", log, 3, "")}, 3},
		{"an unknown id", []law.Op{newOp(law.Settle, "g", log, 1, "none")}, 2},
		{"a block", []law.Op{{Verb: law.Block, Cell: law.Cell{Limit: "l", Key: "w"}, Params: window, TTL: 5, Cost: 1, Count: 1}}, 2},
		{"a reset", []law.Op{{Verb: law.Reset, Cell: law.Cell{Limit: "l", Key: "w"}, Params: window, Cost: 1, Count: 1}}, 2},
		{"no valid op", []law.Op{newOp(law.Take, "w", window, 0, "")}, 0},
	} {
		for i := range tt.ops {
			tt.ops[i].Group = uint32(i)
		}
		before := h.texts.Load()
		if err := s.Apply(t.Context(), tt.ops, make([]law.Outcome, len(tt.ops))); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := h.texts.Load() - before; got != tt.texts {
			t.Errorf("%s: got %d texts, want %d", tt.name, got, tt.texts)
		}
	}
}

// TestServerEndsTheSessionOfAStoppedProcess checks that the server ends the session of a process that stops while it
// holds a row, after a second: another process then charges the row's key, and other keys without a wait.
func TestServerEndsTheSessionOfAStoppedProcess(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	proxy, otherStore := dbtest.StartProxy(t, host, "COMMIT;"), openStore(t, url)
	stoppedStore := openAndMigrate(t, "mysql://root@"+proxy.Addr+"/"+name)
	for _, s := range []store.Store{stoppedStore, otherStore} {
		if _, err := applyOne(t.Context(), s, windowOp("k")); err != nil {
			t.Fatal(err)
		}
	}
	db := openPlainDB(t, url)
	if err := db.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Silence(true)
	done := make(chan error, 1)
	go func() {
		_, err := applyOne(context.Background(), stoppedStore, windowOp("k"))
		done <- err
	}()
	await.Until(t, "the row to be held", func() bool { // for a second
		_, err := db.ExecContext(t.Context(), "SELECT 1 FROM headgate_cells WHERE cell_key = 'k' FOR UPDATE NOWAIT")
		return err != nil
	})
	if out, err := applyOne(t.Context(), otherStore, windowOp("another")); err != nil || out.Used != 1 {
		t.Errorf("another key: got %+v, %v; want one charge", out, err)
	}
	if out, err := applyOne(t.Context(), otherStore, windowOp("k")); err != nil || out.Used != 3 {
		t.Errorf("the same key: got %+v, %v; want three charges", out, err)
	}
	proxy.Silence(false)
	if err := await.Receive(t, "the process that was stopped", done); err == nil {
		t.Error("the stopped process: got no error, want none of its decision written")
	}
	if out, err := applyOne(t.Context(), otherStore, windowOp("k")); err != nil || out.Used != 4 {
		t.Errorf("the next charge: got %+v, %v; want four charges", out, err)
	}
}
