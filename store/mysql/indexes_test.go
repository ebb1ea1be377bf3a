package mysql_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/mysql"
)

// fillTables inserts as many cells, entries and admissions as rows says, and updates the server's statistics.
func fillTables(tb testing.TB, db *sql.DB, rows int) {
	tb.Helper()
	values := func(row func(n int) string) string {
		list := make([]string, rows)
		for n := range list {
			list[n] = row(n)
		}
		return " VALUES " + strings.Join(list, ", ")
	}
	for _, statement := range []string{
		"INSERT INTO headgate_cells (limit_name, cell_key, law, unit, empty_at)" +
			values(func(n int) string { return fmt.Sprintf("('many', '%d', 3, 1000, 9007199254740991)", n) }),
		"INSERT INTO headgate_entries (limit_name, cell_key, at, expires_at, keep_until, cost, granted)" +
			values(func(n int) string {
				return fmt.Sprintf("('many', '%d', 1, 9007199254740991, 9007199254740991, 1, 1)", n)
			}),
		"INSERT INTO headgate_admissions (limit_name, cell_key, id, print, rule, cost, outcome, settled, keep_until)" +
			values(func(n int) string {
				return fmt.Sprintf("('many', '%d', '%d', 1, '', 1, '', -1, 9007199254740991)", n%50, n)
			}),
		"ANALYZE TABLE headgate_cells, headgate_entries, headgate_admissions",
	} {
		mustExec(tb, db, statement)
	}
}

// TestHotStatementsUseAnIndex checks that batches of all verbs make the server read fewer rows than half a table has.
func TestHotStatementsUseAnIndex(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	db := openMultiDB(t, url)
	const rows = 5000 // of each table
	fillTables(t, db, rows)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	counters := []string{"Handler_read_rnd_next", "Handler_read_next", "Handler_read_first", "Handler_read_prev"}
	readCounter := func(counter string) (n int) {
		var name string
		if err := conn.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE '"+counter+"'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := map[string]int{}
	for _, counter := range counters {
		before[counter] = readCounter(counter)
	}
	setReadCommitted(t, conn)
	tx, err := conn.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	s := mysql.New(db, nil).InTx(tx)
	log := law.Params{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 60_000_000, History: 60_000_000}
	bucket := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1, Drain: 1}
	var takes []law.Op         // of the last batch of takes
	var takeOuts []law.Outcome // their outcomes
	withIDs := false           // the takes after the returns have ids
	for _, verb := range []law.Verb{
		law.Take, law.Check, law.Return, law.Take, law.Extend, law.Settle, law.Renew, law.Block,
		law.Reset,
	} {
		var ops []law.Op
		for i := range 20 {
			op := law.Op{
				Verb: verb, Group: uint32(i / 2), Cell: law.Cell{Limit: "many", Key: fmt.Sprint(7 * i)},
				Params: log, Cost: 1000, Count: 1 + int64(i%2)*9, TTL: 1000,
			}
			if i%4 > 1 {
				op.Cell.Limit, op.Params = "more", bucket
			}
			switch verb {
			case law.Take:
				if withIDs {
					op.ID, op.TTL, op.Count = "id", 60_000_000, 1
				}
			case law.Return:
				op = law.Back(&takes[i], &takeOuts[i], 500)
				if withIDs = true; i%3 == 0 {
					op.Cost = -500
				}
			case law.Extend:
				op.ID, op.TTL, op.Count, op.Cost = "id", 60_000_000, 1, 1500
			case law.Settle:
				op.ID, op.Count, op.Cost = "id", 1, 2000
			case law.Renew:
				if op.Params, op.EntryNumber = log, takeOuts[i].EntryNumber; op.EntryNumber == 0 {
					op.EntryNumber = 1
				}
			}
			ops = append(ops, op)
		}
		outs := make([]law.Outcome, len(ops))
		if err := s.Apply(t.Context(), ops, outs); err != nil {
			t.Fatal(err)
		}
		for _, out := range outs {
			if out.Err != nil {
				t.Fatal(out.Err)
			}
		}
		if verb == law.Take {
			takes, takeOuts = ops, outs
		}
	}
	for _, counter := range counters {
		n := readCounter(counter) - before[counter]
		t.Logf("%s %d", counter, n)
		if n > rows/2 {
			t.Errorf("%s: got %d rows for nine batches of 20, want less than half a table", counter, n)
		}
	}
}
