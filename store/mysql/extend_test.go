package mysql_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

// TestExtendByCall checks the answers of headgate_extend and headgate_extend_all: of known and unknown ids, before and
// after their requests are settled, for fixed windows and a log, and for invalid arguments.
func TestExtendByCall(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	for name, rule := range map[string]string{
		"user": "fixed-window 10/30d", "org": "fixed-window 20/30d", "listed": "sliding-log 9/30d history 60d",
		"monthly": "fixed-window 6/month America/Havana", "blocking": "fixed-window 3/30d block 1h",
	} {
		storetest.Define(t, s, store.Item{Name: name, Text: rule})
	}
	threeCharges := func(user, org, listed string) string {
		return chargesJSON("user", "x", user, "org", "x", org, "listed", "x", listed)
	}
	for _, tt := range []struct{ columns, call, want string }{
		{"allowed", "extend('a', 'user', 'a', 3, 0)", `id: "a": no request of this id is known`},
		{"allowed remaining", "take_once('a', 'user', 'a', 2, 0)", "1 8"},
		{"allowed remaining limit_name charged", "extend('a', 'user', 'a', 3.5, 0)", "1 6 user 3.500000000"},
		{"allowed charged", "extend('a', 'user', 'a', 3.5, 0)", "1 3.500000000"},
		{"allowed charged", "extend('a', 'user', 'a', 1, 0)", "1 3.500000000"},
		{"allowed charged", "extend('a', 'user', 'a', 11, 0)", "0 3.500000000"},
		{"allowed charged", "extend('a', 'user keep 50%', 'a', 6, 0)", "0 3.500000000"},
		{"allowed remaining charged", "extend('a', 'user', 'a', 10, 0)", "1 0 10.000000000"},
		{"allowed remaining replayed", "take_once('a', 'user', 'a', 2, 0)", "1 8 1"},
		{"corrected", "settle('a', 'user', 'a', 2.5)", "7.500000000"},
		{"allowed", "extend('a', 'user', 'a', 3, 0)", `id: "a": it is settled already`},
		{"remaining", "take('user', 'a', 0.5)", "7"},

		{"allowed remaining", "take_once('a', 'listed', 'a', 2, 0)", "1 7"},
		{"allowed remaining charged", "extend('a', 'listed', 'a', 6, 0)", "1 3 6.000000000"},
		{"allowed charged", "extend('a', 'listed', 'a', 10, 0)", "0 6.000000000"},
		{"allowed cost id", "attempts('listed', 'a', 9)", "0 4.000000 a, 1 6.000000 a, 1 0.000000 a"},
		{"returned", "cancel('a', 'listed', 'a')", "6.000000000"},
		{"allowed charged", "extend('a', 'listed', 'a', 10, 0)", `id: "a": it is settled already`},
		{"remaining", "take('listed', 'a', 1)", "8"},

		{"allowed", "take_once('a', 'monthly', 'a', 2, 0)", "1"},
		{"allowed remaining charged", "extend('a', 'monthly', 'a', 6, 0)", "1 0 6.000000000"},
		{"corrected", "settle('a', 'monthly', 'a', 1)", "5.000000000"},

		{"allowed", "take_once('a', 'blocking', 'a', 1, 0)", "1"},
		{"allowed retry_after charged", "extend('a', 'blocking', 'a', 5, 0)", "0 null 1.000000000"}, // above the capacity
		{"allowed", "take('blocking', 'a', 1)", "1"},
		{"allowed charged", "extend('a', 'blocking', 'a', 3, 0)", "0 1.000000000"}, // blocks a
		{"allowed", "take('blocking', 'a', 1)", "0"},

		{"allowed", "take_all_once('i', '" + threeCharges("1", "2", "3") + "', 0)", "1, 1, 1"},
		{
			"ordinality allowed limit_name key capacity remaining refused charged",
			"extend_all('i', '" + threeCharges("4", "1", "5") + "', 0)",
			"1 1 user x 10 6 0 4.000000000, 2 1 org x 20 18 0 2.000000000, 3 1 listed x 9 4 0 5.000000000",
		},
		{
			"allowed remaining refused charged",
			"extend_all('i', '" + threeCharges("5", "2", "10") + "', 0)",
			"0 6 0 4.000000000, 0 18 0 2.000000000, 0 4 1 5.000000000",
		},
		{"remaining charged", "extend_all('i', '" + chargesJSON("org", "x", "20") + "', 0)", "0 20.000000000"},
		{"key", "extend_all('i', '" + chargesJSON("org", "x", "20", "org", "y", "2") + "', 0)", `id: "i": no request of this id is known`},
		{"corrected", "settle_all('i', '" + threeCharges("2", "0.5", "10") + "')", "2.000000000, 19.500000000, -5.000000000"},
		{"key", "extend_all('i', '" + threeCharges("5", "2", "8") + "', 0)", `id: "i": it is settled already`},
		{"remaining", "take_all('" + chargesJSON("user", "x", "1", "org", "x", "0.5") + "')", "7, 19"},

		{"key", "extend(NULL, 'user', 'a', 3, 0)", "id: is missing"},
		{"key", "extend('a', 'user', 'a', 0, 0)", "total: is 0; it must be above 0"},
		{"key", "extend('a', 'user', 'a', 1, -1)", "life_seconds: must be from a microsecond to 3660 days"},
		{"key", "extend('a', 'concurrency 5 ttl 1h', 'a', 1, 0)", "limit: concurrency 5 ttl 1h is acquired and released, not taken"},
		{"key", "extend_all('a', '" + chargesJSON("user", "a", "0") + "', 0)", "charges[0]: cost: is 0; it must be above 0"},
	} {
		if got := columnsText(t, db, tt.columns, "CALL headgate_"+tt.call); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.call, got, tt.want)
		}
	}
	if got := columnsText(t, db, "n", "SELECT COUNT(*) AS n FROM headgate_cells WHERE law = 0 OR cell_key = 'y'"); got != "0" {
		t.Errorf("got %s cells of unknown requests, want none", got)
	}
}

// roundList rounds the numbers in a list to hundredths, since buckets drain a little between two calls.
func roundList(list string) string {
	words := strings.Split(list, ", ")
	for i, word := range words {
		if f, err := strconv.ParseFloat(word, 64); err == nil {
			words[i] = fmt.Sprintf("%.2f", f)
		}
	}
	return strings.Join(words, ", ")
}

// TestExtendByCallDecidesAsGo takes and extends the same random charges by calls and in Go, on different keys, settles
// every second request in the other language, and compares what was charged and corrected, and the levels.
func TestExtendByCallDecidesAsGo(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	rules := []string{
		"fixed-window 50/30d", "token-bucket 1/30d burst 40", "sliding-log 35/30d", "sliding-window 45/30d",
		"gcra 1/30d burst 25",
	}
	seed := tier.Seed()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	extended, refused := 0, 0
	for round := range tier.Pick(30, 60, 500) {
		id := fmt.Sprint("id ", round)
		ruleIndices := rng.Perm(len(rules))[:1+rng.IntN(3)]
		call := func(verb law.Verb, procedure, column, key string, units []int64) string {
			var words []string
			for k, i := range ruleIndices {
				words = append(words, rules[i], key, fmt.Sprint(units[k]))
			}
			life := ", 0"
			if verb == law.Settle {
				life = ""
			}
			return roundList(columnsText(t, db, column, "CALL headgate_"+procedure+"(?, ?"+life+")", id,
				chargesJSON(words...)))
		}
		applyInGo := func(verb law.Verb, key string, units []int64) (charged string) {
			ops := make([]law.Op, len(ruleIndices))
			for k, i := range ruleIndices {
				l := headgate.MustParse(rules[i])
				ops[k] = law.Op{
					Verb: verb, Cell: law.Cell{Limit: l.Name(), Key: key}, Params: l.Params(),
					Cost: units[k] * l.Params().Unit, Count: 1, ID: id, TTL: 3_600_000_000,
				}
			}
			var words []string
			for k, out := range apply(t, s, ops...) {
				words = append(words, fmt.Sprintf("%.9f", float64(out.Granted)/float64(ops[k].Params.Unit)))
			}
			return roundList(strings.Join(words, ", "))
		}
		randomUnits := func(n int64) []int64 {
			return []int64{1 + rng.Int64N(n), 1 + rng.Int64N(n), 1 + rng.Int64N(n)}
		}
		costs := randomUnits(2)
		applyInGo(law.Take, "go", costs)
		if got := call(law.Take, "take_all_once", "allowed", "sql", costs); got[0] == '0' {
			for _, table := range []string{"cells", "entries", "admissions"} { // the limits of both keys are used up
				mustExec(t, db, "DELETE FROM headgate_"+table)
			}
			continue
		}
		for range 1 + rng.IntN(3) {
			totals := randomUnits([]int64{6, 40}[rng.IntN(2)])
			want := applyInGo(law.Extend, "go", totals)
			got := call(law.Extend, "extend_all", "charged", "sql", totals)
			if got != want {
				t.Fatalf("round %d: extend to %v of %v: got charged %s, want %s", round, totals, ruleIndices, got, want)
			}
			if call(law.Extend, "extend_all", "allowed", "sql", totals)[0] == '1' {
				extended++
			} else {
				refused++
			}
		}
		if round%2 == 0 {
			actual := randomUnits(7)
			want := call(law.Settle, "settle_all", "corrected", "go", actual)
			if got := applyInGo(law.Settle, "sql", actual); got != want {
				t.Fatalf("round %d: settle %v of %v: got corrected %s, want %s", round, actual, ruleIndices, got, want)
			}
		}
	}
	if extended < 5 || refused == 0 {
		t.Errorf("got %d extended and %d refused requests, want 5 and 1 or more", extended, refused)
	}
	for _, rule := range rules {
		want := columnsText(t, db, "remaining", "CALL headgate_check(?, 'go', 100)", rule)
		if got := columnsText(t, db, "remaining", "CALL headgate_check(?, 'sql', 100)", rule); got != want {
			t.Errorf("%s: got remaining %s, want %s", rule, got, want)
		}
	}
}

// TestInTxSettlesAnExtendedRequest checks that a transaction settles a request that was extended, beside another
// charge: earlier charges of the transaction stay, and each batch charges once.
func TestInTxSettlesAnExtendedRequest(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, db := openStore(t, url), openMultiDB(t, url)
	op := takeOp("l", "k", hourlyBucket)
	op.ID, op.TTL = "id", 3_600_000_000
	apply(t, s, op)
	extend := op
	extend.Verb, extend.Cost = law.Extend, 3000
	if out := apply(t, s, extend)[0]; out.Granted != 3000 || out.Used != 3000 {
		t.Fatalf("extend: got %+v, want 3000 granted and used", out)
	}
	tx := beginTx(t, db)
	inTx := mysql.New(db, nil).InTx(tx)
	apply(t, inTx, takeOp("l", "before", hourlyBucket))
	take, settle := takeOp("l", "j", hourlyBucket), op
	take.Group, settle.Group = 1, 2
	settle.Verb, settle.Cost = law.Settle, 500
	for _, want := range []law.Outcome{{Granted: 2500, Used: 500}, {Replayed: true}} {
		outs := apply(t, inTx, take, settle)
		if out := outs[1]; outs[0].Granted != 1 || out.Granted != want.Granted || out.Used != want.Used ||
			out.Replayed != want.Replayed {
			t.Errorf("settle: got %+v, want %+v", outs, want)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	for key, used := range map[string]int64{"before": 1000, "j": 2000, "k": 500} {
		check := takeOp("l", key, hourlyBucket)
		check.Verb = law.Check
		if out := apply(t, s, check)[0]; out.Used != used+1000 {
			t.Errorf("%s: got %+v, want %d used before the check", key, out, used)
		}
	}
}

// TestConcurrentTakeAllOnceChargesOnce checks that a request of several charges, which eight callers send with one id,
// is charged once.
func TestConcurrentTakeAllOnceChargesOnce(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	request := chargesJSON("fixed-window 10/30d", "a", "2", "sliding-log 10/30d", "b", "3")
	var charged atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			switch got := columnsText(t, db, "allowed replayed", "CALL headgate_take_all_once('i', ?, 0)", request); got {
			case "1 0, 1 0":
				charged.Add(1)
			case "1 1, 1 1":
			default:
				t.Errorf("got %s, want both charges allowed", got)
			}
		})
	}
	wg.Wait()
	remaining := columnsText(t, db, "remaining", "CALL headgate_take_all(?)",
		chargesJSON("fixed-window 10/30d", "a", "1", "sliding-log 10/30d", "b", "1"))
	if charged.Load() != 1 || remaining != "7, 6" {
		t.Errorf("got %d calls that charged, then remaining %s; want 1, then 7, 6", charged.Load(), remaining)
	}
}
