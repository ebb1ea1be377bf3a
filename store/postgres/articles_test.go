package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of database/sql

	"github.com/headgate/headgate/internal/testing/migrated"
)

// tokenRequester is the SQLTokenRequester of article 003, for PostgreSQL. It goes by the number of affected rows.
type tokenRequester struct {
	db     *sql.DB
	bucket string
}

var errNoToken = errors.New("no token available")

// RequestToken takes a token of the bucket, and returns errNoToken if the bucket is empty.
func (r *tokenRequester) RequestToken(ctx context.Context) error {
	result, err := r.db.ExecContext(ctx, "select * from request_token($1)", r.bucket)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows <= 0 {
		return errors.Join(errNoToken, err)
	}
	return nil
}

// TestTokenRequesterOfArticle003 requests the tokens of a full bucket, a refilled one, an empty one and unknown ones.
func TestTokenRequesterOfArticle003(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", migrated.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.ExecContext(t.Context(),
		`insert into headgate.buckets (id, capacity, refill_seconds) values ('payments', 11, 86400), ('none', 0, 1)`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		emptyBucket(t, db, 11)
		if _, err := db.ExecContext(t.Context(), `update headgate.cells set at = at - 86400000000, empty_at = empty_at - 86400000000`); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&tokenRequester{db, "none"}).RequestToken(t.Context()); !errors.Is(err, errNoToken) {
		t.Errorf("a bucket of capacity 0: got %v, want errNoToken", err)
	}
	for _, r := range []*tokenRequester{{db, "unknown"}, {db, strings.Repeat("x", 600)}} {
		var pg *pgconn.PgError
		if err := r.RequestToken(t.Context()); !errors.As(err, &pg) || pg.Code != "22023" ||
			!strings.Contains(pg.Message, "is not in headgate.buckets; insert its id, capacity and refill_seconds") {
			t.Errorf("a missing bucket: got %v, want SQLSTATE 22023", err)
		}
	}
}

// emptyBucket lets four callers take tokens of bucket payments until each is refused. In all they must get capacity.
func emptyBucket(t *testing.T, db *sql.DB, capacity int64) {
	t.Helper()
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			r, err := &tokenRequester{db, "payments"}, error(nil)
			for ; err == nil; err = r.RequestToken(context.Background()) {
				granted.Add(1)
			}
			granted.Add(-1) // the loop counts once before its first request
			if !errors.Is(err, errNoToken) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := granted.Load(); n != capacity {
		t.Errorf("got %d tokens, want %d", n, capacity)
	}
}

// TestRequestTokenReturnsRemaining checks that request_token returns the remaining tokens and the time; empty: no row.
func TestRequestTokenReturnsRemaining(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	mustExec(t, conn, `insert into headgate.buckets (id, capacity, refill_seconds) values ('b', 3, 3600)`)
	for want := int64(2); want >= -1; want-- {
		var remaining int64
		var isCurrent bool
		err := conn.QueryRow(t.Context(), `select remaining, at between statement_timestamp() and clock_timestamp() from request_token('b')`).Scan(&remaining, &isCurrent)
		if want < 0 {
			if !errors.Is(err, pgx.ErrNoRows) {
				t.Errorf("an empty bucket: got %d, %v; want no row", remaining, err)
			}
		} else if err != nil || remaining != want || !isCurrent {
			t.Errorf("got %d remaining, %v, current time %t; want %d, true", remaining, err, isCurrent, want)
		}
	}
}

// TestTablesAndColumnsMatchMySQL checks columns that MySQL has under the same names, except where a comment says so.
func TestTablesAndColumnsMatchMySQL(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	for source, want := range map[string]string{
		"headgate.zones":   "id description rate window_seconds history_days",
		"headgate.buckets": "id capacity refill_seconds created_at",
		"headgate.limits":  "name rule description updated_at compiled origin retired varies", // MySQL: no compiled, varies
		"headgate.levels": "limit_name key used updated_at empty_at " +
			"blocked_until reason capacity remaining percent", // MySQL lacks the last three
		"headgate.history":          "number limit_name key at allowed cost id",
		"headgate.blocked_per_hour": "limit_name hour blocked keys",
		"headgate.take('fixed-window 9/1d', 'k')": "allowed remaining retry_after reset_after " +
			"limit_name at",
		"headgate.check('fixed-window 9/1d', 'k')": "allowed remaining retry_after reset_after " +
			"limit_name at",
		"headgate.block('fixed-window 9/1d', 'k', '1 s')": "blocked_until",
		"headgate.limit_of('fixed-window 9/1d', 'k')":     "rule applied until",
		"headgate.reset('fixed-window 9/1d', 'k')":        "existed",
		"headgate.attempts('fixed-window 9/1d', 'k', 5)":  "number at allowed cost id",
		"headgate.take_once('1', 'fixed-window 9/1d', 'o')": "allowed remaining retry_after reset_after " +
			"limit_name at replayed",
		"headgate.reserve('fixed-window 9/1d', 'k', 1, '1 s')": "allowed start_at delay retry_after limit_name replayed",
		"headgate.acquire('concurrency 1 ttl 1h', 'k')":        "acquired lease ttl retry_after limit_name",
		"headgate.settle('1', 'fixed-window 9/1d', 'k', 1)":    "corrected",
		"headgate.renew('concurrency 1 ttl 1h', 'k', 1)":       "done",
		"headgate.release('concurrency 1 ttl 1h', 'k', 1)":     "done",
	} {
		described, err := conn.Prepare(t.Context(), "", "select * from "+source)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		var got []string
		for _, f := range described.Fields {
			got = append(got, f.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("columns of %s: got %v, want %s", source, got, want)
		}
	}
}

// TestBlockedPerHourCountsRefusals makes five attempts by two keys, of which a limit of one an hour refuses three.
func TestBlockedPerHourCountsRefusals(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	for _, key := range []string{"a", "a", "b", "a", "b"} {
		mustExec(t, conn, `select headgate.take('sliding-log 1/1h history 1d', $1)`, key)
	}
	var blocked, keys int
	if err := conn.QueryRow(t.Context(),
		`select sum(blocked), max(keys) from headgate.blocked_per_hour where hour > now() - interval '2 hours' and limit_name like 'sliding-log 1/1h%'`).Scan(&blocked, &keys); err != nil || blocked != 3 || keys < 1 || keys > 2 {
		t.Errorf("got %d refusals of %d keys, %v; want 3 of 1 or 2 in an hour", blocked, keys, err)
	}
	var attempts, refused int
	var cost float64
	if err := conn.QueryRow(t.Context(),
		`select count(*), count(*) filter (where not allowed), sum(cost) from headgate.attempts((select limit_name from headgate.history limit 1), 'a', 2)`).Scan(&attempts, &refused, &cost); err != nil || attempts != 2 || refused != 2 || cost != 2 {
		t.Errorf("last attempts: got %d, %d refused, cost %v, %v; want 2, 2, 2", attempts, refused, cost, err)
	}
}

// TestRateLimitingRequestIsExactUnderLoad repeats the experiment of article 000: eight sessions charge one key. The
// article's function admitted up to ten times its capacity, or failed at serializable.
func TestRateLimitingRequestIsExactUnderLoad(t *testing.T) {
	t.Parallel()
	_, dsn := openSession(t)
	conns := make([]*pgx.Conn, 8)
	for i := range conns {
		conns[i] = connect(t, dsn)
	}
	const refill, capacity = 1, 300 // tokens a second; tokens
	now := func() (at time.Time) {
		if err := conns[0].QueryRow(t.Context(), "select clock_timestamp()").Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	var admitted atomic.Int64
	var wg sync.WaitGroup
	start := now()
	for _, conn := range conns {
		wg.Go(func() {
			for calls, refused := 0, 0; calls < capacity && refused < 3; calls++ {
				var remaining int
				if err := conn.QueryRow(context.Background(), `select rate_limiting_request('user', $1, $2)`,
					refill, capacity/refill).Scan(&remaining); err != nil {
					t.Errorf("rate_limiting_request: %v", err)
					return
				}
				if remaining >= 0 {
					admitted.Add(1)
				} else {
					refused++
				}
			}
		})
	}
	wg.Wait()
	// The bucket was full, and was refilled a little since.
	maxAdmitted := capacity + int64(now().Sub(start).Seconds()*refill)
	if got := admitted.Load(); got < capacity || got > maxAdmitted {
		t.Errorf("admitted %d, want %d to %d", got, capacity, maxAdmitted)
	}
}

// TestFunctionsOfArticlesAvoidTheirFaults checks that the faults of the published functions do not occur.
func TestFunctionsOfArticlesAvoidTheirFaults(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	queryInt := func(sql string) (n int) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return n
	}
	// 000, fault 4: a burst is at most the capacity, not one token more.
	for i := range 3 {
		if got := queryInt(`select rate_limiting_request('burst', 1, 3)`); got != 2-i {
			t.Errorf("call %d: got %d remaining, want %d", i, got, 2-i)
		}
	}
	if got := queryInt(`select rate_limiting_token_bucket_request('burst', 1, 3)`); got != -1 {
		t.Errorf("the fourth call on a bucket of three tokens: got %d, want -1", got)
	}
	// 000, fault 3: a call refills the time since the last call, not the age of the transaction.
	if got := queryInt(`select max(rate_limiting_request('burst', 1, 3)) from generate_series(1, 50)`); got != -1 {
		t.Errorf("50 calls in one statement: got %d, want -1", got)
	}
	// 000, fault 8: large rates do not overflow.
	if got := queryInt(`select rate_limiting_request('large', 1000000, 3600)`); got != 2147483647 {
		t.Errorf("a large bucket: got %d remaining, want 2147483647", got)
	}
	// 001: every attempt has a number, also a refused one. Keys that differ in case are different keys.
	mustExec(t, conn, `insert into headgate.zones (id, description, rate, window_seconds) values (1, 'logins', 2, 60)`)
	var lastNumber int64
	for i, want := range []int{0, 0, 1, 1} {
		var blocked, zone, rate int
		var number, window int64
		var key string
		if err := conn.QueryRow(t.Context(), `select * from check_velocity(1, '1_Alice')`).Scan(&blocked, &number,
			&zone, &key, &rate, &window); err != nil {
			t.Fatal(err)
		}
		if blocked != want || number <= lastNumber || zone != 1 || key != "1_Alice" || rate != 2 || window != 60 {
			t.Errorf("attempt %d: got %d %d %d %q %d %d, want blocked %d", i, blocked, number, zone, key, rate, window, want)
		}
		lastNumber = number
	}
	if got := queryInt(`select blocked from check_velocity(1, '1_alice')`); got != 0 {
		t.Errorf("1_alice after 1_Alice: got blocked %d, want 0: keys differ in case", got)
	}
	// 001, fault 13: a call commits nothing in the caller's transaction.
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, `select check_velocity(1, 'rolled back')`)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := queryInt(`select count(*) from headgate.history where key = 'rolled back'`); got != 0 {
		t.Errorf("got %d attempts after a rollback, want 0", got)
	}
	// 000, fault 6: many sessions may charge a new key at the same time.
	var wg sync.WaitGroup
	for range 16 {
		caller := connect(t, dsn)
		wg.Go(func() {
			if _, err := caller.Exec(context.Background(), `select rate_limiting_request('first', 1, 5)`); err != nil {
				t.Errorf("a first call: %v", err)
			}
		})
	}
	wg.Wait()
}

// TestTakeIgnoresTimeZoneOfSession charges one key in time zones 25 hours apart, and expects the same decisions as in
// one zone. In article 004 the hours between the zones drain the bucket, or delay its drain.
func TestTakeIgnoresTimeZoneOfSession(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	const east, west = "Pacific/Kiritimati", "Pacific/Pago_Pago"
	for i, zone := range []string{east, west, "UTC", east, west} {
		mustExec(t, conn, `select set_config('timezone', $1, false)`, zone)
		for call, want := range map[string]bool{
			`headgate.take('leaky-bucket 1/10h capacity 2', 'k')`: i < 2,
			`headgate.take('sliding-log 2/10h', 'k')`:             i < 2,
			`headgate.take('sliding-window 2/100d', 'k')`:         i < 2,
		} {
			var allowed bool
			if err := conn.QueryRow(t.Context(), `select allowed from `+call).Scan(&allowed); err != nil || allowed != want {
				t.Errorf("%s in %s: got %t, %v; want %t", call, zone, allowed, err, want)
			}
		}
	}
}
