package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/postgres"
)

// headroomCalls are calls with headroom, valid and invalid, as formats for Sprintf with the limit.
var headroomCalls = []string{
	"take('%s keep 10%%', 'a', 0.5)", "take('%s keep 0.25', 'a', 0.5)", "check('%s keep 100%%', 'a')",
	"take('%s keep 99', 'a')", "take('%s keep 0', 'a')", "take('%s keep x', 'a')",
	"acquire('%s keep 50%%', 'a')",
	"take('%s keep 0.1234567891', 'a')", "take_all('{%s keep 10%%}', '{a}', '{0.5}')",
	"extend('i', '%s keep 10%%', 'a', 1.5)", "extend_all('i', '{%s keep 10%%}', '{a}', '{2}')",
	"settle('i', '%s keep 10%%', 'a', 0.5)",
}

// TestHeadroomFromSQL checks that functions leave the headroom free, and that invalid headroom is refused.
func TestHeadroomFromSQL(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	mustExec(t, conn, `insert into headgate.limits (name, rule) values ('api', 'fixed-window 10/30d'),
		('blocking', 'token-bucket 10/30d block 1h'), ('logged', 'sliding-log 10/30d'),
		('places', 'concurrency 4 ttl 1h'),
		('given', 'fixed-window 10/30d');
		insert into headgate.catalog (kind, name, key, text, until) values ('override', 'given', 'vip', 'fixed-window 20/30d', 9007199254740991)`)
	for _, tt := range []struct{ sql, want string }{
		{
			`select string_agg(allowed::text || ' ' || remaining, ', ' order by i) from generate_series(1, 9) i, headgate.take('api keep 15%', 'a' || left('', i))`,
			"true 9, true 8, true 7, true 6, true 5, true 4, true 3, true 2, false 2",
		},
		{`select allowed || ' ' || remaining || ' ' || limit_name from headgate.check('api keep 1.5', 'a')`, "false 2 api"},
		{`select allowed || ' ' || remaining from headgate.take('api keep 0.5', 'a')`, "true 1"},
		{`select allowed || ' ' || remaining from headgate.take('api', 'a')`, "true 0"},
		{`select (retry_after is null)::text from headgate.take('api keep 5', 'b', 5.5)`, "true"}, // the cost never fits
		{`select accepted || ' ' || level || ' ' || brim from headgate.take_up_to('api keep 25%', 'c', 50)`, "7.5 7.5 false"},
		{`select allowed || ' ' || replayed from headgate.take_once('i', 'api keep 50%', 'd', 5)`, "true false"},
		{`select allowed || ' ' || replayed from headgate.take_once('i', 'api keep 50%', 'd', 5)`, "true true"},
		{`select allowed || ' ' || charged from headgate.extend('i', 'api keep 40%', 'd', 6.5)`, "false 5"},
		{`select allowed || ' ' || charged from headgate.extend('i', 'api keep 40%', 'd', 6)`, "true 6"},
		{`select allowed || ' ' || charged from headgate.extend_all('i', '{api keep 40%}', '{d}', '{7}')`, "false 6"},
		{`select headgate.settle('i', 'api keep 50%', 'd', 4)::text`, "2"},
		{`select allowed::text from headgate.reserve('token-bucket 10/1h keep 50%', 'e', 6, '30 days')`, "false"},
		{`select allowed::text from headgate.reserve('token-bucket 10/1h keep 50%', 'e', 5, '30 days')`, "true"},
		{`select string_agg(allowed || ' ' || refused, ', ' order by ordinality) from
			headgate.take_all('{api keep 50%,logged keep 20%,api}', '{f,f,f}', '{5,8,5}')`, "true false, true false, true false"},
		{`select string_agg(allowed || ' ' || refused, ', ' order by ordinality) from
			headgate.take_all('{api keep 50%,logged keep 20%,api}', '{g,f,g}', '{5,1,5}')`, "false false, false true, false false"},
		{`select string_agg(remaining::text, ', ' order by k) from unnest('{vip,other}'::text[]) k, headgate.take('given keep 50%', k, 5)`, "5, 15"},
		{`select allowed::text from headgate.take('given keep 50%', 'vip', 5)`, "true"},
		{`select allowed::text from headgate.take('blocking keep 10%', 'h', 9)`, "true"},
		{`select allowed::text from headgate.take('blocking keep 10%', 'h', 1)`, "false"},
		{`select allowed::text from headgate.take('blocking', 'h', 1)`, "true"},
		{`select string_agg(a.acquired::text, ', ') from generate_series(1, 3) i, headgate.acquire('places keep 50%', 'i' || left('', i)) a`, "true, true, false"},
		{`select allowed::text from headgate.take('fixed-window 10/30d keep 90%', 'j')`, "true"},
		{`select allowed::text from headgate.take('fixed-window 10/30d keep 90%', 'j')`, "false"},
	} {
		var got string
		if err := conn.QueryRow(t.Context(), tt.sql).Scan(&got); err != nil || got != tt.want {
			t.Errorf("%s: got %s, %v; want %s", tt.sql, got, err, tt.want)
		}
	}
	for keep, want := range map[string]string{
		"ten": `"ten" is not a decimal number`, "-5": `"-5" is not a decimal number`, "0": "is 0", "0%": "is 0", "": `"" is not`,
		"100%": "leaves nothing of a limit to take", "10": "leaves nothing to take of a limit of 10 at once",
		"99.99999999%": "leaves nothing to take of a limit of 10 at once", "0.0123456789": "more than 9 digits", "1e1": "is not a decimal number",
		"NaN": "is not a decimal number",
	} {
		if got := queryText(t, conn, fmt.Sprintf(`allowed from headgate.take('api keep %s', 'bad')`, keep)); !strings.Contains(got, "keep: ") || !strings.Contains(got, want) {
			t.Errorf("keep %q: got %s, want an error with %q", keep, got, want)
		}
	}
}

// TestHeadroomFromSQLMatchesGo compares how much of an empty limit with headroom take_up_to and FillUp take or refuse.
func TestHeadroomFromSQLMatchesGo(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s, err := postgres.Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := newLimiter(s)
	for i, notation := range []string{
		"token-bucket 7/1h burst 13.37", "fixed-window 999983/30d", "sliding-window 12.5/1h", "sliding-log 3/1h",
		"gcra 1000000/1h burst 3",
	} {
		for k, keep := range []string{"10%", "33.333333333%", "0.000000001%", "99.999%", "1", "0.1", "2.999999999"} {
			key := fmt.Sprint(i, k)
			fill, err := l.FillUp(t.Context(), headgate.Charge{
				Limit: headgate.MustParse(notation), Key: "go" + key, Cost: headgate.Units(1_000_000),
				Keep: headgate.MustHeadroom(keep),
			})
			if errors.Is(err, headgate.ErrInvalid) {
				if got := queryText(t, conn, fmt.Sprintf(`accepted from headgate.take_up_to('%s keep %s', 'sql%s', 1000000)`,
					notation, keep, key)); !strings.Contains(got, "keep: ") {
					t.Errorf("%s keep %s: got %s, want an error as in Go: %v", notation, keep, got, err)
				}
				continue
			}
			var got string
			sqlErr := conn.QueryRow(t.Context(), `select accepted::text from headgate.take_up_to($1, $2, 1000000)`,
				notation+" keep "+keep, "sql"+key).Scan(&got)
			if err != nil || sqlErr != nil || got != fill.Accepted.String() {
				t.Errorf("%s keep %s: got %s, %v; in Go %s, %v", notation, keep, got, sqlErr, fill.Accepted, err)
			}
		}
	}
}
