package postgres_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
)

// TestGrantsFromSQLMatchAsk charges two keys in step: one by the functions for people, which first
// try an update that grants, the other by ask, which they call if the update does nothing. Both
// answer the same, and leave cells with the same rule. Between the requests time passes, and keys
// are blocked, reset, or ahead of the clock.
func TestGrantsFromSQLMatchAsk(t *testing.T) {
	t.Parallel()
	conn, _ := session(t)
	if _, err := conn.Exec(t.Context(), `
		insert into headgate.limits (name, rule) values ('hourly', 'token-bucket 7/1h burst 9'),
			('windows', 'fixed-window 4/365d'), ('blocking', 'gcra 3/1h block 1h'), ('log', 'sliding-log 3/1h');
		insert into headgate.buckets (id, capacity, refill_seconds) values ('a', 3, 7200), ('b', 3, 7200)`); err != nil {
		t.Fatal(err)
	}
	const asked = `(select array[res[1], case when res[1] = 1 then least(greatest(0, capacity - res[9]) / unit, 2147483647) else -1 end]::text from
		(select headgate_internal.ask_1(1, '%[1]s', (null, array[1, 0, unit, capacity, step, drain, 0, 0], null, null), 'b', unit, 0, '') as res,
		unit, capacity from %[2]s) x)`
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	// The drain of a fast rate between two requests would be a long time for a slow rate.
	rates := [][]int64{{1, 2, 3, 7, 60}, {999_983, 1_000_000, 1_000_001}, {2_147_483_647}}
	windows := []int64{60, 61, 3600, 86_400}
	granted, apart := 0, int64(0) // in microseconds
	third := tier.Pick(70, 200, 200)
	for step := range 3 * third {
		if rng.IntN(3) == 0 {
			disturbs := []string{
				`update headgate.cells set blocked_until = at + 3600000000`, `update headgate.cells set blocked_until = 0`,
				`delete from headgate.cells; delete from headgate.entries`, `update headgate.cells set prev = 500 where law = 1`,
				`update headgate.cells set at = at - 1800000000, empty_at = greatest(0, empty_at - 1800000000)`,
				`update headgate.cells set at = (extract(epoch from now()) * 1000000)::bigint + 1500000, level = least(level, 1) * 3 * unit`, // not so that levels differ more than before
			}
			if _, err := conn.PgConn().Exec(t.Context(), disturbs[rng.IntN(len(disturbs))]).ReadAll(); err != nil {
				t.Fatal(err)
			}
		}
		var fast, slow string
		near := int64(0)
		if step%third == 0 {
			if _, err := conn.Exec(t.Context(), `delete from headgate.cells`); err != nil {
				t.Fatal(err)
			}
		}
		some := rates[step/third]
		rate, window := some[rng.IntN(len(some))], windows[rng.IntN(len(windows))]
		switch rng.IntN(4) {
		case 0:
			near = rate/10 + 1 // the two keys are not charged at the same time
			fast = fmt.Sprintf(`array[(n >= 0)::int, n]::text from public.rate_limiting_request('a', %d, %d) n`, rate, window)
			slow = fmt.Sprintf(asked, "rate_limiting_request", fmt.Sprintf(`(select r[1] as unit, r[2] as capacity, r[3] as step,
				r[4] as drain from headgate_internal.compile_amount_1(true, %d, 1000000, %[1]d::numeric * %d) r) y`,
				rate, window))
		case 1:
			fast = `array[count(*), coalesce(max(remaining), -1)]::text from public.request_token('a')`
			slow = fmt.Sprintf(asked, "bucket.b", `(select 1000 as unit, 3000 as capacity, 7200000000 as step,
				9007199254740991 as drain) y`)
		default:
			rule := []string{"hourly", "windows", "blocking", "log", "token-bucket 5/1h", "gcra 2/1d burst 4"}[rng.IntN(6)]
			cost := []string{"1", "1", "2", "0.5", "100"}[rng.IntN(5)]
			const figures = `array[allowed::int, remaining, (retry_after is null)::int]::text from `
			fast = fmt.Sprintf(figures+`headgate.take('%s', 'a', %s)`, rule, cost)
			slow = fmt.Sprintf(figures+`headgate_internal.find_1('%s') f, headgate_internal.decide_1(1, f.name, f.c, 'b', %s)`, rule, cost)
		}
		// A cell that is empty by the rate of its last request counts as new. Any other cell drains
		// by the new rate from then on. So a pair with one empty cell cannot be compared.
		var empty, full int64
		if err := conn.QueryRow(t.Context(), `select coalesce(min(empty_at), 0), coalesce(max(empty_at), 0)
			from headgate.cells where limit_name = 'rate_limiting_request'`).Scan(&empty, &full); err != nil {
			t.Fatal(err)
		}
		var got, want, cells string
		one := func(to *string, sql string) {
			if err := conn.QueryRow(t.Context(), "select "+sql).Scan(to); err != nil {
				t.Fatalf("seed %d, step %d: %s: %v", seed, step, sql, err)
			}
		}
		clock := func() (us int64) {
			if err := conn.QueryRow(t.Context(), "select (extract(epoch from clock_timestamp()) * 1000000)::bigint").Scan(&us); err != nil {
				t.Fatal(err)
			}
			return us
		}
		began := clock()
		one(&got, fast)
		one(&want, slow)
		done := clock()
		apart = max(apart, done-began) // the most microseconds between the charges of both cells
		near += near * (20 * apart / 1_000_000)
		if empty <= done && began <= full {
			if _, err := conn.Exec(t.Context(), `delete from headgate.cells where limit_name = 'rate_limiting_request'`); err != nil {
				t.Fatal(err)
			}
			continue
		}
		one(&cells, `coalesce(string_agg(limit_name, ' '), '') from headgate.cells where
			key in ('a', 'b') group by regexp_replace(limit_name, '^bucket[.][ab]$', 'bucket') having
			count(*) filter (where law > 0) = 1 or count(distinct (unit, step)) > 1 or
			max(empty_at) - min(empty_at) > `+strconv.FormatInt(1_000_000+2*apart, 10)+`
			union all select '' limit 1`)
		if !agree(t, got, want, near) || cells != "" {
			var rows string
			one(&rows, `string_agg(c::text, chr(10)) from headgate.cells c`)
			t.Fatalf("seed %d, step %d: %s: %s, want %s; cells that differ: %s, of\n%s", seed, step, fast, got, want, cells, rows)
		}
		if got[1] == '1' {
			granted++
		}
	}
	if t.Logf("%d were granted", granted); granted < third/2 || granted > third*5/2 {
		t.Error("too few of one kind")
	}
}

// agree reports whether two answers agree in all numbers, the second only up to near.
func agree(t *testing.T, a, b string, near int64) bool {
	t.Helper()
	var x, y []int64
	for text, to := range map[string]*[]int64{a: &x, b: &y} {
		if err := json.Unmarshal([]byte("["+strings.Trim(text, "{}")+"]"), to); err != nil {
			t.Fatal(text, err)
		}
	}
	if a == b {
		return true
	}
	if d := x[1] - y[1]; d < -near || d > near {
		return false
	}
	x[1] = y[1]
	return slices.Equal(x, y)
}
