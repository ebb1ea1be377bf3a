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

// tokens is the SQLTokenRequester of article 003, for PostgreSQL. It uses the number of affected
// rows.
type tokens struct {
	db     *sql.DB
	bucket string
}

var errNoToken = errors.New("no token available")

func (r *tokens) RequestToken(ctx context.Context) error {
	result, err := r.db.ExecContext(ctx, "select * from request_token($1)", r.bucket)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows <= 0 {
		return errors.Join(errNoToken, err)
	}
	return nil
}

// TestTheTokenRequesterOfArticle003 lets four callers empty a full bucket, and again when it is full again.
func TestTheTokenRequesterOfArticle003(t *testing.T) {
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
		requestTokens(t, db, 11)
		if _, err := db.ExecContext(t.Context(), `update headgate.cells set at = at - 86400000000, empty_at = empty_at - 86400000000`); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&tokens{db, "none"}).RequestToken(t.Context()); !errors.Is(err, errNoToken) {
		t.Errorf("of an empty bucket: %v", err)
	}
	for _, r := range []*tokens{{db, "unknown"}, {db, strings.Repeat("x", 600)}} {
		var pg *pgconn.PgError
		if err := r.RequestToken(t.Context()); !errors.As(err, &pg) || pg.Code != "22023" ||
			!strings.Contains(pg.Message, "is not in headgate.buckets; insert its id, capacity and refill_seconds") {
			t.Errorf("of a bucket that is not there: %v", err)
		}
	}
}

// requestTokens lets four callers request tokens until each is refused.
func requestTokens(t *testing.T, db *sql.DB, capacity int64) {
	t.Helper()
	var given atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			r, err := &tokens{db, "payments"}, error(nil)
			for ; err == nil; err = r.RequestToken(context.Background()) {
				given.Add(1)
			}
			given.Add(-1) // the request was refused
			if !errors.Is(err, errNoToken) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := given.Load(); n != capacity {
		t.Errorf("%d tokens were given, want %d", n, capacity)
	}
}

func TestRequestTokenReturnsWhatIsLeft(t *testing.T) {
	t.Parallel()
	conn, _ := session(t)
	if _, err := conn.Exec(t.Context(), `insert into headgate.buckets (id, capacity, refill_seconds) values ('b', 3, 3600)`); err != nil {
		t.Fatal(err)
	}
	for want := int64(2); want >= -1; want-- {
		var left int64
		var now bool
		err := conn.QueryRow(t.Context(), `select remaining, at between statement_timestamp() and clock_timestamp() from request_token('b')`).Scan(&left, &now)
		if want < 0 {
			if !errors.Is(err, pgx.ErrNoRows) {
				t.Errorf("of an empty bucket: %d, %v", left, err)
			}
		} else if err != nil || left != want || !now {
			t.Errorf("%d are left, %v; want %d; it is of now: %t", left, err, want, now)
		}
	}
}

// TestTablesAndColumnsMatchMySQL lists the columns that PostgreSQL and MySQL both have.
func TestTablesAndColumnsMatchMySQL(t *testing.T) {
	t.Parallel()
	conn, _ := session(t)
	for from, want := range map[string]string{
		"headgate.zones":   "id description rate window_seconds history_days",
		"headgate.buckets": "id capacity refill_seconds created_at",
		"headgate.limits":  "name rule description updated_at compiled origin retired varies", // the last one only here
		"headgate.levels": "limit_name key used updated_at empty_at " +
			"blocked_until reason capacity remaining percent", // the last three only here
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
		described, err := conn.Prepare(t.Context(), "", "select * from "+from)
		if err != nil {
			t.Fatalf("%s: %v", from, err)
		}
		var got []string
		for _, f := range described.Fields {
			got = append(got, f.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has %v, want %s", from, got, want)
		}
	}
}

func TestBlockedPerHourCountsRefusals(t *testing.T) {
	t.Parallel()
	conn, _ := session(t)
	for _, key := range []string{"a", "a", "b", "a", "b"} {
		if _, err := conn.Exec(t.Context(), `select headgate.take('sliding-log 1/1h history 1d', $1)`,
			key); err != nil {
			t.Fatal(err)
		}
	}
	var blocked, keys int
	if err := conn.QueryRow(t.Context(),
		`select sum(blocked), max(keys) from headgate.blocked_per_hour where hour > now() - interval '2 hours' and limit_name like 'sliding-log 1/1h%'`).Scan(&blocked, &keys); err != nil || blocked != 3 || keys < 1 || keys > 2 {
		t.Errorf("%d blocked of %d keys, %v", blocked, keys, err)
	}
	var attempts, refused int
	var cost float64
	if err := conn.QueryRow(t.Context(),
		`select count(*), count(*) filter (where not allowed), sum(cost) from headgate.attempts((select limit_name from headgate.history limit 1), 'a', 2)`).Scan(&attempts, &refused, &cost); err != nil || attempts != 2 || refused != 2 || cost != 2 {
		t.Errorf("the last attempts: %d, %d refused, cost %v, %v", attempts, refused, cost, err)
	}
}

// TestRateLimitingRequestIsExactUnderLoad repeats the experiment of article 000, 8 sessions on one
// key. The article's function admitted up to ten times too many, or failed at serializable.
func TestRateLimitingRequestIsExactUnderLoad(t *testing.T) {
	t.Parallel()
	_, dsn := session(t)
	conns := make([]*pgx.Conn, 8)
	for i := range conns {
		conns[i] = connect(t, dsn)
	}
	const refill, capacity = 1, 300 // a second
	now := func() (at time.Time) {
		if err := conns[0].QueryRow(t.Context(), "select clock_timestamp()").Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	var admitted atomic.Int64
	var wg sync.WaitGroup
	begin := now()
	for _, conn := range conns {
		wg.Go(func() {
			for asked, refused := 0, 0; asked < capacity && refused < 3; asked++ {
				var remaining int
				if err := conn.QueryRow(context.Background(), `select rate_limiting_request('user', $1, $2)`,
					refill, capacity/refill).Scan(&remaining); err != nil {
					t.Errorf("%v", err)
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
	// The bucket was full, and has drained a little since.
	most := capacity + int64(now().Sub(begin).Seconds()*refill)
	if got := admitted.Load(); got < capacity || got > most {
		t.Errorf("admitted %d, want %d to %d", got, capacity, most)
	}
}

func TestTheArticlesFunctionsKeepTheirPromises(t *testing.T) {
	t.Parallel()
	conn, dsn := session(t)
	one := func(sql string) (n int) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return n
	}
	// 000, fault 4: the burst is the bucket, not one more.
	for i := range 3 {
		if got := one(`select rate_limiting_request('burst', 1, 3)`); got != 2-i {
			t.Errorf("call %d: %d left, want %d", i, got, 2-i)
		}
	}
	if got := one(`select rate_limiting_token_bucket_request('burst', 1, 3)`); got != -1 {
		t.Errorf("the fourth of three: %d, want -1", got)
	}
	// 000, fault 3: one transaction is not credited its whole age at each call.
	if got := one(`select max(rate_limiting_request('burst', 1, 3)) from generate_series(1, 50)`); got != -1 {
		t.Errorf("many calls in one statement: %d", got)
	}
	// 000, fault 8: large rates do not overflow.
	if got := one(`select rate_limiting_request('large', 1000000, 3600)`); got != 2147483647 {
		t.Errorf("a large bucket: %d left", got)
	}
	// 001: blocked or not, every attempt has a number; keys differ in case.
	if _, err := conn.Exec(t.Context(), `insert into headgate.zones (id, description, rate, window_seconds) values (1, 'logins', 2, 60)`); err != nil {
		t.Fatal(err)
	}
	var last int64
	for i, want := range []int{0, 0, 1, 1} {
		var blocked, zone, rate int
		var number, window int64
		var key string
		if err := conn.QueryRow(t.Context(), `select * from check_velocity(1, '1_Alice')`).Scan(&blocked, &number,
			&zone, &key, &rate, &window); err != nil {
			t.Fatal(err)
		}
		if blocked != want || number <= last || zone != 1 || key != "1_Alice" || rate != 2 || window != 60 {
			t.Errorf("attempt %d: %d %d %d %q %d %d", i, blocked, number, zone, key, rate, window)
		}
		last = number
	}
	if got := one(`select blocked from check_velocity(1, '1_alice')`); got != 0 {
		t.Error("1_Alice and 1_alice share a bucket")
	}
	// 001, fault 13: a caller's transaction stays the caller's.
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select check_velocity(1, 'rolled back')`); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := one(`select count(*) from headgate.history where key = 'rolled back'`); got != 0 {
		t.Errorf("%d attempts were committed inside the caller's transaction", got)
	}
	// 000, fault 6: the first use of a key by many at once.
	var wg sync.WaitGroup
	for range 16 {
		c := connect(t, dsn)
		wg.Go(func() {
			if _, err := c.Exec(context.Background(), `select rate_limiting_request('first', 1, 5)`); err != nil {
				t.Errorf("a first call: %v", err)
			}
		})
	}
	wg.Wait()
}

// TestTheZoneOfASessionChangesNothing charges one key by sessions in time zones 25 hours apart. In article 004 the
// hours between the zones leak, or are postponed.
func TestTheZoneOfASessionChangesNothing(t *testing.T) {
	t.Parallel()
	conn, _ := session(t)
	const east, west = "Pacific/Kiritimati", "Pacific/Pago_Pago"
	for i, zone := range []string{east, west, "UTC", east, west} {
		if _, err := conn.Exec(t.Context(), `select set_config('timezone', $1, false)`, zone); err != nil {
			t.Fatal(err)
		}
		for call, want := range map[string]bool{
			`headgate.take('leaky-bucket 1/10h capacity 2', 'k')`: i < 2,
			`headgate.take('sliding-log 2/10h', 'k')`:             i < 2,
			`headgate.take('sliding-window 2/100d', 'k')`:         i < 2,
		} {
			var allowed bool
			if err := conn.QueryRow(t.Context(), `select allowed from `+call).Scan(&allowed); err != nil || allowed != want {
				t.Errorf("%s, in %s: %t, %v; want %t", call, zone, allowed, err, want)
			}
		}
	}
}
