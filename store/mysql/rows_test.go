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

// between is a connector that counts the texts of its connections, and calls a function between the two texts of a
// batch.
type between struct {
	driver.Connector
	texts  atomic.Int64
	before string // what the text has before which do is called; empty: that of a COMMIT
	do     func(driver.QueryerContext)
}

type betweenConn struct {
	driver.Conn
	b *between
}

func (b *between) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := b.Connector.Connect(ctx)
	return &betweenConn{c, b}, err
}

func (c *betweenConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *betweenConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	ask := c.Conn.(driver.QueryerContext)
	c.b.texts.Add(1)
	if c.b.do != nil && strings.Contains(query, cmp.Or(c.b.before, "COMMIT;")) {
		c.b.do(ask)
	}
	return ask.QueryContext(ctx, query, args)
}

// openBetween returns a store over a pool whose texts are counted.
func openBetween(t *testing.T, url string) (*mysql.Store, *between) {
	t.Helper()
	b := &between{Connector: connector(t, url)}
	db := sql.OpenDB(b)
	t.Cleanup(func() { db.Close() })
	return mysql.New(db, nil), b
}

// inWindow returns a charge of one unit that is decided by rows.
func inWindow(key string) law.Op {
	return law.Op{
		Verb: law.Take, Cell: law.Cell{Limit: "l", Key: key}, Cost: 1, Count: 1,
		Params: law.Params{Kind: law.Window, Unit: 1, Capacity: 1_000_000, Step: 3_600_000_000},
	}
}

func decideOne(ctx context.Context, s store.Store, op law.Op) (law.Outcome, error) {
	outs := make([]law.Outcome, 1)
	err := s.Apply(ctx, []law.Op{op}, outs)
	return outs[0], errors.Join(err, outs[0].Err)
}

// TestATransactionThatEndsBetweenTheTexts ends the transaction of a batch between its texts, while another process
// charges the same cell: the batch's decision must not be written.
func TestATransactionThatEndsBetweenTheTexts(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{"rolled back": "ROLLBACK", "committed": "COMMIT", "begun again": "START TRANSACTION"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := migrated.MariaDB(t)
			other := openUnmigrated(t, url)
			s, b := openBetween(t, url)
			rounds, charged, n := tier.Pick(60, 340, 1000), int64(0), 0
			b.do = func(ask driver.QueryerContext) {
				if n++; n%2 == 0 {
					return // the batch is decided again
				}
				if err := exhaust(ask.QueryContext(t.Context(), end, nil)); err != nil {
					t.Error(err)
				}
				if _, err := decideOne(t.Context(), other, inWindow("k")); err != nil {
					t.Error(err)
				}
				charged++
			}
			for range rounds {
				out, err := decideOne(t.Context(), s, inWindow("k"))
				charged++
				if err != nil || out.Used != charged {
					t.Fatalf("%+v, %v; want %d used", out, err, charged)
				}
			}
			if got := s.Info().Retries; got != int64(rounds-1) { // the first found that its cell had been made
				t.Errorf("%d of %d batches were decided again", got, rounds-1)
			}
		})
	}
}

// TestATransactionOfTheCallersThatEndsBetweenTheTexts ends the caller's transaction between the texts: nothing may be
// written outside of it.
func TestATransactionOfTheCallersThatEndsBetweenTheTexts(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	b := &between{Connector: connector(t, url)}
	db := sql.OpenDB(b)
	t.Cleanup(func() { db.Close() })
	s := mysql.New(db, nil)
	if _, err := decideOne(t.Context(), s, inWindow("k")); err != nil {
		t.Fatal(err)
	}
	tx := beginTx(t, db)
	b.before, b.do = "RELEASE SAVEPOINT", func(ask driver.QueryerContext) {
		if err := exhaust(ask.QueryContext(t.Context(), "ROLLBACK", nil)); err != nil {
			t.Error(err)
		}
	}
	if out, err := decideOne(t.Context(), s.InTx(tx), inWindow("k")); err == nil {
		t.Errorf("%+v, want an error", out)
	}
	b.do = nil
	_ = tx.Rollback()
	if out, err := decideOne(t.Context(), s, inWindow("k")); err != nil || out.Used != 2 {
		t.Errorf("then: %+v, %v; want two charges", out, err)
	}
}

// TestAConnectionKilledBetweenTheTexts kills the connection of a batch between its texts: nothing of the batch may
// remain, or all of it.
func TestAConnectionKilledBetweenTheTexts(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	db := plainDB(t, url)
	s, b := openBetween(t, url)
	b.do = func(ask driver.QueryerContext) {
		rows, err := ask.QueryContext(t.Context(), "SELECT CONNECTION_ID()", nil)
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
		if out, err := decideOne(t.Context(), s, inWindow("k")); err == nil {
			t.Fatalf("%+v, want an error", out)
		}
	}
	b.do = nil
	if out, err := decideOne(t.Context(), s, inWindow("k")); err != nil || out.Used != 1 {
		t.Errorf("then: %+v, %v; want the only charge", out, err)
	}
}

// TestACellThatOthersMakeFirst lets others make a cell first: the batch must be decided again, with their charges.
func TestACellThatOthersMakeFirst(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	other := openUnmigrated(t, url)
	s, b := openBetween(t, url)
	once := true
	b.do = func(driver.QueryerContext) {
		if once {
			once = false
			if _, err := decideOne(t.Context(), other, inWindow("new")); err != nil {
				t.Error(err)
			}
		}
	}
	if out, err := decideOne(t.Context(), s, inWindow("new")); err != nil || out.Used != 2 {
		t.Errorf("%+v, %v; want both charges", out, err)
	}
}

// TestNewCellsOfManyProcesses lets several stores race for missing cells.
func TestNewCellsOfManyProcesses(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	const keys, most = 60, 5
	var wg sync.WaitGroup
	var granted atomic.Int64
	for range 4 {
		s := openUnmigrated(t, url)
		for range 6 {
			wg.Go(func() {
				for k := range keys {
					op := inWindow(fmt.Sprint(k))
					op.Params.Capacity = most
					out, err := decideOne(context.Background(), s, op)
					if err != nil {
						t.Error(err)
					}
					granted.Add(out.Granted)
				}
			})
		}
	}
	wg.Wait()
	if got := granted.Load(); got != keys*most {
		t.Errorf("%d were admitted, want %d", got, keys*most)
	}
}

// TestRoundTrips counts the texts of batches of all kinds.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	s, b := openBetween(t, migrated.MariaDB(t))
	log := law.Params{Kind: law.Log, Unit: 1, Capacity: 3, Step: 3_600_000_000}
	of := func(verb law.Verb, key string, p law.Params, cost int64, id string) law.Op {
		op := law.Op{Verb: verb, Cell: law.Cell{Limit: "l", Key: key}, Params: p, Cost: cost, Count: 1, ID: id}
		if id != "" && verb != law.Settle {
			op.TTL = 3_600_000_000
		}
		return op
	}
	window := inWindow("w").Params
	if _, err := decideOne(t.Context(), s, of(law.Check, "w", window, 1, "")); err != nil { // the server is looked at once
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		ops   []law.Op
		texts int64
	}{
		{"a new key", []law.Op{of(law.Take, "w", window, 1, "")}, 2},
		{"a known key", []law.Op{of(law.Take, "w", window, 1, "")}, 2},
		{"a check", []law.Op{of(law.Check, "w", window, 1, "")}, 1},
		{"a check of a key that is not there", []law.Op{of(law.Check, "none", window, 1, "")}, 1},
		{"a refusal", []law.Op{of(law.Take, "w", window, 1_000_000, "")}, 2},
		{"a log", []law.Op{of(law.Take, "g", log, 1, "")}, 2},
		{"a log with an id", []law.Op{of(law.Take, "g", log, 1, "id")}, 2},
		{"that is extended", []law.Op{of(law.Extend, "g", log, 2, "id")}, 2},
		{"and settled", []law.Op{of(law.Settle, "g", log, 1, "id")}, 2},
		{"a log twice", []law.Op{of(law.Take, "g2", log, 1, ""), of(law.Take, "g2", log, 1, "")}, 2},
		{"a log that refuses asks when it will not", []law.Op{of(law.Take, "g", log, 2, "")}, 3},
		{"it asks once for many", []law.Op{of(law.Take, "g", log, 2, ""), of(law.Take, "g", log, 3, "")}, 3},
		{"an unknown id", []law.Op{of(law.Settle, "g", log, 1, "none")}, 2},
		{"a block", []law.Op{{Verb: law.Block, Cell: law.Cell{Limit: "l", Key: "w"}, Params: window, TTL: 5, Cost: 1, Count: 1}}, 2},
		{"a reset", []law.Op{{Verb: law.Reset, Cell: law.Cell{Limit: "l", Key: "w"}, Params: window, Cost: 1, Count: 1}}, 2},
		{"nothing valid", []law.Op{of(law.Take, "w", window, 0, "")}, 0},
	} {
		for i := range tt.ops {
			tt.ops[i].Group = uint32(i)
		}
		before := b.texts.Load()
		if err := s.Apply(t.Context(), tt.ops, make([]law.Outcome, len(tt.ops))); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := b.texts.Load() - before; got != tt.texts {
			t.Errorf("%s: %d texts, want %d", tt.name, got, tt.texts)
		}
	}
}

// TestAProcessThatStopsBetweenTheTexts stops a process that holds rows: the server must end its session after a second.
// Other keys do not wait.
func TestAProcessThatStopsBetweenTheTexts(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	proxy, other := dbtest.Swallow(t, host, "COMMIT;"), openUnmigrated(t, url)
	stopped := openAt(t, "mysql://root@"+proxy.Addr+"/"+name)
	for _, s := range []store.Store{stopped, other} {
		if _, err := decideOne(t.Context(), s, inWindow("k")); err != nil {
			t.Fatal(err)
		}
	}
	watcher := plainDB(t, url)
	if err := watcher.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Silence(true)
	done := make(chan error, 1)
	go func() {
		_, err := decideOne(context.Background(), stopped, inWindow("k"))
		done <- err
	}()
	await.Until(t, "the row to be held", func() bool { // for a second
		_, err := watcher.ExecContext(t.Context(), "SELECT 1 FROM headgate_cells WHERE cell_key = 'k' FOR UPDATE NOWAIT")
		return err != nil
	})
	if out, err := decideOne(t.Context(), other, inWindow("another")); err != nil || out.Used != 1 {
		t.Errorf("another key: %+v, %v", out, err)
	}
	if out, err := decideOne(t.Context(), other, inWindow("k")); err != nil || out.Used != 3 {
		t.Errorf("the same key: %+v, %v; want three charges", out, err)
	}
	proxy.Silence(false)
	if err := await.Receive(t, "the process that was stopped", done); err == nil {
		t.Error("what was decided before the stop was written after it")
	}
	if out, err := decideOne(t.Context(), other, inWindow("k")); err != nil || out.Used != 4 {
		t.Errorf("then: %+v, %v; want four charges", out, err)
	}
}
