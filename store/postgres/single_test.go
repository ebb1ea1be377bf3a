package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/internal/testing/tier"
)

// cellQuery selects the cell of a key and its entries as text, without the numbers of the entries.
const cellQuery = `select coalesce((select (c.law, c.level, c.prev, c.at, c.unit, c.step, c.empty_at, c.blocked_until, c.reason)::text
		from headgate.cells c where c.limit_name = 'l' and c.key = $1), 'none') || coalesce((select string_agg(
		(e.id, e.at, e.expires_at, e.keep_until, e.cost, e.granted)::text, ' ' order by e.number)
		from headgate.entries e where e.limit_name = 'l' and e.key = $1), '')`

// TestSingleChargesMatchApply charges two cells at the same times: key a by the functions for single charges, key b by
// headgate_internal.apply. Outcomes, cells and entries must be the same. Between the charges the limit changes, time
// passes, keys are blocked, or the clock steps back.
func TestSingleChargesMatchApply(t *testing.T) {
	t.Parallel()
	for _, kind := range []int64{1, 3} {
		t.Run(fmt.Sprint("law ", kind), func(t *testing.T) {
			t.Parallel()
			conn, _ := openSession(t)
			seed := tier.Seed()
			rng := rand.New(rand.NewPCG(seed, 0))
			fastCharges, granted := 0, 0
			steps := tier.Pick(300, 1000, 1000)
			for step := range steps {
				if rng.IntN(3) == 0 {
					disturbCells(t, conn, rng)
				}
				c := singleCharge{kind: kind, cost: []int64{1000, 1000, 2500, 7000}[rng.IntN(4)]}
				c.randomize(rng)
				fastCount, grantedCount := c.compare(t, conn, fmt.Sprintf("seed %d, step %d", seed, step))
				fastCharges += fastCount
				granted += grantedCount
				if t.Failed() {
					return
				}
			}
			if fastCharges < steps/5 || granted < steps/20 || granted > steps*19/20 {
				t.Errorf("got %d charges by the fast function, %d granted of %d; want a fifth, and a 20th to 19 20ths",
					fastCharges, granted, steps)
			}
		})
	}
}

// singleCharge is a charge of one cell with the parameters of its limit.
type singleCharge struct {
	kind, anchor, unit, capacity, step, drain, block, history, cost int64
}

// randomize sets parameters: most charges have the usual ones, some have one that differs.
func (c *singleCharge) randomize(rng *rand.Rand) {
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

// compare charges key a by the function for single charges and key b by headgate_internal.apply. It returns how many
// charges (0 or 1) the function has decided, and how many were granted.
func (c *singleCharge) compare(t *testing.T, conn *pgx.Conn, operation string) (fast, granted int) {
	t.Helper()
	params := []int64{c.kind, c.anchor, c.unit, c.capacity, c.step, c.drain, c.block, c.history}
	var cellBefore, cellA, cellB string
	var got, want []int64
	scan := func(dest any, sql string, args ...any) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), sql, args...).Scan(dest); err != nil {
			t.Fatalf("%s: %+v: %v", operation, c, err)
		}
	}
	apply := func(key string, now int64) (res []int64) {
		op := []int64{
			1, 1, 1, c.kind, c.anchor, c.unit, c.capacity, c.step, max(c.drain, 1), c.block, c.history,
			c.cost, 1, 0, 0, 0, now, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		}
		scan(&res, `select headgate_internal.apply_2('{l}', array[$1], '{2}', $2, null)`, key, op)
		return res
	}
	scan(&cellBefore, cellQuery, "a")
	if c.kind == 1 {
		scan(&got, `select headgate_internal.take_one_2('l', 'a', $1, $2, $3, $4, $5, $6, $7, 0)`, c.anchor, c.unit, c.capacity, c.step, c.drain, c.block, c.cost)
	} else {
		scan(&got, `select headgate_internal.log_one_2('l', 'a', $1, $2)`, params, c.cost)
	}
	if got == nil { // the function leaves the charge to headgate_internal.apply
		if scan(&cellA, cellQuery, "a"); cellA != cellBefore {
			t.Fatalf("%s: %+v: the fast function has decided nothing, and changed the cell: got\n%s\nwant\n%s", operation, c,
				cellA, cellBefore)
		}
		got = apply("a", 0)
	} else {
		fast = 1
	}
	want = apply("b", got[9])                             // the clock of the first decision
	got[11], want[11] = min(got[11], 1), min(want[11], 1) // the entry numbers differ
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %+v:\n got %v\nwant %v", operation, c, got, want)
	}
	scan(&cellA, cellQuery, "a")
	if scan(&cellB, cellQuery, "b"); cellA != cellB {
		t.Errorf("%s: %+v: the cell was\n%s\ngot\n%s\nwant\n%s", operation, c, cellBefore, cellA, cellB)
	}
	return fast, int(got[0])
}

// disturbCells blocks or resets both cells, sets their previous windows, or moves their times.
func disturbCells(t *testing.T, conn *pgx.Conn, rng *rand.Rand) {
	t.Helper()
	sql, shift := "", rng.Int64N(4_000_000) // how far the times move into the past, in microseconds
	switch rng.IntN(8) {
	case 0:
		sql = `update headgate.cells set reason = 'r',
			blocked_until = (extract(epoch from statement_timestamp()) * 1000000)::bigint + 3000`
		shift = 0
	case 1:
		sql, shift = `delete from headgate.cells; delete from headgate.entries`, 0
	case 2:
		sql, shift = `update headgate.cells set prev = 500 where law = 1`, 0
	case 3:
		shift = -shift // ahead of the clock
	case 4:
		shift *= 5
	}
	if shift != 0 {
		sql = fmt.Sprintf(`update headgate.cells set at = at - %[1]d, empty_at = greatest(0, empty_at - %[1]d),
				blocked_until = greatest(0, blocked_until - %[1]d);
			update headgate.entries set at = at - %[1]d, expires_at = greatest(0, expires_at - %[1]d),
				keep_until = keep_until - %[1]d`, shift)
	}
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// TestNotationsAreCached charges limits without a name. headgate.notations must have each compiled notation once, at
// most 1000 of them. A role that may not insert compiles the notation at each call.
func TestNotationsAreCached(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	role := fmt.Sprintf("reader_%d", rand.Uint32())
	checkText := func(sql, want string) {
		t.Helper()
		var got string
		if err := conn.QueryRow(t.Context(), sql).Scan(&got); err != nil {
			got = err.Error()
			if pg, ok := err.(*pgconn.PgError); ok { //nolint:errorlint // it is not wrapped
				got = pg.Code
			}
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", sql, got, want)
		}
	}
	const listNotations = `select string_agg(rule || ' is ' || (compiled).canonical, '; ' order by rule) from headgate.notations`
	for want := 4; want >= 2; want-- {
		checkText(`select remaining::text from headgate.take('token-bucket 5/1h', 'k')`, fmt.Sprint(want))
	}
	checkText(`select remaining::text from headgate.check('token-bucket 6/1h', 'k')`, "6")
	checkText(`select allowed::text from headgate.take('token-bucket 0/1h', 'k')`, "22023")
	checkText(listNotations, "token-bucket 5/1h is token-bucket 5/1h burst 5")
	checkText(`insert into headgate.notations values ('fixed-window 1/1d', ('other', '{1,2}', null, null)) returning (compiled).canonical`,
		"fixed-window 1/1d")
	checkText(`insert into headgate.notations values ('fixed-window 1/1x') returning rule`, "22023")

	mustExec(t, conn, `create role `+role+`; grant usage on schema headgate, headgate_internal to `+role+`; grant execute on all functions in schema headgate, headgate_internal to `+role+`;
		grant select on headgate.limits, headgate.notations to `+role+`; grant select, insert, update, delete on
		headgate.cells, headgate.entries to `+role+`; set role `+role)
	checkText(`select remaining::text from headgate.take('token-bucket 5/1h', 'other')`, "4")
	checkText(`select remaining::text from headgate.take('token-bucket 7/1h', 'other')`, "6")
	if _, err := conn.Exec(t.Context(), `reset role; drop owned by `+role+`; drop role `+role); err != nil {
		t.Error(err)
	}
	checkText(listNotations, "fixed-window 1/1d is fixed-window 1/1d; token-bucket 5/1h is token-bucket 5/1h burst 5")
	checkText(`select sum(t.remaining)::text from generate_series(1, 1100) n, headgate.take('token-bucket ' || n || '/1d', 'k') t`,
		fmt.Sprint(1100*1099/2)) // n - 1 of each
	checkText(`select count(*)::text from headgate.notations`, "1000")
}
