package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// chargesJSON returns charges in JSON. Three words are a charge: limit, key and cost.
func chargesJSON(words ...string) string {
	var list []string
	for i := 0; i+2 < len(words); i += 3 {
		list = append(list, fmt.Sprintf(`{"limit": %q, "key": %q, "cost": %s}`, words[i], words[i+1], words[i+2]))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// columnsText returns some columns of all rows of a call, with commas between rows, or the message of an error that a
// procedure raises. It repeats a call that was rolled back.
func columnsText(tb testing.TB, db querier, columns, call string, args ...any) string {
	tb.Helper()
	rows, err := db.QueryContext(tb.Context(), call, args...)
	for isConflict(err) {
		rows, err = db.QueryContext(tb.Context(), call, args...)
	}
	if my, ok := errors.AsType[*driver.MySQLError](err); ok && my.Number == 1644 {
		return my.Message
	} else if err != nil {
		tb.Fatalf("%s: %v", call, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		tb.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		fields, list := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range fields {
			list[i] = &fields[i]
		}
		if err := rows.Scan(list...); err != nil {
			tb.Fatal(err)
		}
		var words []string
		for column := range strings.FieldsSeq(columns) {
			i := slices.Index(names, column)
			if i < 0 {
				tb.Fatalf("%s: there is no column %s among %s", call, column, names)
			}
			if words = append(words, "null"); fields[i].Valid {
				words[len(words)-1] = fields[i].String
			}
		}
		lines = append(lines, strings.Join(words, " "))
	}
	if err := rows.Err(); err != nil {
		tb.Fatalf("%s: %v", call, err)
	}
	return strings.Join(lines, ", ")
}

// TestSeveralChargesByCall checks the answers of the procedures that take, reserve and settle several charges, and of
// headgate_take_up_to. A want with a blank at its end is the beginning of an answer.
func TestSeveralChargesByCall(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	for name, rule := range map[string]string{
		"user": "fixed-window 10/30d", "org": "fixed-window 20/30d", "huge": "fixed-window 2000000000000000/30d",
		"blocking": "fixed-window 1/30d block 1h", "listed": "sliding-log 5/1h history 1d",
	} {
		storetest.Define(t, s, store.Item{Name: name, Text: rule})
	}
	defineItems(t, s, store.Item{Kind: store.KindOverride, Name: "user", Key: "vip", Text: "fixed-window 30/30d"})
	const queued = "gcra 1/1h"
	request := chargesJSON("user", "x", "3", "org", "x", "2")
	reservation := chargesJSON(queued, "r", "1", "token-bucket 1/1h burst 2", "r", "1")
	for _, tt := range []struct{ columns, call, want string }{
		{
			"ordinality allowed limit_name key capacity remaining refused",
			"take_all('" + chargesJSON("user", "a", "3", "org", "o", "2.5", "user", "a", `"4"`) + "')",
			"1 1 user a 10 7 0, 2 1 org o 20 17 0, 3 1 user a 10 3 0",
		},
		{ // each of the two charges of user alone would pass
			"allowed remaining refused",
			"take_all('" + chargesJSON("user", "a", "2", "org", "o", "1", "user", "a", "2") + "')",
			"0 3 0, 0 17 0, 0 3 1",
		},
		{"allowed retry_after refused", "take_all('" + chargesJSON("org", "o", "1", "user", "b", "11") + "')", "0 0.000000 0, 0 null 1"},
		{"remaining", "take_all('" + chargesJSON("user", "a", "3", "org", "o", "17.5") + "')", "0, 0"},
		{"remaining capacity", "take_all('" + chargesJSON("user", "vip", "1") + "')", "29 30"},
		{"remaining", "take_all('" + chargesJSON("huge", "a", "1000000000000001") + "')", "999999999999999"},
		{"allowed", "take_all('" + chargesJSON("user", "c", "1", "blocking", "a", "1") + "')", "1, 1"},
		{"refused", "take_all('" + chargesJSON("user", "c", "1", "blocking", "a", "1") + "')", "0, 1"},   // blocks a
		{"refused", "take_all('" + chargesJSON("listed", "c", "1", "blocking", "a", "1") + "')", "0, 1"}, // a refusal of listed is recorded
		{"allowed cost", "attempts('listed', 'c', 10)", "0 1.000000"},
		{"allowed remaining", "take_all('" + chargesJSON("listed", "c", "2", "listed", "c", "1") + "')", "1 3, 1 2"},
		{"allowed cost", "attempts('listed', 'c', 10)", "1 1.000000, 1 2.000000, 0 1.000000"},

		{"remaining refused replayed", "take_all_once('i', '" + request + "', 0)", "7 0 0, 18 0 0"},
		{"remaining refused replayed", "take_all_once('i', '" + chargesJSON("org", "x", "2", "user", "x", "3") + "', 0)", "18 0 1, 7 0 1"},
		{"key", "take_all_once('i', '" + chargesJSON("user", "x", "3", "org", "x", "1") + "', 0)", `id: "i": the id was used for other charges`},
		{
			"key", "take_all_once('j', '" + chargesJSON("user", "x", "1", "org", "x", "1", "user", "x", "1") + "', 0)",
			"charges[2]: key: is charged twice; a request with an id charges each key of a limit once",
		},
		{"limit_name corrected", "settle_all('i', '" + chargesJSON("user", "x", "1.5", "org", "x", "2.5") + "')", "user 1.500000000, org -0.500000000"},
		{"corrected", "settle_all('i', '" + chargesJSON("user", "x", "1.5", "org", "x", "2.5") + "')", "0.000000000, 0.000000000"},
		{"corrected", "settle_all('i', '" + chargesJSON("user", "x", "1.5", "org", "x", "2") + "')", `id: "i": it is settled already`},
		{"corrected", "settle_all('i', '" + chargesJSON("user", "x", "1.5", "org", "y", "2") + "')", `id: "i": no request of this id is known`},
		{"remaining", "take_all('" + chargesJSON("user", "x", "0.5", "org", "x", "0.5") + "')", "8, 17"},
		{"replayed", "take_all_once('log', '" + chargesJSON("listed", "y", "2", "user", "y", "1") + "', 60)", "0, 0"},
		{"replayed", "take_all_once('log', '" + chargesJSON("listed", "y", "2", "user", "y", "1") + "', 60)", "1, 1"},
		{"corrected", "settle_all('log', '" + chargesJSON("listed", "y", "0", "user", "y", "0") + "')", "2.000000000, 1.000000000"},
		{"remaining", "check('listed', 'y', 1)", "5"},

		{"allowed delay replayed refused", "reserve_all('" + reservation + "', 10800, NULL, 0)", "1 0.000000 0 0, 1 0.000000 0 0"},
		{"allowed delay replayed refused", "reserve_all('" + reservation + "', 10800, 'r1', 0)", "1 35 0 0, 1 35 0 0"}, // the delay of gcra
		{"allowed delay replayed", "reserve_all('" + reservation + "', 10800, 'r1', 0)", "1 35 1, 1 35 1"},
		{"key", "take_all_once('r1', '" + reservation + "', 0)", `id: "r1" was reserved, and starts at `},
		{
			"allowed start_at delay refused",
			"reserve_all('" + chargesJSON(queued, "r", "1", "token-bucket 1/1h burst 2", "new", "1") +
				"', 3600, NULL, 0)",
			"0 null null 1, 0 null null 0",
		},
		{"allowed refused", "reserve_all('" + chargesJSON(queued, "r", "1", "user", "r", "1") + "', 10800, NULL, 0)", "0 1, 0 0"}, // a window does not queue
		{"corrected", "settle_all('r1', '" + chargesJSON(queued, "r", "0", "token-bucket 1/1h burst 2", "r", "0") + "')", "1.000000000, 1.000000000"},

		{"allowed accepted level brim capacity remaining", "take_up_to('user', 'f', 7.5)", "1 7.500000 7.500000 0 10 2"},
		{"allowed accepted level brim retry_after", "take_up_to('user', 'f', 7.5)", "1 2.500000 10.000000 1 0.000000"},
		{"allowed accepted level brim", "take_up_to('user', 'f', 7.5)", "0 0.000000 10.000000 1"},
		{"accepted", "take_up_to('huge', 'f', 1000000000000001)", "1000000000000001.000000"},
		{"accepted remaining", "take_up_to('listed', 'f', 7)", "5.000000 0"},
		{"accepted", "take_up_to('user', 'finer', 0.00001)", "0.001000"},
		{"remaining", "check('user', 'finer', 9.99999)", "9"},
	} {
		got := columnsText(t, db, tt.columns, "CALL headgate_"+tt.call)
		if strings.Contains(tt.columns, "delay") {
			got = shortenDelays(got, tt.want)
		}
		if got != tt.want && (!strings.HasSuffix(tt.want, " ") || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s:\n got %s\nwant %s", tt.call, got, tt.want)
		}
	}
	const blocked = "SELECT COUNT(*) AS n FROM headgate_cells WHERE blocked_until > 0 AND limit_name = 'blocking'"
	if got := columnsText(t, db, "n", blocked); got != "1" {
		t.Errorf("got %s blocked keys, want 1", got)
	}
}

// shortenDelays replaces delays of nearly an hour, 35xx seconds, by 35 where 35 is wanted, since time passes.
func shortenDelays(got, want string) string {
	gotWords, wantWords := strings.Fields(got), strings.Fields(want)
	for i := range min(len(gotWords), len(wantWords)) {
		if strings.HasPrefix(gotWords[i], "35") && wantWords[i] == "35" {
			gotWords[i] = "35"
		}
	}
	return strings.Join(gotWords, " ")
}

// TestInvalidChargesByCall checks that calls with invalid arguments return an error that names the field, and charge
// nothing, and that a call takes many charges.
func TestInvalidChargesByCall(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	const rule = "fixed-window 10/30d"
	twoCharges := func(limit, key, cost string) string {
		return `[{"limit":"` + rule + `","key":"a","cost":1},{"limit":` + limit + `,"key":` + key + `,"cost":` + cost + `}]`
	}
	manyCharges := func(n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(`{"limit":"`+rule+`","key":"a","cost":0.001},`, n), ",") + "]"
	}
	for request, want := range map[any]string{
		nil:               "charges: is null",
		"":                "charges: is not JSON",
		"[":               "charges: is not JSON",
		"{}":              "charges: is not an array of objects with limit, key and cost",
		"3":               "charges: is not an array of objects with limit, key and cost",
		"[]":              "charges: is empty; a request has one charge or more",
		"[3]":             "charges[0]: has other members than limit, key and cost",
		manyCharges(1001): "charges: has 1001 elements, at most 1000 are allowed",
		`[{"limit":"gcra 1/s","key":"a","cost":1,"id":"x"}]`: "charges[0]: has other members than limit, key and cost",
		// as many members as two charges have
		`[{"limit":"gcra 1/s","key":"a","cost":1,"id":"x"},{"limit":"gcra 1/s","key":"b"}]`: "charges[1]: cost: is null",
		`[{"limit":"gcra 1/s","key":"a","price":1}]`:                                        "charges[0]: cost: is null",

		twoCharges(`null`, `"a"`, `1`):                                  "charges[1]: limit: is null",
		twoCharges(`"user"`, `"a"`, `1`):                                `charges[1]: unknown limit: "user" is not in headgate_limits`,
		twoCharges(`"gcra x"`, `"a"`, `1`):                              `charges[1]: amount: "x" is not a decimal number such as 3 or 0.5`,
		twoCharges(`"gcra 1/s"`, `null`, `1`):                           "charges[1]: key: is null",
		twoCharges(`"gcra 1/s"`, `"a\u0000b"`, `1`):                     "charges[1]: key: contains a NUL byte",
		twoCharges(`"gcra 1/s"`, `"`+strings.Repeat("x", 513)+`"`, `1`): "charges[1]: key: is 513 bytes long, at most 512 are allowed",
		twoCharges(`"gcra 1/s"`, `"a"`, `null`):                         "charges[1]: cost: is null",
		twoCharges(`"gcra 1/s"`, `"a"`, `"NaN"`):                        `charges[1]: cost: "NaN" is not a decimal number such as 3 or 0.5`,
		twoCharges(`"gcra 1/s"`, `"a"`, `""`):                           `charges[1]: cost: "" is not a decimal number such as 3 or 0.5`,
		twoCharges(`"gcra 1/s"`, `"a"`, `-1`):                           "charges[1]: cost: is -1; it must ",
		twoCharges(`"gcra 1/s"`, `"a"`, `1e30`):                         "charges[1]: cost: is too large",
		twoCharges(`"gcra 1/s"`, `"a"`, `"1e99"`):                       "charges[1]: cost: is too large",
		twoCharges(`"gcra 1/s"`, `"a"`, `"1e-99"`):                      "charges[1]: cost: has more than 30 digits after the point",
	} {
		for _, call := range []string{"take_all(?)", "take_all_once('i', ?, 0)", "reserve_all(?, 60, NULL, 0)", "settle_all('i', ?)"} {
			if got := columnsText(t, db, "", "CALL headgate_"+call, request); !strings.HasPrefix(got, want) {
				t.Errorf("%s of %.200v:\n got %s\nwant %s", call, request, got, want)
			}
		}
	}
	for call, want := range map[string]string{
		"take_all('" + twoCharges(`"concurrency 1 ttl 1h"`, `"a"`, `1`) + "')":                "charges[1]: limit: concurrency 1 ttl 1h is acquired and released, not taken",
		"take_all('" + twoCharges(`"gcra 1/s"`, `"a"`, `0`) + "')":                            "charges[1]: cost: is 0; it must be above 0",
		"take_all_once('', '" + twoCharges(`"gcra 1/s"`, `"a"`, `1`) + "', 0)":                "id: is missing",
		"take_all_once('i', '" + twoCharges(`"gcra 1/s"`, `"a"`, `1`) + "', -1)":              "life_seconds: must be from",
		"settle_all(NULL, '" + twoCharges(`"gcra 1/s"`, `"a"`, `1`) + "')":                    "id: is missing",
		"settle_all('i', '" + twoCharges(`"gcra 1/s"`, `"a"`, `0`) + "')":                     `id: "i": no request of this id is known`,
		"reserve_all('" + twoCharges(`"gcra 1/s"`, `"a"`, `1`) + "', -1, NULL, 0)":            "wait_seconds: must be from",
		"reserve_all('" + twoCharges(`"gcra 1/s"`, `"a"`, `1`) + "', 1, REPEAT('i', 256), 0)": "id: is 256 bytes long",
		"take_up_to('gcra 1/s', NULL, 1)":                                                     "key: is null",
		"take_up_to('gcra 1/s', 'a', -1)":                                                     "cost: is -1",
		"take_up_to('nothing', 'a', 1)":                                                       "unknown limit: ",
		"take_up_to('concurrency 1 ttl 1h', 'a', 1)":                                          "limit: concurrency 1 ttl 1h is acquired",
		"take('gcra 1/s', 'a', -1)":                                                           "cost: is -1", // without the charges[1] of earlier calls
	} {
		if got := columnsText(t, db, "", "CALL headgate_"+call); !strings.HasPrefix(got, want) {
			t.Errorf("%s:\n got %s\nwant %s", call, got, want)
		}
	}
	if got := columnsText(t, db, "n", "SELECT COUNT(*) AS n FROM headgate_cells WHERE law > 0"); got != "0" {
		t.Errorf("got %s charged cells, want none", got)
	}
	n := tier.Pick(100, 1000, 1000)
	if got := columnsText(t, db, "allowed", "CALL headgate_take_all(?)", manyCharges(n)); strings.Count(got, "1") != n {
		t.Errorf("%d charges: got %.200s, want all allowed", n, got)
	}
}

// TestSeveralChargesByCallDecideAsGo charges the same random groups and alternatives by calls and in Go, on different
// keys, and checks that both refuse the same ones, because of the same charges, with the same amounts remaining.
func TestSeveralChargesByCallDecideAsGo(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	l := newLimiter(s)
	rules := []string{
		"fixed-window 10/30d", "token-bucket 1/30d burst 8", "sliding-log 7/30d", "sliding-window 9/30d",
		"fixed-window 6/month America/Havana", "gcra 1/30d burst 5", "fixed-window 100000/30d",
	}
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	passed, later := 0, 0 // later: by an alternative that is not the first
	rounds := tier.Pick(80, 150, 1000)
	for round := range rounds {
		n := 1 + rng.IntN(5)
		charges, words, alternative := make([]headgate.Charge, n), []string{}, 0
		if round%2 == 0 {
			alternative = 1
		}
		for i := range n {
			if alternative > 0 && i > 0 {
				alternative += rng.IntN(2)
			}
			rule, cost := rules[rng.IntN(len(rules))], []string{"1", "0.5", "2", "3"}[rng.IntN(4)]
			key := fmt.Sprint(round/40, rng.IntN(2))
			if alternative > 0 {
				words = append(words, fmt.Sprint(alternative))
			}
			words = append(words, rule, "sql "+key, cost)
			charges[i] = headgate.Charge{
				Limit: headgate.MustParse(rule), Key: "go " + key, Cost: headgate.MustCost(cost), Alternative: alternative,
			}
		}
		d, err := l.Take(t.Context(), charges...)
		if err != nil {
			t.Fatal(err)
		}
		bit := map[bool]string{true: "1", false: "0"}
		rowOf := func(charge *headgate.Charge, refused bool, capacity, remaining int64) string {
			allowed := d.Allowed && charge.Alternative == d.Alternative
			row := fmt.Sprint(bit[allowed], " ", bit[refused], " ", capacity, " ", remaining)
			if alternative > 0 {
				return fmt.Sprint(charge.Alternative, " ", row)
			}
			return row
		}
		want := []string{rowOf(&charges[0], !d.Allowed, d.Capacity, d.Remaining)}
		if len(d.Each) > 0 {
			want = nil
			for _, part := range d.Each {
				want = append(want, rowOf(&charges[part.Charge], !part.Allowed, part.Capacity, part.Remaining))
			}
		}
		call, toJSON, columns := "CALL headgate_take_all(?)", chargesJSON, "allowed refused capacity remaining"
		if alternative > 0 {
			call, toJSON, columns = "CALL headgate_take_first(?)", alternativesJSON, "alternative "+columns
		}
		got := strings.Split(columnsText(t, db, columns, call, toJSON(words...)), ", ")
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d, round %d: %q:\n got %q\nwant %q", seed, round, words, got, want)
		}
		if d.Allowed {
			passed++
		}
		if d.Allowed && d.Alternative > 1 {
			later++
		}
	}
	if passed < rounds/10 || passed > rounds*9/10 || later == 0 {
		t.Errorf("got %d of %d groups allowed, want from a tenth to nine tenths; %d by a later alternative", passed, rounds, later)
	}
}

// TestTakeAllInOppositeOrdersIsExact checks that eight callers who charge the same keys in opposite orders all get
// answers, and that admissions are exact.
func TestTakeAllInOppositeOrdersIsExact(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	const callers, capacity = 8, 40
	rule := fmt.Sprintf("fixed-window %d/30d", capacity)
	keys := []string{"a", "b", "c", "d"}
	var mu sync.Mutex
	admitted := map[string]int{}
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			ownKeys := slices.Clone(keys)
			if i%2 == 1 {
				slices.Reverse(ownKeys)
			}
			for round := range 20 {
				chargedKeys := ownKeys[round%2 : 2+round%3] // one to four
				var words []string
				for _, key := range chargedKeys {
					words = append(words, rule, key, "1")
				}
				if got := columnsText(t, db, "allowed", "CALL headgate_take_all(?)", chargesJSON(words...)); got[0] == '1' {
					mu.Lock()
					for _, key := range chargedKeys {
						admitted[key]++
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	fullKeys := 0
	for _, key := range keys {
		want := fmt.Sprint("1 ", capacity-admitted[key]-1)
		if admitted[key] == capacity {
			want = "0 0"
			fullKeys++
		}
		if got := columnsText(t, db, "allowed remaining", "CALL headgate_take(?, ?, 1)", rule, key); got != want {
			t.Errorf("%s: headgate_take after %d admissions: got %s, want %s", key, admitted[key], got, want)
		}
	}
	if fullKeys == 0 {
		t.Errorf("got the admissions %v, want a key that is used up", admitted)
	}
}

// TestTakeAllOnceRollsBackWithTheCaller checks that several charges and their id are rolled back with the caller's
// transaction.
func TestTakeAllOnceRollsBackWithTheCaller(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
	request := chargesJSON("fixed-window 10/30d", "a", "3", "sliding-log 10/30d", "a", "3")
	if got := columnsText(t, tx, "remaining", "CALL headgate_take_all_once('i', ?, 0)", request); got != "7, 7" {
		t.Errorf("in the transaction: got remaining %s, want 7, 7", got)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if got := columnsText(t, db, "remaining replayed", "CALL headgate_take_all_once('i', ?, 0)", request); got != "7 0, 7 0" {
		t.Errorf("after the rollback: got %s, want two new charges", got)
	}
}

// querier is a pool, a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}
