package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// openSession returns a session of a new, migrated database, and the DSN of the database.
func openSession(t *testing.T) (conn *pgx.Conn, dsn string) {
	t.Helper()
	dsn = migrated.Postgres(t)
	return connect(t, dsn), dsn
}

// connect returns a session of a database, which ends with the test.
func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// execer is a session, a transaction or a pool.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// mustExec executes a statement, and fails the test at an error.
func mustExec(t *testing.T, db execer, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// TestCompileMatchesTheGoldenNotations compiles each limit of notations.golden, and compares its canonical form and its
// parameters, or the field that its error names, unless that is limit.
func TestCompileMatchesTheGoldenNotations(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	golden, err := os.ReadFile("../../testdata/notations.golden")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(golden)) {
		// A notation, its canonical form or "error", its parameters, and the field of an error.
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		var canonical string
		var params []int64
		err := conn.QueryRow(t.Context(),
			`select (c).canonical, (c).params from (select headgate_internal.compile_2($1) as c) x`, f[0]).Scan(
			&canonical, &params)
		if f[1] == "error" {
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.Code != "22023" {
				t.Errorf("%q: got %q %v, %v; want an error", f[0], canonical, params, err)
			} else if field := f[3]; field != "limit" && !strings.HasPrefix(pg.Message, field+":") {
				t.Errorf("%q: the error %q does not name the field %s", f[0], pg.Message, field)
			}
			continue
		}
		if got := strings.Trim(fmt.Sprint(params), "[]"); err != nil || canonical != f[1] || got != f[2] {
			t.Errorf("%q:\n got %q %s %v\nwant %q %s", f[0], canonical, got, err, f[1], f[2])
		}
	}
}

// TestShortNotationsFromSQL checks the decisions and the names of limits whose notation has no algorithm.
func TestShortNotationsFromSQL(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	for _, tt := range []struct{ rule, want string }{
		{"0", "f 0 - 0"},
		{"unlimited", "t 9007199254739 00:00:00 unlimited"},
		{"unlimited", "t 9007199254739 00:00:00 unlimited"},
		{"2/h", "t 1 00:00:00 token-bucket 2/1h burst 2"},
		{"2 per hour", "t 0 00:00:00 token-bucket 2/1h burst 2"},
		{"0", "f 0 - 0"},
	} {
		var got string
		if err := conn.QueryRow(t.Context(), `select concat_ws(' ', allowed, remaining, coalesce(retry_after::text, '-'), limit_name)
			from headgate.take($1, 'k')`, tt.rule).Scan(&got); err != nil || got != tt.want {
			t.Errorf("%s: got %q, %v; want %q", tt.rule, got, err, tt.want)
		}
	}
}

// TestCalendarWindowsMatchGo compares calendar windows of the server with Go: the retry time of a refused request in Go
// must be the end of the server's window. The times lie within 30 hours of changes of some zones' clocks.
func TestCalendarWindowsMatchGo(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	zones := []string{
		"UTC", "Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Asia/Kolkata",
		"Australia/Lord_Howe", "Pacific/Apia", "America/St_Johns",
	}
	changes := []string{
		"2018-11-04T03:00:00Z", "2026-11-01T04:30:00Z", "2026-10-03T15:30:00Z", "2011-12-30T10:00:00Z",
		"2026-03-29T01:00:00Z", "2006-10-29T02:31:00Z",
	}
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 120 {
		zone, unit := zones[rng.IntN(len(zones))], []string{"hour", "day", "week", "month"}[rng.IntN(4)]
		at, _ := time.Parse(time.RFC3339, changes[rng.IntN(len(changes))])
		now := at.UnixMicro() + rng.Int64N(60*3600e6) - 30*3600e6
		var bounds []int64
		if err := conn.QueryRow(t.Context(), `select headgate_internal.bounds_2($1, $2, $3)`, unit, zone, now).Scan(
			&bounds); err != nil {
			t.Fatal(err)
		}
		if bounds[1] > now || now >= bounds[2] {
			t.Errorf("seed %d: %s %s: got boundaries %v, want the second and third around %d", seed, unit, zone, bounds, now)
		}
		l := headgate.New(memory.New(&memory.Config{Clock: func() int64 { return now }}),
			&headgate.Config{Clock: func() int64 { return now }})
		limit := headgate.MustParse("fixed-window 1/" + unit + " " + zone)
		for range 2 {
			d, err := l.Allow(t.Context(), limit, "k")
			if err != nil {
				t.Fatal(err)
			}
			if !d.Allowed && now+d.RetryAfter.Microseconds() != bounds[2] {
				t.Errorf("seed %d: %s %s at %s: the next window starts at %s, in Go at %s", seed, unit, zone,
					time.UnixMicro(now).UTC(), time.UnixMicro(bounds[2]).UTC(), d.At.Add(d.RetryAfter))
			}
		}
	}
}

// decisionRow is a row of type headgate.decision.
type decisionRow struct {
	allowed                bool
	remaining              int64
	retryAfter, resetAfter *time.Duration // nil: null
	limit                  string
	at                     time.Time
}

// queryDecision returns a decision, and checks that its time is within an hour of the test's clock.
func queryDecision(t *testing.T, conn *pgx.Conn, sql string) decisionRow {
	t.Helper()
	d := queryDecisionAt(t, conn, sql)
	if now := time.Now(); d.at.Before(now.Add(-time.Hour)) || d.at.After(now.Add(time.Hour)) {
		t.Errorf("%s: decided at %s, want about %s", sql, d.at, now)
	}
	return d
}

// queryDecisionAt returns a decision of any time.
func queryDecisionAt(t *testing.T, conn *pgx.Conn, sql string) (d decisionRow) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql).Scan(&d.allowed, &d.remaining, &d.retryAfter, &d.resetAfter, &d.limit,
		&d.at); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return d
}

// TestTakeCheckBlockResetFromSQL calls the functions for single charges by notation and by name, and then the driver.
func TestTakeCheckBlockResetFromSQL(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s := openAt(t, dsn)
	storetest.Define(t, s, store.Item{Name: "login", Text: "sliding-log 2/1m history 1d block 1h", Note: "tries"})
	if d := queryDecision(t, conn, `select * from headgate.take('token-bucket 5/1h', 'a', 2.5)`); !d.allowed ||
		d.remaining != 2 || *d.retryAfter != 0 || d.limit != "token-bucket 5/1h burst 5" {
		t.Errorf("take: got %+v, want 2 remaining", d)
	}
	if d := queryDecision(t, conn, `select * from headgate.take('token-bucket 5/1h', 'a', 6)`); d.allowed || d.retryAfter != nil {
		t.Errorf("a cost above the capacity: got %+v, want a refusal without a retry time", d)
	}
	for _, cost := range []string{"1e-30", "0.000000001", "0.0000005", "1", "9007199254740991"} {
		if d := queryDecision(t, conn, `select * from headgate.take('0', 'a', `+cost+`)`); d.allowed || d.retryAfter != nil {
			t.Errorf("a cost of %s under limit 0: got %+v, want a refusal without a retry time", cost, d)
		}
	}
	if d := queryDecision(t, conn, `select * from headgate.check('token-bucket 5/1h', 'a', 5)`); d.allowed ||
		d.retryAfter.Round(time.Minute) != 30*time.Minute {
		t.Errorf("check: got %+v, want a refusal for half an hour", d)
	}
	for i, want := range []bool{true, true, false, false} {
		if d := queryDecision(t, conn, `select * from headgate.take('login', 'bob')`); d.allowed != want {
			t.Errorf("take %d of login: got %+v, want allowed %t", i, d, want)
		}
	}
	var attempts, refused int
	if err := conn.QueryRow(t.Context(),
		`select count(*), count(*) filter (where not allowed) from headgate.history where limit_name = 'login' and key = 'bob'`).Scan(&attempts, &refused); err != nil || attempts != 4 || refused != 2 {
		t.Errorf("history: got %d attempts, %d refused, %v; want 4, 2", attempts, refused, err)
	}
	var existed bool
	if err := conn.QueryRow(t.Context(), `select headgate.reset('login', 'bob')`).Scan(&existed); err != nil ||
		!existed {
		t.Errorf("reset: got %v, %v; want true", existed, err)
	}
	var until *time.Time
	if err := conn.QueryRow(t.Context(), `select headgate.block('login', 'bob', '15 minutes', 'abuse')`).Scan(
		&until); err != nil || until == nil {
		t.Errorf("block: got %v, %v; want a time", until, err)
	}
	if d := queryDecision(t, conn, `select * from headgate.check('login', 'bob')`); d.allowed || d.remaining != 0 ||
		d.retryAfter.Round(time.Minute) != 15*time.Minute {
		t.Errorf("a blocked key: got %+v, want a refusal for 15 minutes", d)
	}
	if err := conn.QueryRow(t.Context(), `select headgate.block('login', 'bob', '0')`).Scan(&until); err != nil ||
		until != nil {
		t.Errorf("block for 0: got %v, %v; want no time", until, err)
	}
	if d := queryDecision(t, conn, `select * from headgate.take('login', 'bob')`); !d.allowed {
		t.Errorf("after the block was lifted: got %+v, want an admission", d)
	}
	// The driver and the functions share cells.
	d, err := newLimiter(s).Check(t.Context(),
		headgate.Charge{Limit: headgate.MustParse("token-bucket 5/1h"), Key: "a"})
	if err != nil || d.Remaining != 2 {
		t.Errorf("Check of the driver: got %+v, %v; want 2 remaining", d, err)
	}
}

// TestWriteCatalogRefusesUnknownTimeZones writes two limits three times, the second time one of them in a time zone
// that the server does not know: then neither limit may change.
func TestWriteCatalogRefusesUnknownTimeZones(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s := openAt(t, dsn)
	for _, tt := range []struct{ rule, note, problem, want string }{
		{"fixed-window 3/day Europe/Berlin", "login 1", "", "fixed-window 3/day Europe/Berlin login 1"},
		{
			"fixed-window 4/day Atlantis/Capital", "login 2",
			`limit export: zone: "Atlantis/Capital" is not a known time zone such as Europe/Berlin`,
			"fixed-window 3/day Europe/Berlin login 1",
		},
		{"fixed-window 4/day", "login 3", "", "fixed-window 4/day login 3"},
	} {
		err := storetest.TryDefine(t.Context(), s, store.Item{Name: "export", Text: tt.rule},
			store.Item{Name: "login", Text: "sliding-log 5/1m", Note: tt.note})
		if (tt.problem == "") != (err == nil) || err != nil &&
			(!errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), tt.problem)) {
			t.Errorf("%s: got %v, want %q", tt.rule, err, tt.problem)
		}
		var got string
		if err := conn.QueryRow(t.Context(), `select e.rule || ' ' || l.description from headgate.limits e, headgate.limits l
			where e.name = 'export' and l.name = 'login'`).Scan(&got); err != nil || got != tt.want {
			t.Errorf("%s: got %q in the catalog, %v; want %q", tt.rule, got, err, tt.want)
		}
	}
}

// TestInvalidSQLArgumentsChargeNothing checks that each error names the parameter, and that no call makes a cell.
func TestInvalidSQLArgumentsChargeNothing(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	for _, tt := range []struct{ call, problem string }{
		{`headgate.take('nope', 'k')`, "unknown limit"},
		{`headgate.take(null, 'k')`, "limit"},
		{`headgate.take('token-bucket 5/s', null)`, "key"},
		{`headgate.take('token-bucket 5/s', repeat('k', 513))`, "key"},
		{`headgate.take('token-bucket 5/s', 'k', null)`, "cost"},
		{`headgate.take('token-bucket 5/s', 'k', 0)`, "cost"},
		{`headgate.take('token-bucket 5/s', 'k', -1)`, "cost"},
		{`headgate.take('token-bucket 5/s', 'k', 'NaN')`, "cost"},
		{`headgate.take('token-bucket 5/s', 'k', 1e30)`, "cost"},
		{`headgate.take('token-bucket 0/s', 'k')`, "amount"},
		{`headgate.take('concurrency 5 ttl 1s', 'k')`, "limit"},
		{`headgate.block('token-bucket 5/s', 'k', null)`, "for_interval"},
		{`headgate.block('token-bucket 5/s', 'k', '-1 s')`, "for_interval"},
		{`headgate.sweep(-1)`, "p_max: is -1"},
		{`headgate.sweep(null)`, "p_max: is null"},
		{`headgate.attempts('token-bucket 5/s', 'k', -1)`, "p_most: is -1"},
		{`headgate.attempts('token-bucket 5/s', 'k', null)`, "p_most: is null"},
		{`check_velocity(7, 'k')`, "zone: 7 is not in headgate.zones; insert its id, rate and window_seconds"},
		{`check_velocity(null, 'k')`, "zone"},
		{`rate_limiting_request(null)`, "rate_id"},
		{`rate_limiting_request('k', 0)`, "refill_per_sec"},
		{`rate_limiting_request('k', 1, -1)`, "window_seconds"},
	} {
		_, err := conn.Exec(t.Context(), "select "+tt.call)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "22023" || !strings.Contains(pg.Message, tt.problem) {
			t.Errorf("%s: got %v, want an error about %s", tt.call, err, tt.problem)
		}
	}
	var cells int
	if err := conn.QueryRow(t.Context(), `select count(*) from headgate.cells`).Scan(&cells); err != nil || cells != 0 {
		t.Errorf("got %d cells, %v; want 0", cells, err)
	}
}

// TestSQLReturnsTheTimeOfTheDecision puts the time of a cell ahead of the clock, as if the clock had been set back.
// take and check must return the cell's time if it is ahead by at most what the limit takes to drain, or 2 s if that is
// more (see law.Params.HealAfter), and else the clock's.
func TestSQLReturnsTheTimeOfTheDecision(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	for _, tt := range []struct {
		call         string
		ahead        time.Duration
		wantCellTime bool
	}{
		{`take('sliding-log 5/2s', 'a', 1)`, 1500 * time.Millisecond, true},
		{`check('sliding-log 5/2s', 'a', 1)`, 1500 * time.Millisecond, true},
		{`take('token-bucket 5/1h', 'b', 1)`, 10 * time.Minute, true},
		{`check('token-bucket 5/1h', 'b', 1)`, 10 * time.Minute, true},
		{`check('sliding-log 5/2s', 'a', 1)`, time.Minute, false},
		{`take('sliding-log 5/2s', 'a', 1)`, time.Minute, false},
		{`check('token-bucket 5/1h', 'b', 1)`, 3 * time.Hour, false},
		{`take('token-bucket 5/1h', 'b', 1)`, 3 * time.Hour, false},
	} {
		queryDecisionAt(t, conn, `select * from headgate.`+strings.Replace(tt.call, "check", "take", 1))
		var at time.Time
		if err := conn.QueryRow(t.Context(), `update headgate.cells set at = (extract(epoch from clock_timestamp()) * 1000000)::bigint + $1
			where key = $2 returning headgate_internal.instant_2(at)`, tt.ahead.Microseconds(), strings.Split(tt.call, "'")[3]).Scan(&at); err != nil {
			t.Fatal(err)
		}
		if got := queryDecisionAt(t, conn, `select * from headgate.`+tt.call).at; got.Before(at) == tt.wantCellTime {
			t.Errorf("%s, the cell %s ahead: got %s, the cell has %s, want the cell's time: %t", tt.call, tt.ahead, got, at, tt.wantCellTime)
		}
	}
}
