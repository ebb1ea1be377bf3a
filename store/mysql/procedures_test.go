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

// client returns a plain pool to a database with the schema, as people have.
func client(tb testing.TB) (*sql.DB, *mysql.Store) {
	tb.Helper()
	url := migrated.MariaDB(tb)
	s := openUnmigrated(tb, url)
	return plainDB(tb, url, "time_zone=%27Asia%2FTokyo%27"), s
}

// plainDB returns a pool such as other programs have.
func plainDB(tb testing.TB, url string, options ...string) *sql.DB {
	tb.Helper()
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	db, err := sql.Open("mysql", "root@tcp("+host+")/"+name+"?"+strings.Join(append(options, "parseTime=true"), "&"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

// createTable makes a table, and removes it after the test.
func createTable(tb testing.TB, db *sql.DB, name, columns string) {
	tb.Helper()
	if _, err := db.ExecContext(tb.Context(), "CREATE TABLE "+name+" ("+columns+")"); err != nil {
		tb.Fatal(err)
	}
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
	a := "time > 0"
	if knowsReturning(tb, db) {
		a = "time_ms > 50"
	}
	await.Until(tb, "a statement with "+text+" to wait", func() (waits bool) {
		if err := db.QueryRowContext(tb.Context(), "SELECT COUNT(*) > 0 FROM information_schema.processlist WHERE "+
			"db = DATABASE() AND id <> CONNECTION_ID() AND info LIKE ? AND "+a, "%"+text+"%").Scan(&waits); err != nil {
			tb.Fatal(err)
		}
		return waits
	})
}

type takeResult struct {
	allowed, remaining int64
	retryAfter         sql.NullFloat64
	resetAfter         float64
	limit              string
	at                 time.Time
}

func callTake(tb testing.TB, db *sql.DB, procedure, rule, key, cost string) (t takeResult, err error) {
	tb.Helper()
	err = db.QueryRowContext(tb.Context(), "CALL "+procedure+"(?, ?, ?)", rule, key, cost).
		Scan(&t.allowed, &t.remaining, &t.retryAfter, &t.resetAfter, &t.limit, &t.at)
	return t, err
}

func TestTakeByCall(t *testing.T) {
	t.Parallel()
	db, s := client(t)
	storetest.Define(t, s, store.Item{Name: "login", Text: "sliding-log 2/1h history 30d", Note: "logins"})
	before := serverClock(t, db)
	var free time.Time // when the first of them counts no more
	for i, want := range []takeResult{{allowed: 1, remaining: 1}, {allowed: 1}, {allowed: 0}} {
		for _, procedure := range []string{"headgate_check", "headgate_take"} {
			want := want
			if procedure == "headgate_check" { // before it is taken
				want.remaining += want.allowed
			}
			got, err := callTake(t, db, procedure, "login", "alice", "1")
			if err != nil {
				t.Fatal(err)
			}
			if got.allowed != want.allowed || got.remaining != want.remaining || got.limit != "login" {
				t.Errorf("%s %d: %+v, want %+v", procedure, i, got, want)
			}
			if procedure == "headgate_take" && i == 0 {
				free = got.at.Add(time.Hour)
			}
			if wait := free.Sub(got.at).Seconds(); got.allowed == 0 && math.Abs(got.retryAfter.Float64-wait) > 1e-6 {
				t.Errorf("%s %d: retry after %v, want %v", procedure, i, got.retryAfter, wait)
			}
			if at := got.at.UnixMicro(); at < before || at > serverClock(t, db) {
				t.Errorf("%s %d: at %v, which is not now", procedure, i, got.at)
			}
		}
	}
	var attempts, blocked int
	if err := db.QueryRowContext(t.Context(),
		"SELECT COUNT(*), SUM(allowed = 0) FROM headgate_history WHERE `key` = 'alice'").Scan(&attempts,
		&blocked); err != nil || attempts != 3 || blocked != 1 {
		t.Errorf("history: %d attempts, %d blocked, %v", attempts, blocked, err)
	}
	never, err := callTake(t, db, "headgate_take", "token-bucket 10/s burst 5", "k", "6")
	if err != nil || never.allowed != 0 || never.retryAfter.Valid {
		t.Errorf("a cost above the capacity: %+v, %v; want never", never, err)
	}
	for _, cost := range []string{"1e-30", "0.000000001", "0.0000005", "1", "9007199254740991"} {
		if got, err := callTake(t, db, "headgate_take", "0", "k", cost); err != nil || got.allowed != 0 || got.retryAfter.Valid {
			t.Errorf("a cost of %s of limit 0: %+v, %v; want never", cost, got, err)
		}
	}
	half, err := callTake(t, db, "headgate_take", "token-bucket 1/1h burst 2", "k", "0.5")
	if err != nil || half.allowed != 1 || half.remaining != 1 || half.resetAfter != 1800 {
		t.Errorf("half a token: %+v, %v", half, err)
	}
	day, err := callTake(t, db, "headgate_take", "fixed-window 1/day Europe/Berlin", "k", "1")
	if err != nil || day.allowed != 1 || day.limit != "fixed-window 1/day Europe/Berlin" {
		t.Errorf("a day in Berlin: %+v, %v", day, err)
	}
	// The Go driver sees the same cell.
	d, err := limiter(s).Check(t.Context(),
		headgate.Charge{
			Limit: headgate.MustParse("token-bucket 1/1h burst 2"), Key: "k",
			Cost: headgate.MustCost("1.6"),
		})
	if err != nil || d.Allowed || d.Remaining != 1 {
		t.Errorf("in Go: %+v, %v", d, err)
	}
}

func TestBadCallsAreRefusedAndChargeNothing(t *testing.T) {
	t.Parallel()
	db, _ := client(t)
	for _, tt := range []struct{ call, says string }{
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
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: %v, want %q", tt.call, err, tt.says)
		}
	}
	var cells int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM headgate_cells").Scan(&cells); err != nil ||
		cells != 0 {
		t.Errorf("%d cells were made, %v", cells, err)
	}
}

func TestCheckVelocity(t *testing.T) {
	t.Parallel()
	db, _ := client(t)
	if _, err := db.ExecContext(t.Context(),
		"INSERT INTO headgate_zones (id, description, rate, window_seconds) VALUES (1, 'logins', 5, 3600)"); err != nil {
		t.Fatal(err)
	}
	var passed, last atomic.Int64
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
				t.Errorf("zone %d key %q rate %d window %d transaction %d", zone, key, rate, window, id)
			}
			passed.Add(1 - blocked)
			last.Store(max(last.Load(), id))
		})
	}
	wg.Wait()
	if passed.Load() != 5 {
		t.Errorf("%d attempts passed, want 5", passed.Load())
	}
	var recorded int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM headgate_history WHERE limit_name = 'zone.1'").Scan(
		&recorded); err != nil || recorded != 24 {
		t.Errorf("%d of 24 attempts are recorded, %v", recorded, err)
	}
	var blocked, id, x int64
	var key string
	if err := db.QueryRowContext(t.Context(), "CALL check_velocity(1, 'alice')").Scan(&blocked, &id, &x, &key, &x,
		&x); err != nil || blocked != 0 {
		t.Errorf("a key in small letters was taken for one with a capital: %d, %v", blocked, err)
	}

	// Inside the caller's transaction it rolls back with it, and commits nothing.
	tx := beginTx(t, db)
	if _, err := tx.ExecContext(t.Context(),
		"INSERT INTO headgate_zones (id, rate, window_seconds) VALUES (2, 1, 60)"); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "CALL check_velocity(2, 'k')"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRowContext(t.Context(),
		"SELECT (SELECT COUNT(*) FROM headgate_zones WHERE id = 2) + (SELECT COUNT(*) FROM headgate_entries WHERE limit_name = 'zone.2')").Scan(&x); err != nil || x != 0 {
		t.Errorf("%d rows outlived the caller's rollback, %v", x, err)
	}
}

func TestRequestToken(t *testing.T) {
	t.Parallel()
	db, _ := client(t)
	if _, err := db.ExecContext(t.Context(),
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 3, 3600), ('none', 0, 1)"); err != nil {
		t.Fatal(err)
	}
	ask := func(id string) (granted, remaining int64, retry sql.NullFloat64, at time.Time) {
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
		var first time.Time
		for i := range int64(5) {
			granted, remaining, retry, at := ask("b")
			if granted != map[bool]int64{true: 1, false: 0}[i < 3] || remaining != max(0, 2-i) {
				t.Errorf("period %d, call %d: granted %d, remaining %d", period, i, granted, remaining)
			}
			if i == 0 {
				first = at
			}
			if end := at.Add(time.Duration(math.Round(retry.Float64*1e6)) * time.Microsecond); granted == 0 &&
				end.Sub(first) != time.Hour {
				t.Errorf("the period ends %v after its first request", end.Sub(first))
			}
		}
	}
	if granted, _, retry, _ := ask("none"); granted != 0 || retry.Valid {
		t.Errorf("a bucket of capacity 0: granted %d, retry after %v", granted, retry)
	}
}

// TestCallsReportTheTimeOfTheDecision moves the time of a cell ahead of the clock, as after a step of the clock
// backwards: take and check must report the cell's time while it holds, and the clock once the cell is to be healed.
func TestCallsReportTheTimeOfTheDecision(t *testing.T) {
	t.Parallel()
	db, _ := client(t)
	for _, tt := range []struct {
		procedure, rule, key string
		ahead                time.Duration
		follows              bool // the cell's time
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
		at := time.Now().Add(tt.ahead)
		if _, err := db.ExecContext(t.Context(), "UPDATE headgate_cells SET at = ? WHERE cell_key = ?", at.UnixMicro(),
			tt.key); err != nil {
			t.Fatal(err)
		}
		got, err := callTake(t, db, tt.procedure, tt.rule, tt.key, "1")
		if err != nil || got.at.Before(at.Truncate(time.Microsecond)) == tt.follows {
			t.Errorf("%s %s, the cell %s ahead: at %s, the cell's time is %s (%v)", tt.procedure, tt.rule, tt.ahead,
				got.at, at, err)
		}
	}
}

// TestSweepByCall removes dead rows, but no more than requested, and no cell that is in use.
func TestSweepByCall(t *testing.T) {
	t.Parallel()
	db, s := client(t)
	sweep := func(db *sql.DB, most string) (removed int, err error) {
		err = db.QueryRowContext(t.Context(), "CALL headgate_sweep("+most+")").Scan(&removed)
		return removed, err
	}
	for most, says := range map[string]string{"-1": "p_max: is -1; it must not be below 0", "NULL": "p_max: is null"} {
		if _, err := sweep(db, most); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", most, err, says)
		}
	}
	fill := []string{
		"CALL headgate_take('token-bucket 1000/s', 'short', 1)",
		"CALL headgate_take('token-bucket 1000/s', 'locked', 1)", "CALL headgate_take('token-bucket 1/1h', 'long', 1)",
		"CALL headgate_take('sliding-log 5/1ms', 'logged', 1)",
		"CALL headgate_take('sliding-log 5/1ms history 1h', 'kept', 1)",
		"CALL headgate_take_once('remembered', 'token-bucket 1000/s', 'remembered', 1, 3600)",
		"CALL headgate_take_once('forgotten', 'token-bucket 1000/s', 'forgotten', 1, 0.000001)",
	}
	for _, statement := range fill {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	// A sweep leaves cells for 100 ms after they are empty, and their entries for a minute.
	run(t, db, "UPDATE headgate_cells SET empty_at = empty_at - 120000000 WHERE cell_key IN ('short', 'locked', 'logged', "+
		"'kept', 'remembered', 'forgotten')")
	run(t, db, "UPDATE headgate_entries SET expires_at = expires_at - 120000000, keep_until = keep_until - 120000000")
	run(t, db, "UPDATE headgate_admissions SET keep_until = keep_until - 120000000")
	tx := beginTx(t, db)
	if _, err := tx.ExecContext(t.Context(), "CALL headgate_take('token-bucket 1000/s', 'locked', 1)"); err != nil {
		t.Fatal(err)
	}
	if n, err := sweep(db, "2"); err != nil || n != 2 {
		t.Errorf("at most 2: %d, %v", n, err)
	}
	if n, err := sweep(db, "1000"); err != nil || n != 3 { // an entry, an admission; short, logged, forgotten
		t.Errorf("the rest: %d, %v", n, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	left := func() (keys string) {
		if err := db.QueryRowContext(t.Context(),
			"SELECT GROUP_CONCAT(`key` ORDER BY `key`) FROM headgate_levels").Scan(&keys); err != nil {
			t.Fatal(err)
		}
		return keys
	}
	if got := left(); got != "kept,locked,long,remembered" {
		t.Errorf("left are %s", got)
	}
	if n, err := s.Sweep(t.Context(), 1000); err != nil || n != 1 {
		t.Errorf("by the store: %d, %v; want the one that was locked", n, err)
	}
	if got := left(); got != "kept,long,remembered" {
		t.Errorf("left are %s", got)
	}
	if got, err := callTake(t, db, "headgate_take", "token-bucket 1000/s", "remembered", "1"); err != nil ||
		got.allowed != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}
