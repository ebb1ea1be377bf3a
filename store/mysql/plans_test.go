package mysql_test

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/mysql"
)

// openConn takes a connection of a pool until the end of the test.
func openConn(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// serverClock returns the clock of a server, in microseconds.
func serverClock(tb testing.TB, db *sql.DB) (now int64) {
	tb.Helper()
	if err := db.QueryRowContext(tb.Context(),
		"SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))").Scan(&now); err != nil {
		tb.Fatal(err)
	}
	return now
}

// TestHotStatementsUseAKeyDespiteEmptyStatistics checks that the statements of batches of all verbs reach their rows by
// a key where the statistics say that the tables are empty, since the tables may be full before the statistics are
// renewed.
func TestHotStatementsUseAKeyDespiteEmptyStatistics(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openStore(t, url)
	db := openPlainDB(t, url)
	fillTables(t, db, 3000)
	for _, table := range []string{"headgate_cells", "headgate_entries", "headgate_admissions"} {
		mustExec(t, db, "DELETE FROM "+table)
		mustExec(t, db, "ANALYZE TABLE "+table)
	}
	// The store finds out what its server is, on which its statements depend.
	if err := s.Apply(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	log := law.Params{Kind: law.Log, Unit: 1000, Capacity: 50_000, Step: 60_000_000, History: 60_000_000}
	bucket := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 50_000, Step: 1, Drain: 1}
	window := law.Params{Kind: law.Window, Unit: 1000, Capacity: 50_000, Step: 60_000_000}
	accesses := 0
	for _, verb := range []law.Verb{
		law.Take, law.Check, law.Return, law.Settle, law.Extend, law.Renew, law.Block, law.Reset,
	} {
		for _, p := range []law.Params{bucket, window, log} {
			for _, n := range []int{1, 2, 20} {
				for _, id := range []string{"", "id"} {
					if verb == law.Renew && p != log || id == "" && (verb == law.Settle || verb == law.Extend) ||
						id != "" && verb != law.Settle && verb != law.Extend && verb != law.Take {
						continue
					}
					var ops []law.Op
					for i := range n {
						op := law.Op{
							Verb: verb, Group: uint32(i / 2),
							Cell:   law.Cell{Limit: "l" + strconv.Itoa(i%2), Key: fmt.Sprint(7 * i)},
							Params: p, Cost: 1000, Count: 1, TTL: 60_000_000, ID: id, EntryNumber: 1, At: 1, Level: 1,
						}
						if verb == law.Take && id == "" {
							op.TTL, op.EntryNumber = 0, 0
						}
						ops = append(ops, op)
					}
					accesses += explainAll(t, openConn(t, db), mysql.Statements(s, ops),
						fmt.Sprint(verb, " ", p.Kind, " ", n, " ", id))
				}
			}
		}
	}
	if accesses < 200 {
		t.Errorf("got %d accesses in all plans, want 200 or more", accesses)
	}
}

// explainAll executes the statements of a batch up to COMMIT, rolls them back, and closes the connection. It checks the
// plan of each before, and returns how many accesses to Headgate's tables the plans have.
func explainAll(t *testing.T, conn *sql.Conn, statements []string, batch string) (accesses int) {
	t.Helper()
	defer conn.Close()
	defer func() { mustExec(t, conn, "ROLLBACK") }()
	for _, statement := range statements {
		if statement == "COMMIT" {
			return accesses
		}
		word, _, _ := strings.Cut(statement, " ")
		switch word {
		case "INSERT", "REPLACE", "UPDATE", "DELETE", "SELECT":
			if strings.Contains(statement, "headgate_") {
				accesses += countAccesses(t, conn, statement, batch)
			}
		}
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %.300s: %v", batch, statement, err)
		}
	}
	return accesses
}

// countAccesses checks that a statement's plan uses a key for each access to one of Headgate's tables, and returns the
// number of these accesses.
func countAccesses(t *testing.T, conn *sql.Conn, statement, batch string) (accesses int) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), "EXPLAIN FORMAT=TRADITIONAL "+statement)
	if err != nil {
		t.Fatalf("%s: EXPLAIN %.300s: %v", batch, statement, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		fields, list := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range fields {
			list[i] = &fields[i]
		}
		if err := rows.Scan(list...); err != nil {
			t.Fatal(err)
		}
		plan := map[string]sql.NullString{}
		for i, name := range columns {
			plan[name] = fields[i]
		}
		switch table := plan["table"].String; {
		case plan["select_type"].String == "INSERT", plan["select_type"].String == "REPLACE": // the row's own key
		case table == "c" || table == "e" || table == "a" || strings.HasPrefix(table, "headgate_"):
			accesses++
			if kind := plan["type"].String; !plan["key"].Valid || kind == "ALL" || kind == "index" {
				t.Errorf("%s: %s: got access %q with key %q, want a key, in %.400s", batch, table, kind, plan["key"].String, statement)
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return accesses
}
