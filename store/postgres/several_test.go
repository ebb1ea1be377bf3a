package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/tier"
)

// queryText returns the columns of a query's first row, with spaces between them, or the SQLSTATE and text of its
// error.
func queryText(t *testing.T, conn *pgx.Conn, sql string) (got string) {
	t.Helper()
	err := conn.QueryRow(t.Context(), `select concat_ws(' ', `+concatTail(sql)).Scan(&got)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code + " " + pg.Message
	} else if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

const (
	windowRule    = "fixed-window 10/30d"
	chargeColumns = "allowed || ' ' || limit_name || ' ' || key || ' ' || capacity || ' ' || remaining || ' ' || refused"
)

// TestTakeFirstFromSQL checks take_first and take_first_once by their rows.
func TestTakeFirstFromSQL(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	mustExec(t, conn, `insert into headgate.limits (name, rule) values ('plan', 'fixed-window 10/30d block 1h'), ('credits', 'fixed-window 5/30d'),
		('model', 'sliding-log 5/1h history 1d'), ('monthly', 'fixed-window 4/month')`)
	columns := "alternative || ' ' || " + chargeColumns
	for _, tt := range []struct{ sql, want string }{
		{joinRows(columns, `take_first('{plan,credits}', '{a,a}', '{8,8}')`), "1 true plan a 10 2 false"},
		{joinRows(columns, `take_first('{plan,credits}', '{a,a}', '{3,3}')`), "1 false plan a 10 2 true, 2 true credits a 5 2 false"},
		{`select (headgate.take('plan', 'a', 1)).remaining`, "1"}, // the key is not blocked
		{
			joinRows(columns, `take_first('{plan,model,model,credits}', '{a,a,b,a}', '{1,5,2,2}', '{1,1,2,2}')`),
			"1 true plan a 10 0 false, 1 true model a 5 0 false",
		},
		{
			joinRows(columns, `take_first('{model,credits,model,credits}', '{a,a,b,a}', '{1,1,2,2}', '{1,1,2,2}')`),
			"1 false model a 5 0 true, 1 false credits a 5 2 false, 2 true model b 5 3 false, 2 true credits a 5 0 false",
		},
		{`select count(*) from headgate.attempts('model', 'a') where not allowed`, "0"},
		{joinRows(columns, `take_first('{model,model}', '{a,b}', '{1,4}')`), "1 false model a 5 0 true, 2 false model b 5 3 true"},
		{`select count(*) from headgate.attempts('model', 'b') where not allowed`, "1"}, // the last alternative is refused
		{joinRows(columns, `take_first('{credits,plan}', '{a,a}', '{1,1}')`), "1 false credits a 5 0 true, 2 false plan a 10 0 true"},
		{`select blocked_until > now() from headgate.levels where limit_name = 'plan'`, "t"},
		{joinRows(columns, `take_first('{monthly,credits}', '{a,c}', '{5,1}')`), "1 false monthly a 4 4 true, 2 true credits c 5 4 false"},

		{joinRows(columns+" || ' ' || replayed", `take_first_once('i', '{plan,credits}', '{a,d}', '{1,2}')`), "1 false plan a 10 0 true false, 2 true credits d 5 3 false false"},
		{`select headgate.unblock('plan', 'a'), headgate.reset('plan', 'a')`, "t t"},
		{joinRows(columns+" || ' ' || replayed", `take_first_once('i', '{plan,credits}', '{a,d}', '{1,2}')`), "2 true credits d 5 3 false true"},
		{joinRows(columns, `take_first_once('i', '{plan,credits}', '{a,d}', '{1,1}')`), `22023 id: "i": the id was used for other charges`},
		{joinRows("allowed::text", `extend_all('i', '{credits}', '{d}', '{3}')`), "true"},
		{`select headgate.settle('i', 'credits', 'd', 1)`, "2"},
		{`select headgate.settle('i', 'plan', 'a', 1)`, `22023 id: "i": no request of this id is known`},

		{joinRows("key", `take_first('{plan,credits}', '{a,a}', '{1,1}', '{1}')`), "22023 alternatives: has 1 elements, limits has 2"},
		{joinRows("key", `take_first('{plan,credits}', '{a,a}', '{1,1}', '{1,3}')`), "22023 alternatives[2]: is 3; they are numbered from 1 to 255, one after another"},
		{joinRows("key", `take_first('{plan,credits}', '{a,a}', '{1,1}', '{2,2}')`), "22023 alternatives[1]: is 2; they are numbered from 1 to 255, one after another"},
		{joinRows("key", `take_first('{plan,credits}', '{a,a}', '{1,1}', '{1,null}')`), "22023 alternatives[2]: is null; they are numbered from 1 to 255, one after another"},
		{joinRows("key", `take_first('{plan}', '{a}', '{1}', '{-2147483648}')`), "22023 alternatives[1]: is -2147483648; they are numbered from 1 to 255, one after another"},
		{joinRows("key", `take_first('{}', '{}', '{}')`), "22023 limits: is empty; a request has one charge or more"},
		{joinRows("key", `take_first(null, '{a}', '{1}', '{1}')`), "22023 limits: is null"},
	} {
		if got := queryText(t, conn, tt.sql); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.sql, got, tt.want)
		}
	}
}

// joinRows returns a query that joins an expression over all rows of a call.
func joinRows(expression, call string) string {
	return "select string_agg(" + expression + ", ', ' order by ordinality) from headgate." + call
}

// multiChargeCalls are calls of the functions for several charges, as formats for Sprintf with the limit.
var multiChargeCalls = []string{
	"take_all('{%[1]s,login,%[1]s}', '{a,b,c}', '{1,1,2.5}')", "take_all('{%s}', '{a}', '{99}')",
	"take_all('{%s}', '{a,b}', '{1}')", "take_all_once('ia', '{%s,export}', '{d,d}', '{1,1}')",
	"take_all_once('ia', '{%s,export}', '{d,d}', '{1,1}')", "take_all_once('ia', '{%[1]s,%[1]s}', '{a,a}', '{1,1}')",
	"take_first('{%s,export}', '{g,g}', '{1,1}')", "take_first_once('ig', '{%s,export}', '{g,g}', '{1,1}')",
	"extend_all('ia', '{%s,export}', '{d,d}', '{2,1}')", "extend_all('ia', '{export,%s}', '{d,d}', '{1.5,99}')",
	"extend('ia', '%s', 'd', 2.5)", "extend('ia', '%s', 'd', 99)",
	"settle_all('ia', '{%s,export}', '{d,d}', '{1,0.5}')", "reserve_all('{%s}', '{e}', '{1}', '1 hour', 'ra')",
	"reserve_all('{%[1]s,%[1]s}', '{e,f}', '{1,1}', '1 hour')", "take_up_to('%s', 'a', 1.5)",
	"take_float('%s', 'a', 0.5)", "take_float('%s', 'a', 'Infinity')", "enforce('%s', 'a', 2)",
}

// TestSeveralChargesFromSQL checks the functions for several charges, take_up_to and take_float by their rows.
func TestSeveralChargesFromSQL(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	mustExec(t, conn, `insert into headgate.limits (name, rule) values ('user', 'fixed-window 10/30d'), ('org', 'fixed-window 20/30d'),
			('huge', 'fixed-window 2000000000000000/30d'), ('blocking', 'fixed-window 1/30d block 1h'),
			('listed', 'sliding-log 5/1h history 1d');
		insert into headgate.catalog (kind, name, key, text, until) values ('override', 'user', 'vip', 'fixed-window 30/30d', 9007199254740991),
			('override', 'user', 'past', 'fixed-window 1/30d', 1)`)
	for _, tt := range []struct{ sql, want string }{
		{
			joinRows(chargeColumns, `take_all('{user,org,user}', '{a,o,a}', '{3,2.5,4}')`),
			"true user a 10 7 false, true org o 20 17 false, true user a 10 3 false",
		},
		{ // each of the two charges would pass alone
			joinRows(chargeColumns, `take_all('{user,org,user}', '{a,o,a}', '{2,1,2}')`),
			"false user a 10 3 false, false org o 20 17 false, false user a 10 3 true",
		},
		{
			joinRows("(retry_after is null) || ' ' || (retry_after > '0')", `take_all('{user,org,user}', '{a,o,b}', '{4,1,11}')`),
			"false true, false false",
		},
		{joinRows("remaining::text", `take_all('{user,org}', '{a,o}', '{3,17.5}')`), "0, 0"},
		{joinRows("remaining || ' ' || capacity", `take_all('{user,user}', '{vip,past}', '{1,1}')`), "29 30, 9 10"},
		{joinRows("remaining::text", `take_all('{huge}', '{a}', '{1000000000000001}')`), "999999999999999"},
		{joinRows("allowed::text", `take_all('{user,blocking}', '{c,a}', '{1,1}')`), "true, true"},
		{joinRows("refused::text", `take_all('{user,blocking}', '{c,a}', '{1,1}')`), "false, true"}, // the refusal blocks a
		{`select blocked_until > now() from headgate.levels where limit_name = 'blocking'`, "t"},
		{joinRows("refused::text", `take_all('{listed,blocking}', '{c,a}', '{1,1}')`), "false, true"}, // the history has the refusal
		{`select allowed, cost from headgate.attempts('listed', 'c')`, "f 1.000000"},
		{joinRows("refused::text", `take_all('[5:6]={user,org}', '[0:1]={d,d}', '{1,1}')`), "false, false"},

		{
			joinRows(chargeColumns+" || ' ' || replayed", `take_all_once('i', '{user,org}', '{x,x}', '{3,2}')`),
			"true user x 10 7 false false, true org x 20 18 false false",
		},
		{
			joinRows(chargeColumns+" || ' ' || replayed", `take_all_once('i', '{org,user}', '{x,x}', '{2,3}')`),
			"true org x 20 18 false true, true user x 10 7 false true",
		},
		{
			joinRows("key", `take_all_once('i', '{user,org}', '{x,x}', '{3,1}')`),
			`22023 id: "i": the id was used for other charges`,
		},
		{
			joinRows("key", `take_all_once('j', '{user,org,user}', '{x,x,x}', '{1,1,1}')`),
			`22023 keys[3]: "x" of "user" is charged twice; a request with an id charges each key of a limit once`,
		},
		{joinRows("limit_name || ' ' || corrected", `settle_all('i', '{user,org}', '{x,x}', '{1.5,2.5}')`), "user 1.5, org -0.5"},
		{joinRows("corrected::text", `settle_all('i', '{user,org}', '{x,x}', '{1.5,2.5}')`), "0, 0"},
		{joinRows("corrected::text", `settle_all('i', '{user,org}', '{x,x}', '{1.5,2}')`), `22023 id: "i": it is settled already`},
		{joinRows("corrected::text", `settle_all('i', '{user,org}', '{x,y}', '{1.5,2}')`), `22023 id: "i": no request of this id is known`},
		{joinRows("remaining::text", `take_all('{user,org}', '{x,x}', '{0.5,0.5}')`), "8, 17"},
		{joinRows("allowed || ' ' || replayed", `take_all_once('half', '{user,org}', '{y,y}', '{2,2}')`), "true false, true false"},
		{`select headgate.settle('half', 'user', 'y', 0)`, "2"}, // one charge of a request can be settled alone
		{joinRows("corrected::text", `settle_all('half', '{org}', '{y}', '{0}')`), "2"},

		{
			joinRows("allowed || ' ' || delay || ' ' || replayed", `reserve_all('{gcra 1/1h,token-bucket 1/1h burst 2}', '{r,r}', '{1,1}', '3 hours')`),
			"true 00:00:00 false, true 00:00:00 false",
		},
		{ // the charge of gcra sets the start of both
			joinRows("allowed || ' ' || date_trunc('minute', delay + '30 s') || ' ' || refused || ' ' || replayed",
				`reserve_all('{gcra 1/1h,token-bucket 1/1h burst 2}', '{r,r}', '{1,1}', '3 hours', 'r1')`),
			"true 01:00:00 false false, true 01:00:00 false false",
		},
		{
			joinRows("(start_at > now() + interval '50 minutes') || ' ' || replayed",
				`reserve_all('{gcra 1/1h,token-bucket 1/1h burst 2}', '{r,r}', '{1,1}', '3 hours', 'r1')`),
			"true true, true true",
		},
		{joinRows("key", `take_all_once('r1', '{gcra 1/1h,token-bucket 1/1h burst 2}', '{r,r}', '{1,1}')`), `22023 id: "r1" was reserved, and starts`},
		{
			joinRows("allowed || ' ' || (delay is null) || ' ' || refused", `reserve_all('{gcra 1/1h,token-bucket 1/1h burst 2}', '{r,new}', '{1,1}', '1 hour')`),
			"false true true, false true false",
		},
		{ // a fixed window does not queue: it admits at once or never
			joinRows("allowed || ' ' || refused", `reserve_all('{gcra 1/1h,user}', '{r,r}', '{1,1}', '3 hours')`),
			"false true, false false",
		},
		{joinRows("corrected::text", `settle_all('r1', '{gcra 1/1h,token-bucket 1/1h burst 2}', '{r,r}', '{0,0}')`), "1, 1"},

		{`select accepted, level, brim, capacity, remaining, retry_after from headgate.take_up_to('user', 'f', 7.5)`, "7.5 7.5 f 10 2 00:00:00"},
		{`select accepted, level, brim, capacity, remaining, retry_after from headgate.take_up_to('user', 'f', 7.5)`, "2.5 10 t 10 0 00:00:00"},
		{`select accepted, level, brim, retry_after > '0' from headgate.take_up_to('user', 'f', 7.5)`, "0 10 t t"},
		{`select accepted from headgate.take_up_to('huge', 'f', 1000000000000001)`, "1000000000000001"},
		{`select accepted, remaining from headgate.take_up_to('listed', 'f', 7)`, "5 0"},
		{`select accepted from headgate.take_up_to('user', 'g', 0.00001)`, "0.001"},
		{`select allowed, remaining from headgate.take_float('user', 'h', 0.1)`, "t 9"},
		{`select allowed, remaining from headgate.take_float('user', 'finer', 0.1::float8 + 0.2::float8)`, "t 9"},
		{`select used::float8 from headgate.levels where key = 'finer'`, "0.301"},
		{`select allowed, remaining from headgate.take_float('huge', 'h', 1000000000000001)`, "t 999999999999999"},
		{`select headgate.take_float('user', 'h', 'NaN')`, `22023 cost: "NaN" is not a decimal number such as 3 or 0.5`},
		{`select headgate.take_float('user', 'h', '-Infinity')`, `22023 cost: "-Infinity" is not a decimal number such as 3 or 0.5`},
		{`select headgate.take_float('user', 'h', null)`, "22023 cost: is null"},
	} {
		got := queryText(t, conn, tt.sql)
		if got != tt.want && (!strings.HasPrefix(tt.want, "22023") || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s:\n got %s\nwant %s", tt.sql, got, tt.want)
		}
	}
	// take_float reads the shortest text of a float, whatever extra_float_digits is.
	mustExec(t, conn, `set extra_float_digits = -10`)
	if got := queryText(t, conn, `select remaining from headgate.take_float('huge', 'i', 1000000000000001)`); got != "999999999999999" {
		t.Errorf("take_float with few digits: got %s, want 999999999999999", got)
	}
}

// TestInvalidSeveralChargesFromSQL makes invalid requests, which must make no cell, and a valid one of 1000 charges.
func TestInvalidSeveralChargesFromSQL(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	chargeArrays := func(n int) string {
		return fmt.Sprintf("array_fill('%s'::text, '{%d}'), array_fill('a'::text, '{%[2]d}'), array_fill(0.001, '{%[2]d}')", windowRule, n)
	}
	for args, want := range map[string]string{
		`'{}', '{}', '{}'`:                                                        "22023 limits: is empty",
		`null, '{a}', '{1}'`:                                                      "22023 limits: is null",
		`'{fixed-window 10/30d}', null, '{1}'`:                                    "22023 keys: is null",
		`'{fixed-window 10/30d}', '{a}', null`:                                    "22023 costs: is null",
		`'{fixed-window 10/30d}', '{}', '{1}'`:                                    "22023 keys: is empty",
		`'{fixed-window 10/30d}', '{a,b}', '{1}'`:                                 "22023 keys: has 2 elements, limits has 1",
		`'{fixed-window 10/30d}', '{a}', '{1,1}'`:                                 "22023 costs: has 2 elements, limits has 1",
		`'{{fixed-window 10/30d}}', '{a}', '{1}'`:                                 "22023 limits: has more than one dimension",
		`'{fixed-window 10/30d}', '{{a}}', '{1}'`:                                 "22023 keys: has more than one dimension",
		`'{fixed-window 10/30d,null}', '{a,a}', '{1,1}'`:                          "22023 limits[2]: is null",
		`'{fixed-window 10/30d,user}', '{a,a}', '{1,1}'`:                          `22023 unknown limit: "user"`,
		`'{fixed-window 10/30d,gcra x}', '{a,a}', '{1,1}'`:                        `22023 amount: "x"`,
		`'{fixed-window 10/30d,gcra 1/s}', '{a,null}', '{1,1}'`:                   "22023 keys[2]: is null",
		`'{fixed-window 10/30d,gcra 1/s}', array['a', repeat('x', 513)], '{1,1}'`: "22023 keys[2]: is 513 bytes long",
		`'{fixed-window 10/30d,gcra 1/s}', '{a,a}', '{1,null}'`:                   "22023 costs[2]: is null",
		`'{fixed-window 10/30d,gcra 1/s}', '{a,a}', '{1,NaN}'`:                    `22023 costs[2]: "NaN" is not a decimal number`,
		`'{fixed-window 10/30d,gcra 1/s}', '{a,a}', '{1,-1}'`:                     "22023 costs[2]: is -1",
		`'{fixed-window 10/30d,gcra 1/s}', '{a,a}', '{1,1e30}'`:                   "22023 costs[2]: 1000000000000000000000000000000 is too large",
		chargeArrays(1001):                                                        "22023 limits: has 1001 elements, at most 1000 are allowed",
	} {
		for call, otherArgs := range map[string][2]string{ // before and after args
			"take_all": {}, "take_all_once": {`'i', `}, "reserve_all": {"", `, '1 hour'`}, "settle_all": {`'i', `}, "extend_all": {`'i', `},
		} {
			sql := "select limit_name from headgate." + call + "(" + otherArgs[0] + args + otherArgs[1] + ")"
			if got := queryText(t, conn, sql); !strings.HasPrefix(got, want) {
				t.Errorf("%s:\n got %s\nwant %s", sql, got, want)
			}
		}
	}
	for call, want := range map[string]string{
		`take_all('{fixed-window 10/30d,concurrency 1 ttl 1h}', '{a,a}', '{1,1}')`:    "22023 limit: concurrency 1 ttl 1h is acquired and released, not taken",
		`take_all('{fixed-window 10/30d,gcra 1/s}', '{a,a}', '{1,0}')`:                "22023 costs[2]: is 0; it must be above 0",
		`take_all_once('', '{fixed-window 10/30d}', '{a}', '{1}')`:                    "22023 id: is missing",
		`take_all_once('i', '{fixed-window 10/30d}', '{a}', '{1}', null)`:             "22023 life: is null",
		`reserve_all('{fixed-window 10/30d}', '{a}', '{1}', '-1 s')`:                  "22023 wait: ",
		`settle_all(null, '{fixed-window 10/30d}', '{a}', '{1}')`:                     "22023 id: is missing",
		`settle_all('i', '{fixed-window 10/30d}', '{a}', '{0}')`:                      `22023 id: "i": no request of this id is known`,
		`take_up_to('fixed-window 10/30d', null, 1)`:                                  "22023 key: is null",
		`take_up_to('fixed-window 10/30d', 'a', -1)`:                                  "22023 cost: is -1",
		`take_up_to('nothing', 'a', 1)`:                                               "22023 unknown limit: ",
		`take_up_to('concurrency 1 ttl 1h', 'a', 1)`:                                  "22023 limit: concurrency 1 ttl 1h is acquired",
		`enforce('fixed-window 10/30d', 'a', 0)`:                                      "22023 cost: is 0",
		`enforce('sliding-log 10/30d history 40d', 'a')`:                              `0A000 limit: "sliding-log 10/30d history 40d" has a history`,
		`enforce('fixed-window 10/30d block 1h', 'a')`:                                `0A000 limit: "fixed-window 10/30d block 1h" has a block`,
		`reserve_all('{fixed-window 10/30d}', '{a}', '{1}', '1 s', 'i', '3661 days')`: "22023 life: ",
	} {
		if got := queryText(t, conn, "select limit_name from headgate."+call); !strings.HasPrefix(got, want) {
			t.Errorf("%s:\n got %s\nwant %s", call, got, want)
		}
	}
	if got := queryText(t, conn, `select count(*) from headgate.cells`); got != "0" {
		t.Errorf("got %s cells, want 0", got)
	}
	if got := queryText(t, conn, `select count(*) from headgate.take_all(`+chargeArrays(1000)+`) where allowed and remaining > 8`); got != "1000" {
		t.Errorf("got %s admitted charges, want 1000", got)
	}
}

// TestSeveralChargesFromSQLMatchGo makes the same requests from SQL and from Go, on different keys. Both must refuse
// the same requests by the same charges, and return the same capacities and remaining units.
func TestSeveralChargesFromSQLMatchGo(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	l := newLimiter(openAt(t, dsn))
	rules := []string{
		windowRule, "token-bucket 1/30d burst 8", "sliding-log 7/30d", "sliding-window 9/30d", "fixed-window 6/month America/Havana",
		"gcra 1/30d burst 5", "fixed-window 100000/30d",
	}
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	admitted := 0
	const rounds = 150
	for round := range rounds {
		n := 1 + rng.IntN(5)
		limits, keys, costs := make([]string, n), make([]string, n), make([]string, n)
		charges := make([]headgate.Charge, n)
		for i := range n {
			limits[i], costs[i] = rules[rng.IntN(len(rules))], []string{"1", "0.5", "2", "3"}[rng.IntN(4)]
			key := fmt.Sprint(round/40, rng.IntN(2))
			keys[i] = "sql " + key
			charges[i] = headgate.Charge{Limit: headgate.MustParse(limits[i]), Key: "go " + key, Cost: headgate.MustCost(costs[i])}
		}
		d, err := l.Take(t.Context(), charges...)
		if err != nil {
			t.Fatal(err)
		}
		figuresText := func(refused bool, capacity, remaining int64, retry time.Duration) string {
			return fmt.Sprint(d.Allowed, refused, capacity, remaining, retry == headgate.Never)
		}
		want := []string{figuresText(!d.Allowed, d.Capacity, d.Remaining, d.RetryAfter)}
		if n > 1 {
			want = nil
			for _, f := range d.Each {
				want = append(want, figuresText(!f.Allowed, f.Capacity, f.Remaining, f.RetryAfter))
			}
		}
		rows, err := conn.Query(t.Context(), `select allowed, refused, capacity, remaining, retry_after is null
			from headgate.take_all($1, $2, $3) order by ordinality`, limits, keys, costs)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			var allowed, refused, never bool
			var capacity, remaining int64
			err := row.Scan(&allowed, &refused, &capacity, &remaining, &never)
			return fmt.Sprint(allowed, refused, capacity, remaining, never), err
		})
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("seed %d, round %d: %q of %q at %q:\n got %q, %v\nwant %q", seed, round, limits, keys, costs, got, err, want)
		}
		if d.Allowed {
			admitted++
		}
	}
	if admitted < rounds/10 || admitted > rounds*9/10 {
		t.Errorf("got %d admitted of %d, want a tenth to nine tenths", admitted, rounds)
	}
}

// TestSeveralChargesInOppositeOrders charges the same keys by eight callers in opposite orders. No caller may wait
// forever, and the number of admissions must be exact.
func TestSeveralChargesInOppositeOrders(t *testing.T) {
	t.Parallel()
	_, dsn := openSession(t)
	const callers, capacity = 8, 40
	rule := fmt.Sprintf("fixed-window %d/30d", capacity)
	keys := []string{"a", "b", "c", "d"}
	var mu sync.Mutex
	admitted := map[string]int{}
	var wg sync.WaitGroup
	for i := range callers {
		conn := connect(t, dsn)
		wg.Go(func() {
			order := slices.Clone(keys)
			if i%2 == 1 {
				slices.Reverse(order)
			}
			for round := range 20 {
				requestKeys := order[round%2 : 2+round%3] // 1 to 4 of the keys
				rules := slices.Repeat([]string{rule}, len(requestKeys))
				costs := slices.Repeat([]int64{1}, len(requestKeys))
				var allowed bool
				if err := conn.QueryRow(context.Background(), `select bool_and(allowed) from headgate.take_all($1, $2, $3)`,
					rules, requestKeys, costs).Scan(&allowed); err != nil {
					t.Error(err)
					return
				}
				if allowed {
					mu.Lock()
					for _, key := range requestKeys {
						admitted[key]++
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	conn := connect(t, dsn)
	fullKeys := 0
	for _, key := range keys {
		var remaining int
		if err := conn.QueryRow(t.Context(), `select remaining + 1 from headgate.take($1, $2)`, rule, key).Scan(&remaining); err != nil {
			t.Fatal(err)
		}
		if admitted[key] == capacity { // take was refused, and has charged nothing
			remaining--
			fullKeys++
		}
		if remaining != capacity-admitted[key] {
			t.Errorf("%s: got %d remaining, want %d of %d", key, remaining, capacity-admitted[key], capacity)
		}
	}
	if fullKeys == 0 {
		t.Errorf("got no full key, want at least one: %v", admitted)
	}
}
