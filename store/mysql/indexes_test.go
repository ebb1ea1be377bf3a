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

// fillTables inserts many cells, entries and admissions, and updates the server's statistics.
func fillTables(tb testing.TB, db *sql.DB, many int) {
	tb.Helper()
	rows := func(row func(n int) string) string {
		list := make([]string, many)
		for n := range list {
			list[n] = row(n)
		}
		return " VALUES " + strings.Join(list, ", ")
	}
	for _, statement := range []string{
		"INSERT INTO headgate_cells (limit_name, cell_key, law, unit, empty_at)" +
			rows(func(n int) string { return fmt.Sprintf("('many', '%d', 3, 1000, 9007199254740991)", n) }),
		"INSERT INTO headgate_entries (limit_name, cell_key, at, expires_at, keep_until, cost, granted)" +
			rows(func(n int) string {
				return fmt.Sprintf("('many', '%d', 1, 9007199254740991, 9007199254740991, 1, 1)", n)
			}),
		"INSERT INTO headgate_admissions (limit_name, cell_key, id, print, rule, cost, outcome, settled, keep_until)" +
			rows(func(n int) string {
				return fmt.Sprintf("('many', '%d', '%d', 1, '', 1, '', -1, 9007199254740991)", n%50, n)
			}),
		"ANALYZE TABLE headgate_cells, headgate_entries, headgate_admissions",
	} {
		if _, err := db.ExecContext(tb.Context(), statement); err != nil {
			tb.Fatalf("%s: %v", statement, err)
		}
	}
}

// TestHotStatementsUseAnIndex counts the rows that the server reads for a batch among many cells and entries: as many
// as the batch needs, and never a whole table. The ops of a batch are a table too, which is read several times.
func TestHotStatementsUseAnIndex(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	db := pool(t, url)
	const many = 5000
	fillTables(t, db, many)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	counters := []string{"Handler_read_rnd_next", "Handler_read_next", "Handler_read_first", "Handler_read_prev"}
	read := func(counter string) (n int) {
		var name string
		if err := conn.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE '"+counter+"'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := map[string]int{}
	for _, counter := range counters {
		before[counter] = read(counter)
	}
	setReadCommitted(t, conn)
	tx, err := conn.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	s := mysql.New(db, nil).InTx(tx)
	p := law.Params{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 60_000_000, History: 60_000_000}
	b := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1, Drain: 1}
	var taken []law.Op
	var admitted []law.Outcome
	named := false
	for _, verb := range []law.Verb{
		law.Take, law.Check, law.Return, law.Take, law.Extend, law.Settle, law.Renew, law.Block,
		law.Reset,
	} {
		var ops []law.Op
		for i := range 20 {
			op := law.Op{
				Verb: verb, Group: uint32(i / 2), Cell: law.Cell{Limit: "many", Key: fmt.Sprint(7 * i)},
				Params: p, Cost: 1000, Count: 1 + int64(i%2)*9, TTL: 1000,
			}
			if i%4 > 1 {
				op.Cell.Limit, op.Params = "more", b
			}
			switch verb {
			case law.Take:
				if named {
					op.ID, op.TTL, op.Count = "id", 60_000_000, 1
				}
			case law.Return:
				op = law.Back(&taken[i], &admitted[i], 500)
				if named = true; i%3 == 0 {
					op.Cost = -500
				}
			case law.Extend:
				op.ID, op.TTL, op.Count, op.Cost = "id", 60_000_000, 1, 1500
			case law.Settle:
				op.ID, op.Count, op.Cost = "id", 1, 2000
			case law.Renew:
				if op.Params, op.EntryNumber = p, admitted[i].EntryNumber; op.EntryNumber == 0 {
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
			taken, admitted = ops, outs
		}
	}
	for _, counter := range counters {
		n := read(counter) - before[counter]
		t.Logf("%s %d", counter, n)
		if n > many/2 {
			t.Errorf("%s: %d rows were read for nine batches of 20: a table was scanned", counter, n)
		}
	}
}
