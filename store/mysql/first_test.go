package mysql_test

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// alternativesJSON returns charges in JSON. Four words are a charge: its alternative, limit, key and cost.
func alternativesJSON(words ...string) string {
	var list []string
	for i := 0; i+3 < len(words); i += 4 {
		charge := chargesJSON(words[i+1 : i+4]...)
		list = append(list, `{"alternative": `+words[i]+`, `+charge[2:len(charge)-1])
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// TestTakeFirstByCall checks the rows of headgate_take_first and headgate_take_first_once, and what alternatives leave
// that were passed over.
func TestTakeFirstByCall(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	for name, rule := range map[string]string{
		"plan": "fixed-window 10/30d block 1h", "credits": "fixed-window 10/30d", "model": "sliding-log 10/30d history 60d",
		"monthly": "fixed-window 6/month America/Havana", "queued": "gcra 1/1h",
	} {
		storetest.Define(t, s, store.Item{Name: name, Text: rule})
	}
	first := func(words ...string) string { return "take_first('" + chargesJSON(words...) + "')" }
	once := func(charges string) string { return "take_first_once('i', '" + charges + "', 0)" }
	request := chargesJSON("plan", "i", "5", "credits", "i", "5")
	half := alternativesJSON("1", "plan", "half", "6", "1", "credits", "half", "4", "2", "model", "half", "1")
	for _, tt := range []struct{ columns, call, want string }{
		{
			"ordinality allowed limit_name key capacity remaining retry_after refused alternative",
			first("plan", "a", "8", "credits", "a", "8"), "1 1 plan a 10 2 0.000000 0 1",
		},
		{
			"ordinality allowed limit_name remaining refused alternative", first("plan", "a", "3", "credits", "a", "3"),
			"1 0 plan 2 1 1, 2 1 credits 7 0 2",
		},
		{ // the first alternative is refused by one of its charges
			"ordinality allowed limit_name remaining refused alternative",
			"take_first('" + alternativesJSON("1", "plan", "a", "1", "1", "model", "a", "11", "2", "credits", "a", "1",
				"2", "plan", "a", "0.5", "3", "plan", "new", "1") + "')",
			"1 0 plan 2 0 1, 2 0 model 10 1 1, 3 1 credits 6 0 2, 4 1 plan 1 0 2",
		},
		{ // the two charges of a key add up in the first alternative, and those of the first do not count in the second
			"allowed remaining refused alternative",
			"take_first('" + alternativesJSON("1", "credits", "a", "4", "1", "credits", "a", "4",
				"2", "credits", "a", "2", "2", "credits", "a", "4") + "')",
			"0 6 0 1, 0 6 1 1, 1 4 0 2, 1 0 0 2",
		},
		{ // what would have passed does not count in the rows of a refusal
			"allowed remaining refused alternative",
			"take_first('" + alternativesJSON("1", "credits", "b", "4", "1", "model", "a", "11",
				"2", "credits", "b", "5", "2", "credits", "b", "6") + "')",
			"0 10 0 1, 0 10 1 1, 0 10 0 2, 0 10 1 2",
		},
		{ // the key is new, and charged by the second alternative
			"allowed remaining",
			"take_first('" + alternativesJSON("1", "credits", "c", "1", "1", "model", "c", "11",
				"2", "credits", "c", "2") + "')",
			"0 10, 0 10, 1 8",
		},
		{"remaining", "check('credits', 'c', 1)", "8"},
		{"allowed", first("credits", "c", "1", "credits", "never", "1"), "1"},
		{"allowed", "attempts('model', 'a', 10)", ""},
		{"allowed refused alternative", first("plan", "a", "2", "credits", "a", "1", "model", "a", "11"), "0 1 1, 0 1 2, 0 1 3"},
		{"allowed cost", "attempts('model', 'a', 10)", "0 11.000000"}, // of the last alternative
		{"allowed remaining", "take('plan', 'a', 0.5)", "1 1"},
		{"allowed", first("model", "a", "11", "plan", "a", "9"), "0, 0"},
		{"allowed remaining", "take('plan', 'a', 1)", "0 0"}, // the last alternative has blocked the key
		{"allowed remaining alternative", first("monthly", "a", "4", "monthly", "b", "4"), "1 2 1"},
		{"allowed remaining alternative", first("monthly", "a", "4", "monthly", "b", "4"), "0 2 1, 1 2 2"},
		{"allowed alternative", first("monthly", "a", "4", "monthly", "b", "4"), "0 1, 0 2"},
		{"allowed", "take_first('[]')", "charges: is empty; a request has one charge or more"},

		{"remaining", "take('plan', 'i', 8)", "2"},
		{"allowed limit_name remaining alternative replayed", once(request), "0 plan 2 1 0, 1 credits 5 2 0"},
		{"existed", "reset('plan', 'i')", "1"},
		{"ordinality allowed limit_name remaining alternative replayed", once(request), "2 1 credits 5 2 1"},
		{"remaining", "take('plan', 'i', 1)", "9"},
		{
			"alternative", once(chargesJSON("plan", "i", "5", "credits", "i", "4")),
			`id: "i": the id was used for other charges`,
		},
		{"replayed", "take_all_once('i', '" + chargesJSON("credits", "i", "5") + "', 0)", "1"},
		{"corrected", "settle('i', 'credits', 'i', 2)", "3.000000000"},
		{"alternative replayed", once(request), "2 1"},

		{"allowed", "take_first_once('half', '" + half + "', 0)", "1, 1"},
		{"returned", "cancel('half', 'credits', 'half')", "4.000000000"},
		{"remaining replayed", "take_first_once('half', '" + half + "', 0)", "4 0, 6 0"}, // one of two is charged again
		{"returned", "cancel('half', 'credits', 'half')", "4.000000000"},
		{"remaining", "take('credits', 'half', 9)", "1"},
		{"allowed refused alternative", "take_first_once('half', '" + half + "', 0)", "0 0 1, 0 1 1"}, // no other alternative
		{"allowed", "reserve_all('" + chargesJSON("queued", "half", "1") + "', 10800, NULL, 0)", "1"},
		{"allowed", "reserve_all('" + chargesJSON("queued", "half", "1") + "', 10800, 'half', 0)", "1"},
		{"existed", "reset('credits', 'half')", "1"},
		{ // the start of what is charged under the id elsewhere is of no concern
			"limit_name remaining alternative", "take_first_once('half', '" + alternativesJSON("1", "queued", "half", "2",
				"2", "plan", "half", "6", "2", "credits", "half", "4") + "', 0)", "plan 4 2, credits 6 2",
		},
		{"remaining", "check('plan', 'half', 1)", "4"},
		{
			"alternative", once(alternativesJSON("1", "plan", "i", "1",
				"2", "plan", "i", "1", "2", "credits", "i", "1", "2", "plan", "i", "1")),
			"charges[3]: key: is charged twice; a request with an id charges each key of a limit once",
		},
		{"allowed delay", "reserve_all('" + chargesJSON("queued", "i", "1") + "', 10800, NULL, 0)", "1 0.000000"},
		{"allowed", "reserve_all('" + chargesJSON("queued", "i", "1") + "', 10800, 'late', 0)", "1"},
		{
			"allowed", "take_first_once('late', '" + chargesJSON("plan", "i", "1", "queued", "i", "1") + "', 0)",
			`id: "late" was reserved, and starts at `,
		},
	} {
		got := columnsText(t, db, tt.columns, "CALL headgate_"+tt.call)
		if got != tt.want && (!strings.HasSuffix(tt.want, " ") || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s:\n got %s\nwant %s", tt.call, got, tt.want)
		}
	}
	if got := columnsText(t, db, "n", "SELECT COUNT(*) AS n FROM headgate_cells WHERE law = 0"); got != "0" {
		t.Errorf("got %s cells that no request has charged, want none", got)
	}
	charge := func(name, rule string) []headgate.Charge {
		return []headgate.Charge{{Limit: headgate.MustParseNamed(name, rule), Key: "i", Cost: headgate.Units(5)}}
	}
	d, err := newLimiter(s).Once("i", time.Hour).Take(t.Context(), headgate.FirstOf(
		charge("plan", "fixed-window 10/30d block 1h"), charge("credits", "fixed-window 10/30d"))...)
	if err != nil || d.Alternative != 2 || !d.Replayed {
		t.Errorf("the id in Go: got %+v, %v; want alternative 2 replayed", d, err)
	}
}

// TestInvalidAlternativesByCall checks the errors about numbers of alternatives.
func TestInvalidAlternativesByCall(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	const rule = "gcra 1/s"
	numbered := func(numbers ...string) string {
		var words []string
		for _, n := range numbers {
			words = append(words, n, rule, "k", "1")
		}
		return alternativesJSON(words...)
	}
	const alternative = "alternative: number the alternatives 1, 2, ... up to 255, one after another, in all charges or in none"
	one := chargesJSON(rule, "k", "1")
	for charges, want := range map[string]string{
		one[:len(one)-1] + "," + numbered("1")[1:]:           "charges[0]: " + alternative,
		numbered("1")[:len(numbered("1"))-1] + "," + one[1:]: "charges[1]: " + alternative,
		numbered("0"):           "charges[0]: " + alternative,
		numbered("2"):           "charges[0]: " + alternative,
		numbered("1", "3"):      "charges[1]: " + alternative,
		numbered("1", "2", "1"): "charges[2]: " + alternative,
		numbered("1", `"x"`):    "charges[1]: " + alternative,
		numbered("1", `1.5`):    "charges[1]: " + alternative,
		numbered("1", `null`):   "charges[1]: has other members than limit, key, cost and alternative",
		`[{"limit": "gcra 1/s", "key": "k", "cost": 1, "number": 1}]`: "charges[0]: has other members than limit, key, cost and alternative",
	} {
		for _, call := range []string{"take_first(?)", "take_first_once('i', ?, 0)"} {
			if got := columnsText(t, db, "", "CALL headgate_"+call, charges); !strings.HasPrefix(got, want) {
				t.Errorf("%s of %.200v:\n got %s\nwant %s", call, charges, got, want)
			}
		}
	}
	for _, call := range []string{"take_all(?)", "take_all_once('i', ?, 0)", "reserve_all(?, 60, NULL, 0)", "settle_all('i', ?)"} {
		if got, want := columnsText(t, db, "", "CALL headgate_"+call, numbered("1")), "charges[0]: has other members than limit, key and cost"; got != want {
			t.Errorf("%s:\n got %s\nwant %s", call, got, want)
		}
	}
	var words []string // of the alternatives only 30 and 200 have room; their keys are in the other order
	for n := 1; n <= 256; n++ {
		cost := "2"
		if n == 30 || n == 200 {
			cost = "1"
		}
		words = append(words, rule, fmt.Sprint(1000-n), cost)
	}
	for n, want := range map[int]string{255: "0 29, 1 30", 256: "charges[255]: " + alternative} {
		got := columnsText(t, db, "allowed alternative", "CALL headgate_take_first(?)", chargesJSON(words[:3*n]...))
		if !strings.HasSuffix(got, want) {
			t.Errorf("%d alternatives: got %s, want %s", n, got, want)
		}
	}
}

// TestTakeFirstInATransaction checks that an alternative and its id are rolled back with the caller's transaction, and
// committed with it.
func TestTakeFirstInATransaction(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	request := chargesJSON("gcra 10/30d", "a", "11", "sliding-log 10/30d", "a", "3", "gcra 10/30d", "b", "1")
	for _, commits := range []bool{false, true} {
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			t.Fatal(err)
		}
		mustExec(t, tx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
		if got := columnsText(t, tx, "allowed remaining replayed", "CALL headgate_take_first_once('i', ?, 0)", request); got != "0 10 0, 1 7 0" {
			t.Errorf("in the transaction: got %s, want the second alternative charged", got)
		}
		end, want := tx.Rollback, "1 9"
		if commits {
			end, want = tx.Commit, "1 6"
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if got := columnsText(t, db, "allowed remaining", "CALL headgate_take('sliding-log 10/30d', 'a', 1)"); got != want {
			t.Errorf("committed %v: got %s, want %s", commits, got, want)
		}
		mustExec(t, db, "CALL headgate_reset('sliding-log 10/30d', 'a')")
	}
}

// TestTakeFirstAtOnceDrainsBoth checks that callers at once admit as much as the plan and the credits have, and that
// none is charged to the credits while the plan had room.
func TestTakeFirstAtOnceDrainsBoth(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	const plan, credits = "fixed-window 40/30d", "fixed-window 20/30d"
	var taken [3]atomic.Int64
	var wg sync.WaitGroup
	for caller := range 8 {
		wg.Go(func() {
			for n := range 61 { // one more than all that there is
				got := columnsText(t, db, "allowed alternative remaining", "CALL headgate_take_first_once(?, ?, 0)",
					fmt.Sprint(caller, " ", n), chargesJSON(plan, "k", "1", credits, "k", "1"))
				switch {
				case strings.HasPrefix(got, "1 1 "):
					taken[1].Add(1)
				case strings.HasPrefix(got, "0 1 0, 1 2 "):
					taken[2].Add(1)
				case got == "0 1 0, 0 2 0":
					return
				default:
					t.Errorf("got %s, want one alternative charged, or both used up", got)
					return
				}
			}
		})
	}
	wg.Wait()
	if taken[1].Load() != 40 || taken[2].Load() != 20 {
		t.Errorf("got %d and %d admissions, want 40 and 20", taken[1].Load(), taken[2].Load())
	}
}

// TestTakeFirstIsRepeatedFromTheFirst checks that after a conflict a request begins again with its first alternative.
func TestTakeFirstIsRepeatedFromTheFirst(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	openAndMigrate(t, url)
	conn, err := openPlainDB(t, url).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	mustExec(t, conn, "CREATE TRIGGER conflict BEFORE INSERT ON headgate_entries FOR EACH ROW BEGIN IF @conflicts > 0 THEN "+
		"SET @conflicts = @conflicts - 1; SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213; END IF; END")
	mustExec(t, conn, "SET @conflicts = 2")
	request := chargesJSON("gcra 10/30d", "a", "11", "sliding-log 10/30d", "a", "3", "gcra 10/30d", "b", "1")
	got := columnsText(t, conn, "ordinality allowed remaining", "CALL headgate_take_first(?)", request)
	if want := "1 0 10, 2 1 7"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := columnsText(t, conn, "n", "SELECT @conflicts AS n"); got != "0" {
		t.Errorf("got %s conflicts left, want none", got)
	}
}
