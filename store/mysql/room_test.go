package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// takeKeys takes one of each of n keys, and returns how many were answered by a cell of
// their own.
func takeKeys(tb testing.TB, s *mysql.Store, limit headgate.Limit, prefix string, n int) (own int) {
	tb.Helper()
	const size = 500
	for from := 0; from < n; from += size {
		ops := make([]law.Op, min(n-from, size))
		for i := range ops {
			ops[i] = law.Op{
				Verb: law.Take, Group: uint32(i),
				Cell: law.Cell{Limit: limit.Name(), Key: fmt.Sprint(prefix, from+i)}, Params: limit.Params(),
				Cost: limit.Params().Unit, Count: 1,
			}
		}
		outs := make([]law.Outcome, len(ops))
		if err := s.Apply(context.Background(), ops, outs); err != nil {
			tb.Fatal(err)
		}
		for i := range outs {
			if outs[i].Err != nil {
				tb.Fatal(outs[i].Err)
			}
			if !outs[i].Shared {
				own++
			}
		}
	}
	return own
}

func sweep(tb testing.TB, s *mysql.Store) {
	tb.Helper()
	if _, err := s.Sweep(context.Background(), 1000); err != nil {
		tb.Fatal(err)
	}
}

func roomOf(tb testing.TB, s *mysql.Store, limit string) (r store.Room) {
	tb.Helper()
	list, err := s.Fullness(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range list {
		if r.Limit == limit {
			return r
		}
	}
	return r
}

// boundedURL returns a database and a store whose limits may have so many keys.
func boundedURL(tb testing.TB, most int) (url string, s *mysql.Store) {
	tb.Helper()
	url = migrated.MariaDB(tb)
	return url, openWith(tb, url, most)
}

func TestNewKeysOfAFullLimitShareACell(t *testing.T) {
	t.Parallel()
	url, s := boundedURL(t, 20)
	other := openWith(t, url, 0)
	limit := headgate.MustParse("fixed-window 10/365d")
	name := limit.Name()
	if own := takeKeys(t, s, limit, "own", 20); own != 20 {
		t.Fatalf("%d keys have a cell of their own", own)
	}
	takeKeys(t, other, limit, "own", 20) // before it knows of any full limit
	sweep(t, s)
	if r := roomOf(t, other, name); !r.Sharing || r.Keys != 20 || r.Max != 20 || r.Generation != 1 || r.Since == 0 ||
		r.CountedAt == 0 {
		t.Fatalf("%+v; want one that is full and shares", r)
	}
	l := limiter(other)
	for i := range 12 {
		d, err := l.Allow(t.Context(), limit, fmt.Sprint("new", i))
		if err != nil || d.Allowed != (i < 10) {
			t.Errorf("new key %d: %+v, %v; want ten admitted, in common", i, d, err)
		}
	}
	if own := takeKeys(t, other, limit, "own", 20); own != 20 {
		t.Errorf("%d old keys kept their own cell", own)
	}
	if r := roomOf(t, other, name); r.Shared != 12 {
		t.Errorf("%d ops were answered by the shared cell", r.Shared)
	}
	var cells int
	if err := plain(t, url).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM headgate_cells WHERE limit_name = ?",
		name).Scan(&cells); err != nil || cells != 21 {
		t.Errorf("%d cells, %v", cells, err)
	}
}

// TestCallsShareToo fills a limit and goes through the procedures with a key that has no
// cell.
func TestCallsShareToo(t *testing.T) {
	t.Parallel()
	url, s := boundedURL(t, 5)
	db := plain(t, url)
	log, held, bucket := headgate.MustParse("sliding-log 3/1h history 1d"), headgate.MustParse("concurrency 3 ttl 1h"),
		headgate.MustParse("token-bucket 3/1h")
	for _, limit := range []headgate.Limit{log, held, bucket} {
		takeKeys(t, s, limit, "own", 5)
	}
	if _, err := db.ExecContext(t.Context(),
		"INSERT INTO headgate_zones (id, rate, window_seconds) VALUES (1, 3, 3600)"); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if _, err := db.ExecContext(t.Context(), "CALL check_velocity(1, ?)", fmt.Sprint("own", i)); err != nil {
			t.Fatal(err)
		}
	}
	sweep(t, s)
	first := func(db querier, statement string, args ...any) string {
		t.Helper()
		rows, err := db.QueryContext(t.Context(), statement, args...)
		if err != nil {
			return err.Error()
		}
		defer rows.Close()
		columns, _ := rows.Columns()
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.NullString)
		}
		if rows.Next() {
			if err := rows.Scan(values...); err != nil {
				return err.Error()
			}
		}
		if len(values) == 0 {
			return fmt.Sprint(rows.Err())
		}
		return values[0].(*sql.NullString).String
	}
	for i, want := range []string{"1", "1", "1", "0"} {
		for _, limit := range []headgate.Limit{log, bucket} {
			check := first(db, "CALL headgate_check(?, ?, 1)", limit.Name(), fmt.Sprint("new", i))
			if got := first(db, "CALL headgate_take(?, ?, 1)", limit.Name(), fmt.Sprint("new", i)); got != want ||
				check != want {
				t.Errorf("%s: new key %d: check %s, take %s, want %s", limit, i, check, got, want)
			}
		}
		if got := first(db, "CALL check_velocity(1, ?)", fmt.Sprint("new", i)); got == want {
			t.Errorf("zone: new key %d: blocked %s", i, got)
		}
	}
	if got := first(db, "CALL headgate_take(?, 'own1', 1)", bucket.Name()); got != "1" {
		t.Errorf("a key with a cell: %s", got)
	}
	if got := first(db, "CALL headgate_reserve(?, 'new', 1, 7200, NULL, NULL)", bucket.Name()); got != "1" {
		t.Errorf("a reservation: %s", got)
	}
	var lease string
	for i := range 3 {
		var acquired string
		var x any
		if err := db.QueryRowContext(t.Context(), "CALL headgate_acquire(?, ?, 1)", held.Name(),
			fmt.Sprint("new", i)).Scan(&acquired, &lease, &x, &x, &x); err != nil || acquired != "1" {
			t.Errorf("acquire: %s, %v", acquired, err)
		}
	}
	for _, tt := range []struct{ statement, want string }{
		{"CALL headgate_acquire('" + held.Name() + "', 'another', 1)", "0"},
		{"CALL headgate_renew('" + held.Name() + "', 'new2', " + lease + ")", "1"},
		{"CALL headgate_release('" + held.Name() + "', 'new2', " + lease + ")", "1"},
		{"CALL headgate_acquire('" + held.Name() + "', 'another', 1)", "1"},
		{"CALL headgate_block('" + bucket.Name() + "', 'new', 0, NULL)", ""},
		{"CALL headgate_reset('" + bucket.Name() + "', 'new')", "0"},
	} {
		if got := first(db, tt.statement); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.statement, got, tt.want)
		}
	}
	for statement, says := range map[string]string{
		"CALL headgate_block('" + bucket.Name() +
			"', 'new', 60, NULL)": "a block needs a key of its own",
		"CALL headgate_take_once('id', '" + bucket.Name() +
			"', 'new', 1, 60)": "a request with an id needs a k",
		"CALL headgate_settle('id', '" + bucket.Name() +
			"', 'new', 1)": "no request of this id is known",
		"CALL headgate_take('" + bucket.Name() +
			"', 'headgate:shared:1', 1)": "key: begins with \"headgate:shared:\"",
		"CALL headgate_take_once('id', '" + bucket.Name() +
			"', 'headgate:shared:1', 1, 60)": "key: begins with \"headgate:shared:\"",
		"CALL check_velocity(1, 'headgate:shared:1')": "bucket_key: begins with \"headgate:shared:\"",
	} {
		if got := first(db, statement); !strings.Contains(got, says) {
			t.Errorf("%s: %s, want %q", statement, got, says)
		}
	}
	// Within a transaction of the caller's.
	levels := []string{"READ COMMITTED", "REPEATABLE READ"}
	if snapshots(t, db) == "ON" {
		levels = levels[:1]
	}
	for _, level := range levels {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct{ statement, want string }{
			{"SET SESSION TRANSACTION ISOLATION LEVEL " + level, "<nil>"},
			{"BEGIN", "<nil>"},
			{"CALL headgate_take('token-bucket 3/1h', 'newest', 1)", "0"},
			{"COMMIT", "<nil>"},
		} {
			if got := first(conn, tt.statement); got != tt.want {
				t.Errorf("in a transaction, %s: %s: %s", level, tt.statement, got)
			}
		}
		conn.Close()
	}
	var cells int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM headgate_cells WHERE cell_key LIKE 'new%'").Scan(
		&cells); err != nil || cells != 0 {
		t.Errorf("%d new keys have a cell, %v", cells, err)
	}
}

// querier is a pool or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}
