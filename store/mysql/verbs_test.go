package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// rowText returns the first row of a query as text, column=value with blanks between. It leaves out at, reset_after and
// limit_name, and start_at and lease unless they are null. If a procedure raises an error, it returns the message. It
// repeats a call that was rolled back.
func rowText(tb testing.TB, db interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, text string,
) string {
	tb.Helper()
	rows, err := db.QueryContext(tb.Context(), text)
	for isConflict(err) {
		rows, err = db.QueryContext(tb.Context(), text)
	}
	if my, ok := errors.AsType[*driver.MySQLError](err); ok && my.Number == 1644 && string(my.SQLState[:]) == "45000" {
		return my.Message
	} else if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		tb.Fatalf("%s: no row, %v", text, err)
	}
	fields, list := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range fields {
		list[i] = &fields[i]
	}
	if err := rows.Scan(list...); err != nil {
		tb.Fatal(err)
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	var words []string
	for i, name := range columns {
		switch f := fields[i]; {
		case name == "at" || name == "start_at" && f.Valid || name == "reset_after":
		case name == "limit_name" || name == "lease" && f.Valid:
		case !f.Valid:
			words = append(words, name+"=null")
		default:
			words = append(words, name+"="+f.String)
		}
	}
	return strings.Join(words, " ")
}

// isConflict reports whether a call was rolled back by a deadlock, or in favour of a call on another node.
func isConflict(err error) bool {
	my, ok := errors.AsType[*driver.MySQLError](err)
	return ok && my.Number == 1213
}

// TestVerbsByCall checks the answers of the procedures for requests with an id, for settling, for reservations and for
// leases. LEASE stands for the number of the last entry. want is the beginning of an answer, up to a number that
// depends on the time between two calls.
func TestVerbsByCall(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	storetest.Define(t, s, store.Item{Name: "jobs", Text: "concurrency 1 ttl 1h"},
		store.Item{Name: "mail", Text: "token-bucket 1/1h burst 1"})
	for _, tt := range []struct{ call, want string }{
		{"headgate_acquire('concurrency 1 ttl 1h', 'a', 1)", "acquired=1 ttl=3600.000000 retry_after=0.000000"},
		{"headgate_acquire('concurrency 1 ttl 1h', 'a', 1)", "acquired=0 lease=null ttl=3600.000000 retry_after=35"},
		{"headgate_renew('concurrency 1 ttl 1h', 'a', LEASE)", "done=1"},
		{"headgate_renew('concurrency 1 ttl 1h', 'b', LEASE)", "done=0"},
		{"headgate_release('concurrency 1 ttl 1h', 'b', LEASE)", "done=0"},
		{"headgate_release('concurrency 1 ttl 1h', 'a', LEASE)", "done=1"},
		{"headgate_release('concurrency 1 ttl 1h', 'a', LEASE)", "done=0"},
		{"headgate_renew('concurrency 1 ttl 1h', 'a', LEASE)", "done=0"},
		{"headgate_acquire('concurrency 1 ttl 1h', 'a', 1)", "acquired=1 "},
		{"headgate_acquire('concurrency 1 ttl 1h', 'a', 2)", "acquired=0 lease=null ttl=3600.000000 retry_after=null"},
		{"headgate_acquire('jobs', 'a', 1)", "acquired=1 "},
		{"headgate_acquire('fixed-window 1/1h', 'a', 1)", "limit: fixed-window 1/1h is taken, not acquired"},
		{"headgate_acquire('mail', 'a', 1)", "limit: mail is taken, not acquired"},
		{"headgate_renew('sliding-log 1/1h', 'a', 1)", "limit: sliding-log 1/1h is taken, not acquired"},
		{"headgate_release('mail', 'a', 1)", "limit: mail is taken, not acquired"},
		{"headgate_release('jobs', 'a', NULL)", "lease: was never acquired"},
		{"headgate_renew('jobs', 'a', 0)", "lease: was never acquired"},
		{"headgate_acquire('jobs', NULL, 1)", "key: is null"},
		{"headgate_take('jobs', 'a', 1)", "limit: jobs is acquired and released, not taken"},
		{
			"headgate_check(' concurrency\t1 ttl 1h', 'a', 1)",
			"limit: concurrency 1 ttl 1h is acquired and released, not taken",
		},

		{
			"headgate_take_once('o1', 'fixed-window 10/30d', 'a', 3, 3600)",
			"allowed=1 remaining=7 retry_after=0.000000 replayed=0",
		},
		{
			"headgate_take_once('o1', 'fixed-window 10/30d', 'a', 3, 3600)",
			"allowed=1 remaining=7 retry_after=0.000000 replayed=1",
		},
		{"headgate_settle('o1', 'fixed-window 10/30d', 'a', 1.5)", "corrected=1.500000000"},
		{"headgate_settle('o1', 'fixed-window 10/30d', 'a', 1.5)", "corrected=0.000000000"},
		{"headgate_settle('o1', 'fixed-window 10/30d', 'a', 0)", `id: "o1": it is settled already`},
		{"headgate_settle('o2', 'fixed-window 10/30d', 'a', 0)", `id: "o2": no request of this id is known`},
		{"headgate_settle('o1', 'fixed-window 10/30d', 'b', 0)", `id: "o1": no request of this id is known`},
		{"headgate_take_once('o1', 'fixed-window 10/30d', 'a', 2, 3600)", `id: "o1": the id was used for other charges`},
		{"headgate_debit('w', 'fixed-window 10/30d', 'w', 12.5, 0)", "charged=1 used=12.500000 is_over=1 replayed=0"},
		{"headgate_debit('w', 'fixed-window 10/30d', 'w', 12.5, 0)", "charged=1 used=12.500000 is_over=1 replayed=1"},
		{"headgate_debit('w', 'fixed-window 10/30d', 'w', 1, 0)", `id: "w": the id was used for other charges`},
		{"headgate_settle('w', 'fixed-window 10/30d', 'w', 2)", "corrected=10.500000000"},
		{"headgate_debit('w2', 'sliding-window 10/30d', 'w', 30, 0)", "charged=1 used=30.000000 is_over=1 replayed=0"},
		{"headgate_debit('w3', 'sliding-window 10/30d', 'w', 5000000000, 0)", "charged=0 "},
		{"headgate_debit('w4', 'fixed-window 10/30d keep 10%', 'w', 1, 0)", "keep: has no meaning"},
		{"headgate_debit(NULL, 'fixed-window 10/30d', 'w', 1, 0)", "id: is missing"},
		{"headgate_debit('w5', 'jobs', 'w', 1, 0)", "limit: jobs is acquired and released, not taken"},
		{"headgate_take_once('O1', 'fixed-window 10/30d', 'a', 9, 3600)", "allowed=0 remaining=8 "},
		{"headgate_take_once('', 'fixed-window 10/30d', 'a', 1, 3600)", "id: is missing"},
		{"headgate_take_once(NULL, 'fixed-window 10/30d', 'a', 1, 3600)", "id: is missing"},
		{"headgate_take_once(REPEAT('x', 256), 'fixed-window 10/30d', 'a', 1, 3600)", "id: is 256 bytes long"},
		{"headgate_take_once('a\x00b', 'fixed-window 10/30d', 'a', 1, 3600)", "id: contains a NUL byte"},
		{"headgate_take_once('x', 'fixed-window 10/30d', 'a', 1, -1)", "life_seconds: must be from"},
		{"headgate_take_once('x', 'fixed-window 10/30d', 'a', 1, 0.0000001)", "life_seconds: must be from"},
		{
			"headgate_take_once('x', 'concurrency 1 ttl 30s', 'a', 1, 0)",
			"limit: concurrency 1 ttl 30s is acquired and released, not taken",
		},
		{"headgate_take_once('x', 'jobs', 'a', 1, 0)", "limit: jobs is acquired and released, not taken"},
		{"headgate_settle('x', 'fixed-window 10/30d', 'a', -1)", "actual: is -1; it must not be below 0"},
		{"headgate_settle('x', 'fixed-window 10/30d', 'a', NULL)", "actual: is null"},
		{
			"headgate_take_once('o3', 'fixed-window 10/30d', 'a', 4, 3600)",
			"allowed=1 remaining=4 retry_after=0.000000 replayed=0",
		},
		{"headgate_settle('o3', 'fixed-window 10/30d', 'a', 6)", "corrected=-2.000000000"},
		{"headgate_settle('o3', 'fixed-window 10/30d', 'a', 6)", "corrected=0.000000000"},
		{
			"headgate_take_once('o4', 'sliding-log 10/1d', 'a', 4, NULL)",
			"allowed=1 remaining=6 retry_after=0.000000 replayed=0",
		},
		{"headgate_settle('o4', 'sliding-log 10/1d', 'a', 12)", "corrected=-8.000000000"},
		{"headgate_take_once('o5', 'sliding-log 10/1d', 'a', 1, 0)", "allowed=0 remaining=0 "},
		{
			"headgate_take_once('o6', 'sliding-window 10/30d', 'a', 4, 60)",
			"allowed=1 remaining=6 retry_after=0.000000 replayed=0",
		},
		{"headgate_cancel('o6', 'sliding-window 10/30d', 'a')", "returned=4.000000000"},
		{"headgate_cancel('o6', 'sliding-window 10/30d', 'a')", "returned=0.000000000"},
		{"headgate_settle('o6', 'sliding-window 10/30d', 'a', 0)", `id: "o6": it is settled already`},
		// The id was cancelled, so it is charged again.
		{
			"headgate_take_once('o6', 'sliding-window 10/30d', 'a', 4, 60)",
			"allowed=1 remaining=6 retry_after=0.000000 replayed=0",
		},
		{"headgate_settle('o6', 'sliding-window 10/30d', 'a', 0)", "corrected=4.000000000"},
		{"headgate_cancel('o6', 'sliding-window 10/30d', 'a')", `id: "o6": it is settled already`},
		{
			"headgate_take_once('o6', 'sliding-window 10/30d', 'a', 4, 60)",
			"allowed=1 remaining=6 retry_after=0.000000 replayed=1",
		},
		{
			"headgate_take_once('o7', 'fixed-window 10/month Europe/Berlin', 'a', 4, 0)",
			"allowed=1 remaining=6 retry_after=0.000000 replayed=0",
		},
		{"headgate_settle('o7', 'fixed-window 10/month Europe/Berlin', 'a', 1)", "corrected=3.000000000"},
		{
			"headgate_take_once('o8', 'token-bucket 10/1d block 1h', 'a', 11, 0)",
			"allowed=0 remaining=10 retry_after=null replayed=0",
		},

		{
			"headgate_reserve('token-bucket 1/1h burst 1', 'a', 1, 10800, NULL, NULL)",
			"allowed=1 delay=0.000000 retry_after=0.000000 replayed=0",
		},
		{"headgate_reserve('token-bucket 1/1h burst 1', 'a', 1, 10800, 'r1', NULL)", "allowed=1 delay=35"},
		{"headgate_take_once('r1', 'token-bucket 1/1h burst 1', 'a', 1, 0)", `id: "r1" was reserved, and starts at 2`},
		{"headgate_take('token-bucket 1/10m burst 1 block 15m', 'w', 1)", "allowed=1 "},
		{
			"headgate_reserve('token-bucket 1/10m burst 1 block 15m', 'w', 1, 0.001, NULL, NULL)",
			"allowed=0 start_at=null delay=null retry_after=5",
		},
		{
			"headgate_reserve('token-bucket 1/10m burst 1 block 15m', 'w', 1, 0, NULL, NULL)",
			"allowed=0 start_at=null delay=null retry_after=900.",
		},
		{
			"headgate_reserve('token-bucket 1/1h burst 1', 'a', 1, 3600, NULL, NULL)",
			"allowed=0 start_at=null delay=null retry_after=35",
		},
		{
			"headgate_reserve('token-bucket 1/1h burst 1', 'a', 2, 108000, NULL, NULL)",
			"allowed=0 start_at=null delay=null retry_after=null replayed=0",
		},
		{"headgate_settle('r1', 'token-bucket 1/1h burst 1', 'a', 0)", "corrected=1.000000000"},
		{"headgate_reserve('mail', 'a', 1, 0, NULL, NULL)", "allowed=1 delay=0.000000 retry_after=0.000000 replayed=0"},
		{"headgate_reserve('mail', 'a', 1, 0, 'm', NULL)", "allowed=0 start_at=null delay=null retry_after=35"},
		{"headgate_reserve('mail', 'a', 1, 7200, 'm', 60)", "allowed=1 delay=35"},
		{
			"headgate_reserve('fixed-window 1/1d', 'a', 1, 7200, 'f', 60)",
			"allowed=1 delay=0.000000 retry_after=0.000000 replayed=0",
		},
		{
			"headgate_reserve('fixed-window 1/1d', 'a', 1, 7200, 'f', 60)",
			"allowed=1 delay=0.000000 retry_after=0.000000 replayed=1",
		},
		{"headgate_reserve('token-bucket 1/1h', 'a', 1, -1, NULL, NULL)", "wait_seconds: must be from 0 to 3660 days"},
		{
			"headgate_reserve('token-bucket 1/1h', 'a', 1, NULL, NULL, NULL)",
			"wait_seconds: must be from 0 to 3660 days",
		},
		{"headgate_reserve('token-bucket 1/1h', 'a', 0, 1, NULL, NULL)", "cost: is 0; it must be above 0"},
		{"headgate_reserve('jobs', 'a', 1, 3600, NULL, NULL)", "limit: jobs is acquired and released, not taken"},
	} {
		lastEntry := sql.NullString{}
		if err := db.QueryRowContext(t.Context(), "SELECT MAX(number) FROM headgate_entries").Scan(&lastEntry); err != nil {
			t.Fatal(err)
		}
		got := rowText(t, db, "CALL "+strings.ReplaceAll(tt.call, "LEASE", lastEntry.String))
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s:\n got %s\nwant %s", tt.call, got, tt.want)
		}
	}
	var cells int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM headgate_cells WHERE cell_key = 'b'").Scan(
		&cells); err != nil || cells != 0 {
		t.Errorf("got %d cells of a key without charges, %v; want none", cells, err)
	}
}

// TestGoAndSQLShareIDs checks that a request with an id is charged once and settled once, whichever of Go and SQL sends
// it.
func TestGoAndSQLShareIDs(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	l := newLimiter(s)
	for _, rule := range []string{
		"sliding-log 100/1h", "token-bucket 100/7h", "sliding-window 100/1h",
		"fixed-window 100/month Asia/Tokyo",
	} {
		charge := headgate.Charge{Limit: headgate.MustParse(rule), Key: "käse", Cost: headgate.MustCost("2.5")}
		once := l.Once("Bestellung №1", time.Hour)
		d, err := once.Take(t.Context(), charge)
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if got := rowText(t, db, "CALL headgate_take_once('Bestellung №1', '"+rule+
			"', 'käse', 2.5, 60)"); got != "allowed=1 remaining=97 retry_after=0.000000 replayed=1" {
			t.Errorf("%s: repeated in SQL: got %s, want replayed=1", rule, got)
		}
		if got := rowText(t, db, "CALL headgate_settle('Bestellung №1', '"+rule+
			"', 'käse', 1)"); got != "corrected=1.500000000" {
			t.Errorf("%s: settled in SQL: got %s, want corrected=1.5", rule, got)
		}
		charge.Cost = headgate.Units(1)
		if corrected, err := once.Settle(t.Context(), charge); err != nil || corrected[0] != headgate.Units(0) {
			t.Errorf("%s: settled again in Go: got %v, %v; want 0", rule, corrected, err)
		}

		if got := rowText(t, db, "CALL headgate_take_once('back', '"+rule+
			"', 'käse', 3, 60)"); got != "allowed=1 remaining=96 retry_after=0.000000 replayed=0" {
			t.Errorf("%s: sent in SQL first: got %s, want remaining=96", rule, got)
		}
		charge.Cost = headgate.Units(3)
		if d, err := l.Once("back", 0).Take(t.Context(), charge); err != nil || !d.Replayed || d.Remaining != 96 {
			t.Errorf("%s: repeated in Go: got %+v, %v; want replayed, remaining 96", rule, d, err)
		}
		charge.Cost = headgate.Units(4)
		if corrected, err := l.Once("back", 0).Settle(t.Context(), charge); err != nil || corrected[0] != headgate.Units(1) {
			t.Errorf("%s: settled in Go: got %v, %v; want 1", rule, corrected, err)
		}
	}
	limit := headgate.MustParse("gcra 1/1h burst 1")
	charge := headgate.Charge{Limit: limit, Key: "k"}
	if _, err := l.Take(t.Context(), charge); err != nil {
		t.Fatal(err)
	}
	if got := rowText(t, db, "CALL headgate_reserve('gcra 1/1h burst 1', 'k', 1, 7200, 'r', 60)"); !strings.HasPrefix(
		got, "allowed=1 delay=35") {
		t.Errorf("reserved in SQL: got %s, want a delay of an hour", got)
	}
	r, err := l.Once("r", 0).Reserve(t.Context(), time.Minute, charge)
	if err != nil || !r.Decision.Replayed || r.Delay() < 59*time.Minute {
		t.Errorf("reserved again in Go: got %+v, %v; want replayed, delay 59m or more", r, err)
	}
}

// TestVerbsByCallRollBackWithTheCaller checks that calls in a transaction do not end it, are rolled back with it, and
// see requests that were admitted after its snapshot.
func TestVerbsByCallRollBackWithTheCaller(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	countRows := func(db interface {
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	},
	) (n int) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), `SELECT (SELECT COUNT(*) FROM headgate_cells) + (SELECT COUNT(*) FROM headgate_entries)
			+ (SELECT COUNT(*) FROM headgate_admissions) + (SELECT COUNT(*) FROM headgate_zones)`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	tx := beginTx(t, db)
	rowText(t, tx, "SELECT COUNT(*) FROM headgate_admissions")
	rowText(t, db, "CALL headgate_take_once('old', 'sliding-log 5/1h', 'j', 1, 0)") // after the snapshot of tx
	if got := rowText(t, tx, "CALL headgate_take_once('old', 'sliding-log 5/1h', 'j', 1, 0)"); !strings.HasSuffix(
		got, "replayed=1") {
		t.Errorf("a request that is newer than the snapshot: got %s, want replayed=1", got)
	}
	if got := rowText(t, tx, "CALL headgate_settle('old', 'sliding-log 5/1h', 'j', 0.5)"); got != "corrected=0.500000000" {
		t.Errorf("headgate_settle: got %s, want corrected=0.5", got)
	}
	mustExec(t, tx, "INSERT INTO headgate_zones (id, rate, window_seconds) VALUES (2, 1, 60)")
	for _, text := range []string{
		"headgate_take_once('id', 'sliding-log 5/1h', 'k', 1, 0)", "headgate_settle('id', 'sliding-log 5/1h', 'k', 3)",
		"headgate_reserve('gcra 1/1h', 'k', 1, 60, 'r', 0)", "headgate_settle('none', 'gcra 1/1h', 'k', 1)",
		"headgate_acquire('concurrency 1 ttl 1h', 'k', 1)", "headgate_renew('concurrency 1 ttl 1h', 'k', 1)",
		"headgate_release('concurrency 1 ttl 1h', 'k', 1)",
	} {
		rowText(t, tx, "CALL "+text)
	}
	if n := countRows(tx); n != 11 {
		t.Errorf("got %d rows in the transaction, want a zone, 4 cells, 3 entries, 3 admissions", n)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n := countRows(db); n != 3 { // a cell, an entry and an admission of the request outside the transaction
		t.Errorf("got %d rows after the rollback, want 3", n)
	}
}
