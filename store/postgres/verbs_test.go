package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
)

// TestVerbsFromSQL checks take_once, settle, cancel, debit, reserve and the functions of leases. A case has the columns
// of the row, or the SQLSTATE 22023 and the beginning of the error.
func TestVerbsFromSQL(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	for _, tt := range []struct{ sql, want string }{
		{`select allowed, remaining, replayed from headgate.take_once('o1', 'fixed-window 10/30d', 'a', 3)`, "t 7 f"},
		{`select allowed, remaining, replayed from headgate.take_once('o1', 'fixed-window 10/30d', 'a', 3)`, "t 7 t"},
		{`select headgate.settle('o1', 'fixed-window 10/30d', 'a', 1.5)`, "1.5"},
		{`select headgate.settle('o1', 'fixed-window 10/30d', 'a', 1.5)`, "0"},
		{`select headgate.settle('o1', 'fixed-window 10/30d', 'a', 0)`, `22023 id: "o1": it is settled already`},
		{`select headgate.cancel('o1', 'fixed-window 10/30d', 'a')`, `22023 id: "o1": it is settled already`},
		{`select headgate.cancel('o2', 'fixed-window 10/30d', 'a')`, `22023 id: "o2": no request of this id is known`},
		{`select allowed, replayed from headgate.take_once('c', 'fixed-window 10/30d', 'c', 4)`, "t f"},
		{`select headgate.cancel('c', 'fixed-window 10/30d', 'c')`, "4"},
		{`select headgate.cancel('c', 'fixed-window 10/30d', 'c')`, "0"},
		{`select headgate.settle('c', 'fixed-window 10/30d', 'c', 0)`, `22023 id: "c": it is settled already`},
		{`select allowed, replayed from headgate.take_once('c', 'fixed-window 10/30d', 'c', 4)`, "t f"},
		{`select headgate.settle('c', 'fixed-window 10/30d', 'c', 0)`, "4"},
		{`select allowed, replayed from headgate.take_once('c', 'fixed-window 10/30d', 'c', 4)`, "t t"},
		{`select charged, used, is_over, limit_name, replayed from headgate.debit('w', 'fixed-window 10/30d', 'w', 12.5)`, "t 12.5 t fixed-window 10/30d f"},
		{`select charged, used, is_over, replayed from headgate.debit('w', 'fixed-window 10/30d', 'w', 12.5)`, "t 12.5 t t"},
		{`select charged from headgate.debit('w', 'fixed-window 10/30d', 'w', 1)`, `22023 id: "w": the id was used for other charges`},
		{`select headgate.settle('w', 'fixed-window 10/30d', 'w', 2)`, "10.5"},
		{`select charged, used, is_over from headgate.debit('w2', 'sliding-window 10/30d', 'w', 30)`, "t 30 t"},
		{`select charged from headgate.debit('w3', 'sliding-window 10/30d', 'w', 5000000000)`, "f"},
		{`select charged from headgate.debit('w4', 'fixed-window 10/30d keep 10%', 'w', 1)`, "22023 keep: has no meaning"},
		{`select charged from headgate.debit(null, 'fixed-window 10/30d', 'w', 1)`, "22023 id: is missing"},
		{`select charged from headgate.debit('w5', 'concurrency 1 ttl 30s', 'w', 1)`, "22023 limit: concurrency 1 ttl 30s is acquired and released, not taken"},
		{
			`select headgate.settle('o2', 'fixed-window 10/30d', 'a', 0)`,
			`22023 id: "o2": no request of this id is known`,
		},
		{
			`select allowed from headgate.take_once('o1', 'fixed-window 10/30d', 'a', 2)`,
			`22023 id: "o1": the id was used for other charges`,
		},
		{`select allowed from headgate.take_once('', 'fixed-window 10/30d', 'a')`, "22023 id: is missing"},
		{`select allowed from headgate.take_once('x', 'fixed-window 10/30d', 'a', life => null)`, "22023 life: is null"},
		{`select headgate.settle('x', 'fixed-window 10/30d', 'a', -1)`, "22023 actual: is -1; it must not be below 0"},
		{`select allowed, remaining, replayed from headgate.take_once('o3', 'fixed-window 10/30d', 'a', 4)`, "t 4 f"},
		{`select headgate.settle('o3', 'fixed-window 10/30d', 'a', 6)`, "-2"},
		{`select headgate.settle('o3', 'fixed-window 10/30d', 'a', 6)`, "0"},

		{`select allowed, delay from headgate.reserve('token-bucket 1/1h burst 1', 'a', 1, '3 hours')`, "t 00:00:00"},
		{`select allowed, date_trunc('minute', delay + '30 seconds') from headgate.reserve('token-bucket 1/1h burst 1', 'a', 1, '3 hours', 'r1')`, "t 01:00:00"},
		{`select allowed, delay > '59 minutes' and start_at > now() + interval '59 minutes', replayed from headgate.reserve('token-bucket 1/1h burst 1', 'a', 1, '3 hours', 'r1')`, "t t t"},
		{
			`select allowed from headgate.take_once('r1', 'token-bucket 1/1h burst 1', 'a', 1)`,
			"22023 id: \"r1\" was reserved, and starts",
		},
		{`select allowed, start_at is null, delay is null from headgate.reserve('token-bucket 1/1h burst 1', 'a', 1, '1 hour')`, "f t t"},
		{
			`select allowed, retry_after is null from headgate.reserve('token-bucket 1/1h burst 1', 'a', 2, '30 hours')`,
			"f t",
		},
		{`select allowed from headgate.take('token-bucket 1/1m burst 1 block 15m', 'w', 1)`, "t"},
		{`select allowed from headgate.reserve('token-bucket 1/1m burst 1 block 15m', 'w', 1, '1 ms')`, "f"},
		{`select retry_after < '1 minute' from headgate.check('token-bucket 1/1m burst 1 block 15m', 'w', 1)`, "t"},
		{`select retry_after from headgate.reserve('token-bucket 1/1m burst 1 block 15m', 'w', 1, '0')`, "00:15:00"},
		{`select allowed from headgate.take('fixed-window 1/1d block 15d', 'w', 1)`, "t"},
		{
			`select allowed, retry_after <= '1 day' from headgate.reserve('fixed-window 1/1d block 15d', 'w', 1, '1 ms')`,
			"f t",
		},
		{
			`select allowed from headgate.reserve('token-bucket 1/1h burst 1', 'a', 1, '-1 hour')`,
			"22023 wait: -01:00:00 is not from 0 to 3660 days",
		},
		{
			`select allowed from headgate.reserve('concurrency 1 ttl 30s', 'a', 1, '1 hour')`,
			"22023 limit: concurrency 1 ttl 30s is acquired and released, not taken",
		},

		{
			`select acquired, lease > 0, ttl, retry_after from headgate.acquire('concurrency 1 ttl 1h', 'a')`,
			"t t 01:00:00 00:00:00",
		},
		{`select acquired, lease is null, retry_after > '59 minutes' from headgate.acquire('concurrency 1 ttl 1h', 'a')`, "f t t"},
		{`select headgate.renew('concurrency 1 ttl 1h', 'a', max(number)) from headgate.entries`, "t"},
		{`select headgate.release('concurrency 1 ttl 1h', 'a', max(number)) from headgate.entries`, "t"},
		{`select headgate.release('concurrency 1 ttl 1h', 'a', max(number)) from headgate.entries`, "f"},
		{`select headgate.renew('concurrency 1 ttl 1h', 'a', max(number)) from headgate.entries`, "f"},
		{`select acquired from headgate.acquire('concurrency 1 ttl 1h', 'a')`, "t"},
		{
			`select acquired from headgate.acquire('fixed-window 1/1h', 'a')`,
			"22023 limit: fixed-window 1/1h is taken, not acquired",
		},
		{`select headgate.release('concurrency 1 ttl 1h', 'a', null)`, "22023 lease: was never acquired"},
	} {
		var got string
		err := conn.QueryRow(t.Context(), `select concat_ws(' ', `+concatTail(tt.sql)).Scan(&got)
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
			got = pg.Code + " " + pg.Message
		} else if err != nil {
			t.Errorf("%s: %v", tt.sql, err)
		}
		if got != tt.want && (!strings.HasPrefix(tt.want, "22023") || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s:\n got %s\nwant %s", tt.sql, got, tt.want)
		}
	}
}

// concatTail turns "select A from B" into "A) from B", the end of "select concat_ws(' ', A) from B".
func concatTail(sql string) string {
	columns, source, hasSource := strings.Cut(strings.TrimPrefix(sql, "select "), " from ")
	if !hasSource {
		return columns + ")"
	}
	return columns + ") from " + source
}

// TestGoAndSQLShareIDs takes in Go, repeats and settles the request in SQL, and settles it in Go again.
func TestGoAndSQLShareIDs(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	l := newLimiter(openAt(t, dsn))
	charge := headgate.Charge{
		Limit: headgate.MustParse("sliding-log 100/1h"), Key: "käse",
		Cost: headgate.MustCost("2.5"),
	}
	once := l.Once("order", time.Hour)
	if d, err := once.Take(t.Context(), charge); err != nil || !d.Allowed {
		t.Fatalf("Take: got %+v, %v; want an admission", d, err)
	}
	var replayed bool
	if err := conn.QueryRow(t.Context(),
		`select replayed from headgate.take_once('order', 'sliding-log 100/1h', 'käse', 2.5)`).Scan(
		&replayed); err != nil || !replayed {
		t.Errorf("take_once: got replayed %t, %v; want true", replayed, err)
	}
	var corrected float64
	if err := conn.QueryRow(t.Context(), `select headgate.settle('order', 'sliding-log 100/1h', 'käse', 1)`).Scan(
		&corrected); err != nil || corrected != 1.5 { // 2.5 less 1
		t.Errorf("headgate.settle: got %v, %v; want 1.5", corrected, err)
	}
	charge.Cost = headgate.Units(1)
	if corrections, err := once.Settle(t.Context(), charge); err != nil || corrections[0] != headgate.Units(0) {
		t.Errorf("Settle of a settled charge: got %v, %v; want 0", corrections, err)
	}
}
