package mysql_test

import (
	"context"
	"database/sql"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

// openDBAndStore opens a plain pool, whose sessions have another time zone, and a store, both on one empty database
// that has the schema.
func openDBAndStore(tb testing.TB) (*sql.DB, *mysql.Store) {
	tb.Helper()
	url := migrated.MariaDB(tb)
	s := openStore(tb, url)
	return openPlainDB(tb, url, "time_zone=%27Asia%2FTokyo%27"), s
}

// openPlainDB opens a pool with parseTime and without multiStatements, as programs have that call the procedures.
func openPlainDB(tb testing.TB, url string, options ...string) *sql.DB {
	tb.Helper()
	return openDB(tb, url, append(options, "parseTime=true"))
}

// openDB opens a pool of the user root, with options of the driver.
func openDB(tb testing.TB, url string, options []string) *sql.DB {
	tb.Helper()
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	db, err := sql.Open("mysql", "root@tcp("+host+")/"+name+"?"+strings.Join(options, "&"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

// createTable creates a table, and drops it after the test.
func createTable(tb testing.TB, db *sql.DB, name, columns string) {
	tb.Helper()
	mustExec(tb, db, "CREATE TABLE "+name+" ("+columns+")")
	tb.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), "DROP TABLE "+name); err != nil {
			tb.Error(err)
		}
	})
}

// awaitStatement waits until another session of this database executes a statement that contains a text, and has done
// so for a while: the server reveals no more about a wait for a lock.
func awaitStatement(tb testing.TB, db *sql.DB, text string) {
	tb.Helper()
	condition := "time > 0"
	if hasReturning(tb, db) {
		condition = "time_ms > 50"
	}
	await.Until(tb, "a statement with "+text+" to wait", func() (waits bool) {
		if err := db.QueryRowContext(tb.Context(), "SELECT COUNT(*) > 0 FROM information_schema.processlist WHERE "+
			"db = DATABASE() AND id <> CONNECTION_ID() AND info LIKE ? AND "+condition, "%"+text+"%").Scan(&waits); err != nil {
			tb.Fatal(err)
		}
		return waits
	})
}

// takeResult is the row that headgate_take and headgate_check return.
type takeResult struct {
	allowed, remaining int64
	retryAfter         sql.NullFloat64
	resetAfter         float64
	limit              string
	at                 time.Time
}

// callTake calls headgate_take or headgate_check, and returns its row.
func callTake(tb testing.TB, db *sql.DB, procedure, rule, key, cost string) (r takeResult, err error) {
	tb.Helper()
	err = db.QueryRowContext(tb.Context(), "CALL "+procedure+"(?, ?, ?)", rule, key, cost).
		Scan(&r.allowed, &r.remaining, &r.retryAfter, &r.resetAfter, &r.limit, &r.at)
	return r, err
}

// TestTakeByCall checks the answers of headgate_take and headgate_check: of a log with a history until it refuses, of
// costs that can never pass, of fractions, and of a calendar.
func TestTakeByCall(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	storetest.Define(t, s, store.Item{Name: "login", Text: "sliding-log 2/1h history 30d", Note: "logins"})
	before := serverClock(t, db)
	var freeAt time.Time // when the first attempt counts no more
	for i, want := range []takeResult{{allowed: 1, remaining: 1}, {allowed: 1}, {allowed: 0}} {
		for _, procedure := range []string{"headgate_check", "headgate_take"} {
			want := want
			if procedure == "headgate_check" { // it comes before the take
				want.remaining += want.allowed
			}
			got, err := callTake(t, db, procedure, "login", "alice", "1")
			if err != nil {
				t.Fatal(err)
			}
			if got.allowed != want.allowed || got.remaining != want.remaining || got.limit != "login" {
				t.Errorf("%s %d: got %+v, want %+v", procedure, i, got, want)
			}
			if procedure == "headgate_take" && i == 0 {
				freeAt = got.at.Add(time.Hour)
			}
			if wait := freeAt.Sub(got.at).Seconds(); got.allowed == 0 && math.Abs(got.retryAfter.Float64-wait) > 1e-6 {
				t.Errorf("%s %d: got retry_after %v, want %v", procedure, i, got.retryAfter, wait)
			}
			if at := got.at.UnixMicro(); at < before || at > serverClock(t, db) {
				t.Errorf("%s %d: got time %v, want the time of the call", procedure, i, got.at)
			}
		}
	}
	var attempts, blocked int
	if err := db.QueryRowContext(t.Context(),
		"SELECT COUNT(*), SUM(allowed = 0) FROM headgate_history WHERE `key` = 'alice'").Scan(&attempts,
		&blocked); err != nil || attempts != 3 || blocked != 1 {
		t.Errorf("history: got %d attempts, %d blocked, %v; want 3 and 1", attempts, blocked, err)
	}
	refusal, err := callTake(t, db, "headgate_take", "token-bucket 10/s burst 5", "k", "6")
	if err != nil || refusal.allowed != 0 || refusal.retryAfter.Valid {
		t.Errorf("a cost above the capacity: got %+v, %v; want a refusal without retry_after", refusal, err)
	}
	for _, cost := range []string{"1e-30", "0.000000001", "0.0000005", "1", "9007199254740991"} {
		if got, err := callTake(t, db, "headgate_take", "0", "k", cost); err != nil || got.allowed != 0 || got.retryAfter.Valid {
			t.Errorf("a cost of %s of limit 0: got %+v, %v; want a refusal without retry_after", cost, got, err)
		}
	}
	halfToken, err := callTake(t, db, "headgate_take", "token-bucket 1/1h burst 2", "k", "0.5")
	if err != nil || halfToken.allowed != 1 || halfToken.remaining != 1 || halfToken.resetAfter != 1800 {
		t.Errorf("half a token: got %+v, %v; want allowed 1, remaining 1, reset_after 1800", halfToken, err)
	}
	berlinDay, err := callTake(t, db, "headgate_take", "fixed-window 1/day Europe/Berlin", "k", "1")
	if err != nil || berlinDay.allowed != 1 || berlinDay.limit != "fixed-window 1/day Europe/Berlin" {
		t.Errorf("a day in Berlin: got %+v, %v; want allowed 1", berlinDay, err)
	}
	// The Go driver sees the same cell.
	d, err := newLimiter(s).Check(t.Context(),
		headgate.Charge{
			Limit: headgate.MustParse("token-bucket 1/1h burst 2"), Key: "k",
			Cost: headgate.MustCost("1.6"),
		})
	if err != nil || d.Allowed || d.Remaining != 1 {
		t.Errorf("in Go: got %+v, %v; want a refusal, remaining 1", d, err)
	}
}

// TestBadCallsAreRefusedAndChargeNothing checks the errors of invalid arguments, and that no cell is made.
func TestBadCallsAreRefusedAndChargeNothing(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	for _, tt := range []struct{ call, errText string }{
		{"CALL headgate_take('nosuch', 'k', 1)", `unknown limit: "nosuch"`},
		{"CALL headgate_take('token-bucket 1', 'k', 1)", "period: is missing"},
		{"CALL headgate_take(NULL, 'k', 1)", "limit: is null"},
		{"CALL headgate_take('token-bucket 1/s', NULL, 1)", "key: is null"},
		{"CALL headgate_take('token-bucket 1/s', REPEAT('k', 513), 1)", "key: is 513 bytes long"},
		{"CALL headgate_take('token-bucket 1/s', 'a\x00b', 1)", "key: contains a NUL byte"},
		{"CALL headgate_take('token-bucket 1/s', 'k', NULL)", "cost: is null"},
		{"CALL headgate_take('token-bucket 1/s', 'k', 0)", "cost: is 0"},
		{"CALL headgate_take('token-bucket 1/s', 'k', -1)", "cost: is -1"},
		{"CALL headgate_take('token-bucket 1/s', 'k', 1e18)", "cost: is too large"},
		{"CALL headgate_take('token-bucket 1/s', 'k', 'abc')", "Incorrect decimal value"},
		{"CALL headgate_take('fixed-window 1/day Mars/Olympus', 'k', 1)", `zone: "Mars/Olympus" is not a known`},
		{"CALL headgate_block('token-bucket 1/s', 'k', -1, '')", "seconds: must be"},
		{"CALL check_velocity(99, 'k')", "zone: 99 is not in headgate_zones; insert its id, rate and window_seconds"},
		{"CALL check_velocity(NULL, 'k')", "zone: null is not in headgate_zones"},
		{
			"CALL request_token('nosuch')",
			`bucket: "nosuch" is not in headgate_buckets; insert its id, capacity and refill_seconds`,
		},
		{"CALL request_token(REPEAT('x', 500))", strings.Repeat("x", 40) +
			`" is not in headgate_buckets; insert its id, capacity and refill_seconds`},
		{"CALL request_token(NULL)", `bucket: null is not in headgate_buckets`},
		{
			"CALL headgate_take(CONCAT('token-bucket 1/', REPEAT('x', 200)), 'k', 1)",
			`xxx..." is not a length of time such as 30s, 15m or 30d`,
		},
	} {
		_, err := db.ExecContext(t.Context(), tt.call)
		if err == nil || !strings.Contains(err.Error(), tt.errText) {
			t.Errorf("%q: got %v, want an error with %q", tt.call, err, tt.errText)
		}
	}
	var cells int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM headgate_cells").Scan(&cells); err != nil ||
		cells != 0 {
		t.Errorf("got %d cells, %v; want none", cells, err)
	}
}

// TestCheckVelocity checks that check_velocity lets exactly 5 of 24 concurrent attempts pass and records all 24, that
// keys are compared by their bytes, and that a call rolls back with the caller's transaction.
func TestCheckVelocity(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	mustExec(t, db, "INSERT INTO headgate_zones (id, description, rate, window_seconds) VALUES (1, 'logins', 5, 3600)")
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			var blocked, id, zone, rate, window int64
			var key string
			if err := db.QueryRowContext(context.Background(), "CALL check_velocity(1, 'Alice')").Scan(&blocked, &id,
				&zone, &key, &rate, &window); err != nil {
				t.Error(err)
				return
			}
			if zone != 1 || key != "Alice" || rate != 5 || window != 3600 || id == 0 {
				t.Errorf("got zone %d, key %q, rate %d, window %d, id %d; want 1, Alice, 5, 3600 and an id", zone, key, rate, window, id)
			}
			passed.Add(1 - blocked)
		})
	}
	wg.Wait()
	if passed.Load() != 5 {
		t.Errorf("got %d attempts that passed, want 5", passed.Load())
	}
	var attempts int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM headgate_history WHERE limit_name = 'zone.1'").Scan(
		&attempts); err != nil || attempts != 24 {
		t.Errorf("got %d recorded attempts, %v; want 24", attempts, err)
	}
	var blocked, id, ignored int64
	var key string
	if err := db.QueryRowContext(t.Context(), "CALL check_velocity(1, 'alice')").Scan(&blocked, &id, &ignored, &key,
		&ignored, &ignored); err != nil || blocked != 0 {
		t.Errorf("key alice after Alice: got blocked %d, %v; want 0", blocked, err)
	}

	// Inside the caller's transaction a call commits nothing, and is rolled back with the transaction.
	tx := beginTx(t, db)
	mustExec(t, tx, "INSERT INTO headgate_zones (id, rate, window_seconds) VALUES (2, 1, 60)")
	mustExec(t, tx, "CALL check_velocity(2, 'k')")
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := db.QueryRowContext(t.Context(),
		"SELECT (SELECT COUNT(*) FROM headgate_zones WHERE id = 2) + (SELECT COUNT(*) FROM headgate_entries WHERE limit_name = 'zone.2')").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("got %d rows after the caller's rollback, %v; want none", rows, err)
	}
}

// TestRequestToken checks that request_token grants a bucket's capacity in each of two periods, that retry_after leads
// to the end of the period, and that a bucket of capacity 0 has neither tokens nor retry_after.
func TestRequestToken(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	mustExec(t, db, "INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 3, 3600), ('none', 0, 1)")
	requestToken := func(id string) (granted, remaining int64, retry sql.NullFloat64, at time.Time) {
		if err := db.QueryRowContext(t.Context(), "CALL request_token(?)", id).Scan(&granted, &remaining, &retry,
			&at); err != nil {
			t.Fatal(err)
		}
		return granted, remaining, retry, at
	}
	for period := range 2 {
		if period > 0 {
			elapse(t, db, "b", time.Hour)
		}
		var firstAt time.Time
		for i := range int64(5) {
			granted, remaining, retry, at := requestToken("b")
			if granted != map[bool]int64{true: 1, false: 0}[i < 3] || remaining != max(0, 2-i) {
				t.Errorf("period %d, call %d: got granted %d, remaining %d; want 3 tokens", period, i, granted, remaining)
			}
			if i == 0 {
				firstAt = at
			}
			if end := at.Add(time.Duration(math.Round(retry.Float64*1e6)) * time.Microsecond); granted == 0 &&
				end.Sub(firstAt) != time.Hour {
				t.Errorf("got the end of the period %v after its first request, want 1h", end.Sub(firstAt))
			}
		}
	}
	if granted, _, retry, _ := requestToken("none"); granted != 0 || retry.Valid {
		t.Errorf("a bucket of capacity 0: got granted %d, retry after %v; want neither", granted, retry)
	}
}

// TestCallsReportTheTimeOfTheDecision checks that headgate_take and headgate_check report the time of a cell that is
// ahead of the clock, as after a step of the clock backwards, and the clock if the cell is so far ahead that it is
// healed.
func TestCallsReportTheTimeOfTheDecision(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	for _, tt := range []struct {
		procedure, rule, key string
		ahead                time.Duration
		wantCellTime         bool // the time of the answer is the cell's time
	}{
		{"headgate_take", "sliding-log 5/2h", "a", 90 * time.Minute, true},
		{"headgate_check", "sliding-log 5/2h", "a", 90 * time.Minute, true},
		{"headgate_take", "token-bucket 5/1h", "b", 10 * time.Minute, true},
		{"headgate_check", "token-bucket 5/1h", "b", 10 * time.Minute, true},
		{"headgate_check", "sliding-log 5/2h", "a", 24 * time.Hour, false},
		{"headgate_take", "sliding-log 5/2h", "a", 24 * time.Hour, false},
		{"headgate_check", "token-bucket 5/1h", "b", 3 * time.Hour, false},
		{"headgate_take", "token-bucket 5/1h", "b", 3 * time.Hour, false},
	} {
		if _, err := callTake(t, db, "headgate_take", tt.rule, tt.key, "1"); err != nil {
			t.Fatal(err)
		}
		cellAt := time.Now().Add(tt.ahead)
		mustExec(t, db, "UPDATE headgate_cells SET at = ? WHERE cell_key = ?", cellAt.UnixMicro(), tt.key)
		got, err := callTake(t, db, tt.procedure, tt.rule, tt.key, "1")
		if err != nil || got.at.Before(cellAt.Truncate(time.Microsecond)) == tt.wantCellTime {
			t.Errorf("%s %s, the cell %s ahead: got time %s, %v; the cell's time is %s", tt.procedure, tt.rule, tt.ahead,
				got.at, err, cellAt)
		}
	}
}

// TestSweepByCall checks that headgate_sweep removes dead rows, but no more than requested, and no cell that is in use
// or locked.
func TestSweepByCall(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	sweep := func(maxRows string) (removed int, err error) {
		err = db.QueryRowContext(t.Context(), "CALL headgate_sweep("+maxRows+")").Scan(&removed)
		return removed, err
	}
	for maxRows, want := range map[string]string{"-1": "p_max: is -1; it must not be below 0", "NULL": "p_max: is null"} {
		if _, err := sweep(maxRows); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", maxRows, err, want)
		}
	}
	calls := []string{
		"CALL headgate_take('token-bucket 1000/s', 'short', 1)",
		"CALL headgate_take('token-bucket 1000/s', 'locked', 1)", "CALL headgate_take('token-bucket 1/1h', 'long', 1)",
		"CALL headgate_take('sliding-log 5/1ms', 'logged', 1)",
		"CALL headgate_take('sliding-log 5/1ms history 1h', 'kept', 1)",
		"CALL headgate_take_once('remembered', 'token-bucket 1000/s', 'remembered', 1, 3600)",
		"CALL headgate_take_once('forgotten', 'token-bucket 1000/s', 'forgotten', 1, 0.000001)",
	}
	for _, statement := range calls {
		mustExec(t, db, statement)
	}
	// A sweep by call leaves cells alone for 3 s after they are empty, and their entries for a minute.
	mustExec(t, db, "UPDATE headgate_cells SET empty_at = empty_at - 120000000 WHERE cell_key IN ('short', 'locked', 'logged', "+
		"'kept', 'remembered', 'forgotten')")
	mustExec(t, db, "UPDATE headgate_entries SET expires_at = expires_at - 120000000, keep_until = keep_until - 120000000")
	mustExec(t, db, "UPDATE headgate_admissions SET keep_until = keep_until - 120000000")
	tx := beginTx(t, db)
	mustExec(t, tx, "CALL headgate_take('token-bucket 1000/s', 'locked', 1)")
	// Dead are five rows: an entry, an admission, and the cells short, logged and forgotten.
	if n, err := sweep("2"); err != nil || n != 2 {
		t.Errorf("at most 2: got %d, %v; want 2", n, err)
	}
	if n, err := sweep("1000"); err != nil || n != 3 {
		t.Errorf("the remaining dead rows: got %d, %v; want 3", n, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	listKeys := func() (keys string) {
		if err := db.QueryRowContext(t.Context(),
			"SELECT GROUP_CONCAT(`key` ORDER BY `key`) FROM headgate_levels").Scan(&keys); err != nil {
			t.Fatal(err)
		}
		return keys
	}
	if got, want := listKeys(), "kept,locked,long,remembered"; got != want {
		t.Errorf("after headgate_sweep: got keys %s, want %s", got, want)
	}
	if n, err := s.Sweep(t.Context(), 1000); err != nil || n != 1 {
		t.Errorf("Sweep of the store: got %d, %v; want 1, the cell that was locked", n, err)
	}
	if got, want := listKeys(), "kept,long,remembered"; got != want {
		t.Errorf("after Sweep: got keys %s, want %s", got, want)
	}
	if got, err := callTake(t, db, "headgate_take", "token-bucket 1000/s", "remembered", "1"); err != nil ||
		got.allowed != 1 {
		t.Errorf("headgate_take after the sweep: got %+v, %v; want allowed 1", got, err)
	}
}
