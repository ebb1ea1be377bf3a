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

// TestShortcutsMatchAskAgain charges key a by functions for people, which decide most charges in a few statements, and
// key b by headgate_internal.ask_again, which decides by the general way. Results and cells must be the same. Between
// the charges the cells grow older, or are blocked, reset or put ahead of the clock.
func TestShortcutsMatchAskAgain(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	mustExec(t, conn, `
		insert into headgate.limits (name, rule) values ('hourly', 'token-bucket 7/1h burst 9'),
			('windows', 'fixed-window 4/365d'), ('blocking', 'gcra 3/1h block 1h'), ('log', 'sliding-log 3/1h');
		insert into headgate.buckets (id, capacity, refill_seconds) values ('a', 3, 7200), ('b', 3, 7200)`)
	askAgain := func(name, compiled, credits string) string {
		return fmt.Sprintf(`headgate_internal.ask_again_2(1, array[%s], array[%s], '{b}', array[%s], 0, '', 0, '{0}', 0, '{0}', '{0}')`,
			name, compiled, credits)
	}
	// askRate is askAgain for one unit of a rate: a table of the numbers unit, capacity, step and drain.
	askRate := func(name, rate string) string {
		return `(select array[res[1], case when res[1] = 1 then least(greatest(0, capacity - res[9]) / unit, 2147483647) else -1 end]::text from
			(select ` + askAgain("'"+name+"'", "(null, array[1, 0, unit, capacity, step, drain, 0, 0], null, null)::headgate.compiled", "unit") +
			` as res, unit, capacity from ` + rate + `) x)`
	}
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	// The drain of a fast rate between two requests would be a long time for a slow rate.
	rates := [][]int64{{1, 2, 3, 7, 60}, {999_983, 1_000_000, 1_000_001}, {2_147_483_647}}
	windows := []int64{60, 61, 3600, 86_400}
	granted := 0
	maxDelay := int64(0) // the most microseconds between the charges of both keys
	stepsPerRate := tier.Pick(70, 200, 200)
	for step := range 3 * stepsPerRate {
		if rng.IntN(3) == 0 {
			changes := []string{
				`update headgate.cells set blocked_until = at + 3600000000`, `update headgate.cells set blocked_until = 0`,
				`delete from headgate.cells; delete from headgate.entries`, `update headgate.cells set prev = 500 where law = 1`,
				`update headgate.cells set at = at - 1800000000, empty_at = greatest(0, empty_at - 1800000000)`,
				`update headgate.cells set at = (extract(epoch from now()) * 1000000)::bigint + 1500000, level = least(level, 1) * 3 * unit`, // levels differ no more than before
			}
			if _, err := conn.PgConn().Exec(t.Context(), changes[rng.IntN(len(changes))]).ReadAll(); err != nil {
				t.Fatal(err)
			}
		}
		var fastQuery, slowQuery string
		tolerance := int64(0) // of the remaining units
		if step%stepsPerRate == 0 {
			mustExec(t, conn, `delete from headgate.cells`)
		}
		stepRates := rates[step/stepsPerRate]
		rate, window := stepRates[rng.IntN(len(stepRates))], windows[rng.IntN(len(windows))]
		switch rng.IntN(4) {
		case 0:
			tolerance = rate/10 + 1 // what drains in 100 ms: the two keys are not charged at the same time
			fastQuery = fmt.Sprintf(`array[(n >= 0)::int, n]::text from public.rate_limiting_request('a', %d, %d) n`, rate, window)
			slowQuery = askRate("rate_limiting_request", fmt.Sprintf(`(select r[1] as unit, r[2] as capacity, r[3] as step,
				r[4] as drain from headgate_internal.compile_amount_2(true, %d, 1000000, %[1]d::numeric * %d) r) y`,
				rate, window))
		case 1:
			fastQuery = `array[count(*), coalesce(max(remaining), -1)]::text from public.request_token('a')`
			slowQuery = askRate("bucket.b", `(select 1000 as unit, 3000 as capacity, 7200000000 as step,
				9007199254740991 as drain) y`)
		default:
			rule := []string{"hourly", "windows", "blocking", "log", "token-bucket 5/1h", "gcra 2/1d burst 4"}[rng.IntN(6)]
			cost := []string{"1", "1", "2", "0.5", "100"}[rng.IntN(5)]
			const figures = `array[allowed::int, remaining, (retry_after is null)::int]::text from `
			fastQuery = fmt.Sprintf(figures+`headgate.take('%s', 'a', %s)`, rule, cost)
			credits := fmt.Sprintf(`headgate_internal.credits_2('cost', %s, f.c, false)`, cost)
			slowQuery = fmt.Sprintf(figures+`headgate_internal.find_2('%s') f, `, rule) + askAgain("f.name", "f.c", credits) +
				` res, headgate_internal.figures_2(res, f.name, f.c)`
		}
		// A cell that is empty by the rate of its last request counts as new. Any other cell drains
		// by the new rate from then on. So a pair with one empty cell cannot be compared.
		var firstEmptyAt, lastEmptyAt int64
		if err := conn.QueryRow(t.Context(), `select coalesce(min(empty_at), 0), coalesce(max(empty_at), 0)
			from headgate.cells where limit_name = 'rate_limiting_request'`).Scan(&firstEmptyAt, &lastEmptyAt); err != nil {
			t.Fatal(err)
		}
		var got, want, cells string
		scan := func(dest *string, sql string) {
			if err := conn.QueryRow(t.Context(), "select "+sql).Scan(dest); err != nil {
				t.Fatalf("seed %d, step %d: %s: %v", seed, step, sql, err)
			}
		}
		clock := func() (us int64) {
			if err := conn.QueryRow(t.Context(), "select (extract(epoch from clock_timestamp()) * 1000000)::bigint").Scan(&us); err != nil {
				t.Fatal(err)
			}
			return us
		}
		startedAt := clock()
		scan(&got, fastQuery)
		scan(&want, slowQuery)
		endedAt := clock()
		maxDelay = max(maxDelay, endedAt-startedAt)
		tolerance += tolerance * (20 * maxDelay / 1_000_000) // once more for each 50 ms of delay
		if firstEmptyAt <= endedAt && startedAt <= lastEmptyAt {
			mustExec(t, conn, `delete from headgate.cells where limit_name = 'rate_limiting_request'`)
			continue
		}
		scan(&cells, `coalesce(string_agg(limit_name, ' '), '') from headgate.cells where
			key in ('a', 'b') group by regexp_replace(limit_name, '^bucket[.][ab]$', 'bucket') having
			count(*) filter (where law > 0) = 1 or count(distinct (unit, step)) > 1 or
			max(empty_at) - min(empty_at) > `+strconv.FormatInt(1_000_000+2*maxDelay, 10)+`
			union all select '' limit 1`)
		if !equalWithin(t, got, want, tolerance) || cells != "" {
			var rows string
			scan(&rows, `string_agg(c::text, chr(10)) from headgate.cells c`)
			t.Fatalf("seed %d, step %d: %s: got %s, want %s; cells that differ: %s, of\n%s", seed, step, fastQuery, got, want, cells, rows)
		}
		if got[1] == '1' {
			granted++
		}
	}
	if granted < stepsPerRate/2 || granted > stepsPerRate*5/2 {
		t.Errorf("got %d grants of %d, want at least a sixth granted and a sixth refused", granted, 3*stepsPerRate)
	}
}

// equalWithin reports whether two arrays of SQL are equal. Their second numbers may differ by the tolerance.
func equalWithin(t *testing.T, a, b string, tolerance int64) bool {
	t.Helper()
	var aNumbers, bNumbers []int64
	for text, dest := range map[string]*[]int64{a: &aNumbers, b: &bNumbers} {
		if err := json.Unmarshal([]byte("["+strings.Trim(text, "{}")+"]"), dest); err != nil {
			t.Fatal(text, err)
		}
	}
	if a == b {
		return true
	}
	if d := aNumbers[1] - bNumbers[1]; d < -tolerance || d > tolerance {
		return false
	}
	aNumbers[1] = bNumbers[1]
	return slices.Equal(aNumbers, bNumbers)
}
