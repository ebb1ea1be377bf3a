package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/internal/testing/tier"
)

// cellOf selects the cell of a key and its entries, without their numbers.
const cellOf = `select coalesce((select (c.law, c.level, c.prev, c.at, c.unit, c.step, c.empty_at, c.blocked_until, c.reason)::text
		from headgate.cells c where c.limit_name = 'l' and c.key = $1), 'none') || coalesce((select string_agg(
		(e.id, e.at, e.expires_at, e.keep_until, e.cost, e.granted)::text, ' ' order by e.number)
		from headgate.entries e where e.limit_name = 'l' and e.key = $1), '')`

// TestSingleChargesMatchApply charges two cells in step, one by the functions for single charges in
// SQL, the other by headgate_internal.apply at the same time. The outcomes, the cells and their
// entries are the same. Between the charges the limit changes, time passes, keys are blocked, or the
// clock steps back.
func TestSingleChargesMatchApply(t *testing.T) {
	t.Parallel()
	for _, kind := range []int64{1, 3} {
		t.Run(fmt.Sprint("law ", kind), func(t *testing.T) {
			t.Parallel()
			conn, _ := session(t)
			seed := tier.Seed()
			rng := rand.New(rand.NewPCG(seed, 0))
			direct, granted := 0, 0
			steps := tier.Pick(300, 1000, 1000)
			for step := range steps {
				if rng.IntN(3) == 0 {
					disturbCells(t, conn, rng)
				}
				c := single{kind: kind, cost: []int64{1000, 1000, 2500, 7000}[rng.IntN(4)]}
				c.randomize(rng)
				fast, admitted := c.compare(t, conn, fmt.Sprintf("seed %d, step %d", seed, step))
				direct += fast
				granted += admitted
				if t.Failed() {
					return
				}
			}
			t.Logf("%d charges were answered by the function for single ones, %d were granted", direct, granted)
			if direct < steps/5 || granted < steps/20 || granted > steps*19/20 {
				t.Error("too few of one kind")
			}
		})
	}
}

// single is a charge with its limit.
type single struct {
	kind, anchor, unit, capacity, step, drain, block, history, cost int64
}

func (c *single) randomize(rng *rand.Rand) {
	c.unit, c.capacity, c.step, c.drain = 1000, 6000, 1_000_000, 1000
	switch rng.IntN(12) {
	case 0:
		c.unit, c.capacity = 3000, 12_000
	case 1:
		c.step = 2_500_000
	case 2:
		c.capacity = 3000
	case 3:
		c.block = 4_000_000
	}
	if c.kind == 3 {
		c.drain = 0
		c.history = []int64{0, 5_000_000}[rng.IntN(2)]
		return
	}
	switch rng.IntN(12) {
	case 0, 1:
		c.drain = 9007199254740991
	case 2:
		c.anchor = 1
	case 3:
		c.drain = 700
	}
}

// compare charges key a by the function for single charges and key b by headgate_internal.apply.
func (c *single) compare(t *testing.T, conn *pgx.Conn, doing string) (fast, granted int) {
	t.Helper()
	params := []int64{c.kind, c.anchor, c.unit, c.capacity, c.step, c.drain, c.block, c.history}
	var before, a, b string
	var got, want []int64
	scan := func(to any, sql string, args ...any) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), sql, args...).Scan(to); err != nil {
			t.Fatalf("%s: %+v: %v", doing, c, err)
		}
	}
	apply := func(key string, now int64) (res []int64) {
		op := []int64{
			1, 1, 1, c.kind, c.anchor, c.unit, c.capacity, c.step, max(c.drain, 1), c.block, c.history,
			c.cost, 1, 0, 0, 0, now, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		}
		scan(&res, `select headgate_internal.apply_1('{l}', array[$1], '{2}', $2, null)`, key, op)
		return res
	}
	scan(&before, cellOf, "a")
	if c.kind == 1 {
		scan(&got, `select headgate_internal.take_one_1('l', 'a', $1, $2, $3, $4, $5, $6, $7, 0)`, c.anchor, c.unit, c.capacity, c.step, c.drain, c.block, c.cost)
	} else {
		scan(&got, `select headgate_internal.log_one_1('l', 'a', $1, $2)`, params, c.cost)
	}
	if got == nil { // the function leaves the charge to headgate_internal.apply
		if scan(&a, cellOf, "a"); a != before {
			t.Fatalf("%s: %+v: it has left the charge to headgate_internal.apply, and written\n%s, before\n%s", doing, c, a,
				before)
		}
		got = apply("a", 0)
	} else {
		fast = 1
	}
	want = apply("b", got[9])
	if got[11], want[11] = min(got[11], 1), min(want[11], 1); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %+v:\n got %v\nwant %v", doing, c, got, want)
	}
	scan(&a, cellOf, "a")
	if scan(&b, cellOf, "b"); a != b {
		t.Errorf("%s: %+v: the cell was\n%s, is\n%s, want\n%s", doing, c, before, a, b)
	}
	return fast, int(got[0])
}

// disturbCells lets time pass for both cells, or blocks, resets or gives back to both.
func disturbCells(t *testing.T, conn *pgx.Conn, rng *rand.Rand) {
	t.Helper()
	sql, by := "", rng.Int64N(4_000_000)
	switch rng.IntN(8) {
	case 0:
		sql = `update headgate.cells set reason = 'r',
			blocked_until = (extract(epoch from statement_timestamp()) * 1000000)::bigint + 3000`
		by = 0
	case 1:
		sql, by = `delete from headgate.cells; delete from headgate.entries`, 0
	case 2:
		sql, by = `update headgate.cells set prev = 500 where law = 1`, 0
	case 3:
		by = -by // ahead of the clock
	case 4:
		by *= 5
	}
	if by != 0 {
		sql = fmt.Sprintf(`update headgate.cells set at = at - %[1]d, empty_at = greatest(0, empty_at - %[1]d),
				blocked_until = greatest(0, blocked_until - %[1]d);
			update headgate.entries set at = at - %[1]d, expires_at = greatest(0, expires_at - %[1]d),
				keep_until = keep_until - %[1]d`, by)
	}
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// TestNotationsAreKept takes from limits without a name. Each compiled notation is kept once, and
// means the same. A role that may not insert compiles the notation at each call.
func TestNotationsAreKept(t *testing.T) {
	t.Parallel()
	conn, _ := session(t)
	role := fmt.Sprintf("reader_%d", rand.Uint32())
	run := func(sql, want string) {
		t.Helper()
		var got string
		if err := conn.QueryRow(t.Context(), sql).Scan(&got); err != nil {
			got = err.Error()
			if pg, ok := err.(*pgconn.PgError); ok { //nolint:errorlint // it is not wrapped
				got = pg.Code
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
	const count = `select string_agg(rule || ' is ' || (compiled).canonical, '; ' order by rule) from headgate.notations`
	for want := 4; want >= 2; want-- {
		run(`select remaining::text from headgate.take('token-bucket 5/1h', 'k')`, fmt.Sprint(want))
	}
	run(`select remaining::text from headgate.check('token-bucket 6/1h', 'k')`, "6")
	run(`select allowed::text from headgate.take('token-bucket 0/1h', 'k')`, "22023")
	run(count, "token-bucket 5/1h is token-bucket 5/1h burst 5")
	run(`insert into headgate.notations values ('fixed-window 1/1d', ('other', '{1,2}', null, null)) returning (compiled).canonical`,
		"fixed-window 1/1d")
	run(`insert into headgate.notations values ('fixed-window 1/1x') returning rule`, "22023")

	if _, err := conn.Exec(t.Context(), `create role `+role+`; grant usage on schema headgate, headgate_internal to `+role+`; grant execute on all functions in schema headgate, headgate_internal to `+role+`;
		grant select on headgate.limits, headgate.notations to `+role+`; grant select, insert, update, delete on
		headgate.cells, headgate.entries to `+role+`; set role `+role); err != nil {
		t.Fatal(err)
	}
	run(`select remaining::text from headgate.take('token-bucket 5/1h', 'other')`, "4")
	run(`select remaining::text from headgate.take('token-bucket 7/1h', 'other')`, "6")
	if _, err := conn.Exec(t.Context(), `reset role; drop owned by `+role+`; drop role `+role); err != nil {
		t.Error(err)
	}
	run(count, "fixed-window 1/1d is fixed-window 1/1d; token-bucket 5/1h is token-bucket 5/1h burst 5")
	run(`select sum(t.remaining)::text from generate_series(1, 1100) n, headgate.take('token-bucket ' || n || '/1d', 'k') t`,
		fmt.Sprint(1100*1099/2))
	run(`select count(*)::text from headgate.notations`, "1000")
}
