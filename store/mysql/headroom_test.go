package mysql_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// TestHeadroomByCall checks that procedures which take leave the headroom of "keep" free, that calls without "keep" may
// use it, and the errors of invalid headrooms.
func TestHeadroomByCall(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	for name, rule := range map[string]string{
		"api": "fixed-window 10/30d", "given": "fixed-window 10/30d", "blocking": "token-bucket 10/30d block 1h",
		"logged": "sliding-log 10/30d", "places": "concurrency 4 ttl 1h",
	} {
		storetest.Define(t, s, store.Item{Name: name, Text: rule})
	}
	defineItems(t, s, store.Item{Kind: store.KindOverride, Name: "given", Key: "vip", Text: "fixed-window 20/30d"})
	for _, tt := range []struct{ columns, call, want string }{
		{"allowed remaining", "take('api keep 15%', 'a', 7)", "1 3"},
		{"allowed remaining", "take('api keep 15%', 'a', 1)", "1 2"},
		{"allowed remaining limit_name", "check('api keep 15%', 'a', 1)", "0 2 api"},
		{"allowed remaining limit_name", "take('api keep 1.5', 'a', 1)", "0 2 api"},
		{"allowed remaining", "take('api keep 0.5', 'a', 1)", "1 1"},
		{"allowed remaining", "take('api', 'a', 1)", "1 0"},
		{"allowed retry_after", "take('api keep 5', 'b', 5.5)", "0 null"},
		{"accepted level brim", "take_up_to('api keep 25%', 'c', 50)", "7.500000 7.500000 0"},
		{"allowed replayed", "take_once('i', 'api keep 50%', 'd', 5, 0)", "1 0"},
		{"allowed replayed", "take_once('i', 'api keep 50%', 'd', 5, 0)", "1 1"},
		{"allowed replayed", "take_once('j', 'api keep 50%', 'd', 1, 0)", "0 0"},
		{"corrected", "settle('i', 'api keep 50%', 'd', 4)", "1.000000000"},
		{"allowed", "reserve('token-bucket 10/1h keep 50%', 'e', 6, 2592000, null, 0)", "0"},
		{"allowed", "reserve('token-bucket 10/1h keep 50%', 'e', 5, 2592000, null, 0)", "1"},
		{
			"allowed refused",
			"take_all('" + chargesJSON("api keep 50%", "f", "5", "logged keep 20%", "f", "8", "api", "f", "5") + "')",
			"1 0, 1 0, 1 0",
		},
		{
			"allowed refused",
			"take_all('" + chargesJSON("api keep 50%", "g", "5", "logged keep 20%", "f", "1", "api", "g", "5") + "')",
			"0 0, 0 1, 0 0",
		},
		{
			"allowed delay",
			"reserve_all('" + chargesJSON("gcra 1/1h burst 2 keep 50%", "r", "1", "gcra 1/1h burst 2", "r", "1") +
				"', 7200, null, 0)",
			"1 0.000000, 1 0.000000",
		},
		{"allowed remaining", "take('given keep 50%', 'vip', 5)", "1 15"},
		{"allowed remaining", "take('given keep 50%', 'other', 6)", "0 10"},
		{"allowed", "take('blocking keep 10%', 'h', 9)", "1"},
		{"allowed", "take('blocking keep 10%', 'h', 1)", "0"},
		{"allowed", "take('blocking', 'h', 1)", "1"},
		{"acquired", "acquire('places keep 50%', 'i', 1)", "1"},
		{"acquired", "acquire('places keep 50%', 'i', 1)", "1"},
		{"acquired", "acquire('places keep 50%', 'i', 1)", "0"},
		{"allowed", "take('fixed-window 10/30d keep 90%', 'j', 1)", "1"},
		{"allowed", "take('fixed-window 10/30d keep 90%', 'j', 1)", "0"},
	} {
		if got := columnsText(t, db, tt.columns, "CALL headgate_"+tt.call); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.call, got, tt.want)
		}
	}
	for keep, want := range map[string]string{
		"ten": `"ten" is not a decimal number`, "-5": `"-5" is negative`, "0": "is 0", "0%": "is 0", "": `"" is not`,
		"100%": "leaves nothing of a limit to take", "10": "leaves nothing to take of a limit of 10 at once",
		"99.99999999%": "leaves nothing to take of a limit of 10 at once", "0.0123456789": "more than 9 digits",
		"1e1": "is not a decimal number", "12345678901234567890": "is too large",
	} {
		got := columnsText(t, db, "allowed", "CALL headgate_take(?, 'bad', 1)", "api keep "+keep)
		if !strings.HasPrefix(got, "keep: ") || !strings.Contains(got, want) {
			t.Errorf("keep %q: got %s, want an error with %q", keep, got, want)
		}
	}
}

// TestHeadroomByCallDecidesAsGo compares how much of a large cost headgate_take_up_to and FillUp accept beside
// headroom.
func TestHeadroomByCallDecidesAsGo(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	l := newLimiter(s)
	for i, notation := range []string{
		"token-bucket 7/1h burst 13.37", "fixed-window 999983/30d", "sliding-window 12.5/1h", "sliding-log 3/1h",
		"gcra 1000000/1h burst 3",
	} {
		for k, keep := range []string{"10%", "33.333333333%", "0.000000001%", "99.999%", "1", "0.1", "2.999999999"} {
			key := fmt.Sprint(i, k)
			filled, err := l.FillUp(t.Context(), headgate.Charge{
				Limit: headgate.MustParse(notation), Key: "go" + key, Cost: headgate.Units(1_000_000),
				Keep: headgate.MustHeadroom(keep),
			})
			got := columnsText(t, db, "accepted", "CALL headgate_take_up_to(?, ?, 1000000)", notation+" keep "+keep, "sql"+key)
			switch {
			case errors.Is(err, headgate.ErrInvalid):
				if !strings.Contains(got, "keep: ") {
					t.Errorf("%s keep %s: got %s, want an error like %v", notation, keep, got, err)
				}
			case err != nil || headgate.MustCost(got) != filled.Accepted:
				t.Errorf("%s keep %s: got %s, want %s, %v", notation, keep, got, filled.Accepted, err)
			}
		}
	}
}
