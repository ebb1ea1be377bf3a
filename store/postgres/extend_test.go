package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
)

// TestExtendFromSQL checks extend for requests of one charge and extend_all for several, by valid and invalid calls.
func TestExtendFromSQL(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	mustExec(t, conn, `insert into headgate.limits (name, rule) values ('user', 'fixed-window 10/30d'), ('org', 'sliding-log 20/30d'),
			('slow', 'token-bucket 1/30d burst 10'), ('blocking', 'fixed-window 5/30d block 1h')`)
	const columns = "select allowed, remaining, charged, retry_after > '0', limit_name from headgate."
	allRows := func(call string) string {
		return joinRows("allowed || ' ' || key || ' ' || capacity || ' ' || remaining || ' ' || refused || ' ' || charged", call)
	}
	for _, tt := range []struct{ sql, want string }{
		{columns + `extend('i', 'user', 'a', 3)`, `22023 id: "i": no request of this id is known`},
		{`select allowed from headgate.take_once('i', 'user', 'a', 2)`, "t"},
		{columns + `extend('i', 'user', 'a', 3.5)`, "t 6 3.5 f user"},
		{columns + `extend('i', 'user', 'a', 3.5)`, "t 8 3.5 f user"}, // a repeat has the remaining units of take_once
		{columns + `extend('i', 'user', 'a', 1)`, "t 8 3.5 f user"},
		{columns + `extend('i', 'user', 'b', 3)`, `22023 id: "i": no request of this id is known`},
		{`select allowed from headgate.take('user', 'a', 4)`, "t"},
		{columns + `extend('i', 'user', 'a', 6.001)`, "f 2 3.5 t user"},
		{`select retry_after is null from headgate.extend('i', 'user', 'a', 14)`, "t"}, // the difference never fits
		{columns + `extend('i', 'user', 'a', 6)`, "t 0 6 f user"},
		{`select allowed, replayed from headgate.take_once('i', 'user', 'a', 2)`, "t t"},
		{`select headgate.settle('i', 'user', 'a', 1.5)`, "4.5"},
		{`select remaining from headgate.check('user', 'a')`, "4"},
		{columns + `extend('i', 'user', 'a', 7)`, `22023 id: "i": it is settled already`},
		{`select headgate.settle('i', 'user', 'a', 1.5)`, "0"},
		{`select allowed from headgate.take_once('c', 'fixed-window 12/30d', 'a', 2)`, "t"},
		{columns + `extend('c', 'fixed-window 12/30d', 'a', 5)`, "t 7 5 f fixed-window 12/30d"},
		{`select headgate.cancel('c', 'fixed-window 12/30d', 'a')`, "5"},
		{columns + `extend('c', 'fixed-window 12/30d', 'a', 6)`, `22023 id: "c": it is settled already`},
		{`select allowed, replayed from headgate.take_once('c', 'fixed-window 12/30d', 'a', 2)`, "t f"},
		{columns + `extend('c', 'fixed-window 12/30d', 'a', 3)`, "t 9 3 f fixed-window 12/30d"},
		{`select headgate.settle('c', 'fixed-window 12/30d', 'a', 8)`, "-5"},

		{columns + `extend('', 'user', 'a', 3)`, "22023 id: is missing"},
		{columns + `extend('i', 'user', 'a', 0)`, "22023 total: is 0; it must be above 0"},
		{columns + `extend('i', 'user', 'a', null)`, "22023 total: is null"},
		{columns + `extend('i', 'user', 'a', 3, null)`, "22023 life: is null"},
		{columns + `extend('i', 'user', null, 3)`, "22023 key: is null"},
		{columns + `extend('i', 'nothing', 'a', 3)`, "22023 unknown limit: "},
		{columns + `extend('i', 'concurrency 1 ttl 1h', 'a', 3)`, "22023 limit: concurrency 1 ttl 1h is acquired and released, not taken"},

		{`select bool_and(allowed) from headgate.take_all_once('all', '{user,org,slow}', '{x,y,x}', '{2,2,2}')`, "t"},
		{
			allRows(`extend_all('all', '{slow,user,org}', '{x,x,y}', '{3,4,5.5}')`),
			"true x 10 7 false 3, true x 10 6 false 4, true y 20 14 false 5.5",
		},
		{ // user does not fit, and org has its total already
			allRows(`extend_all('all', '{slow,user,org}', '{x,x,y}', '{4,99,5.5}')`),
			"false x 10 7 false 3, false x 10 6 true 4, false y 20 18 false 5.5",
		},
		{allRows(`extend_all('all', '{user}', '{x}', '{10}')`), "true x 10 0 false 10"},
		{allRows(`extend_all('all', '{user,user}', '{x,x}', '{10,10}')`), "22023 keys[2]: \"x\" of \"user\" is charged twice"},
		{allRows(`extend_all('all', '{user,org}', '{x,z}', '{10,10}')`), `22023 id: "all": no request of this id is known`},
		{allRows(`extend_all(null, '{user}', '{x}', '{10}')`), "22023 id: is missing"},
		{allRows(`extend_all('all', '{user}', '{x}', '{0}')`), "22023 costs[1]: is 0; it must be above 0"},
		{joinRows("corrected::text", `settle_all('all', '{user,org,slow}', '{x,y,x}', '{1,0,12}')`), "9, 5.5, -9"},
		{allRows(`extend_all('all', '{user,org}', '{x,y}', '{10,10}')`), `22023 id: "all": it is settled already`},
		{`select cost, allowed from headgate.history where limit_name = 'org' order by number desc limit 1`, "0.000000 t"},

		{`select allowed from headgate.take_once('b', 'blocking', 'a', 4)`, "t"},
		{columns + `extend('b', 'blocking', 'a', 10)`, "f 1 4 blocking"}, // a cost that never fits does not block
		{`select allowed from headgate.take('blocking', 'a', 1)`, "t"},
		{columns + `extend('b', 'blocking', 'a', 5)`, "f 0 4 t blocking"},
		{`select blocked_until > now() from headgate.levels where limit_name = 'blocking'`, "t"},
		{columns + `extend('b', 'blocking', 'a', 4)`, "t 1 4 f blocking"},
		{`select extensions is null from headgate.admissions where id = 'b'`, "t"},
	} {
		got := queryText(t, conn, tt.sql)
		if got != tt.want && (!strings.HasPrefix(tt.want, "22023") || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s:\n got %s\nwant %s", tt.sql, got, tt.want)
		}
	}
}

// TestExtendKeepsTheLongerLifeOfAnID extends one id with a longer life and one with a shorter life.
func TestExtendKeepsTheLongerLifeOfAnID(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	for _, sql := range []string{
		`take_once('i', 'fixed-window 10/30d', 'a', 1, '1 hour')`, `extend('i', 'fixed-window 10/30d', 'a', 1, '2 hours')`,
		`take_once('j', 'fixed-window 10/30d', 'a', 1, '2 hours')`, `extend_all('j', '{fixed-window 10/30d}', '{a}', '{2}', '1 hour')`,
	} {
		if got := queryText(t, conn, "select allowed from headgate."+sql); got != "t" {
			t.Errorf("%s: got %s, want t", sql, got)
		}
	}
	if got := queryText(t, conn, `select string_agg(round((a.keep_until - date_part('epoch', now()) * 1000000) / 3600000000)::text, ', ' order by id) from headgate.admissions a`); got != "2, 2" {
		t.Errorf("hours that the ids are kept: got %s, want 2, 2", got)
	}
}

// TestConcurrentExtendIsExact lets callers extend requests on two keys, in opposite orders, until the keys are full,
// and then settle them. The levels must be exactly the sums of the charges.
func TestConcurrentExtendIsExact(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	const callers, rounds = 6, 8 // 6 * (1 + 8) = 54 units are requested, of 40
	var charged [callers]int
	// runCallers runs a function once for each caller. call charges both keys by a function for several charges.
	runCallers := func(run func(i int, call func(columns, function string, cost int) bool)) {
		var wg sync.WaitGroup
		for i := range callers {
			caller := connect(t, dsn)
			wg.Go(func() {
				keys := []string{"a", "b"}
				if i%2 == 1 {
					keys = []string{"b", "a"}
				}
				rules := []string{"fixed-window 40/30d", "fixed-window 40/30d"}
				run(i, func(columns, function string, cost int) (ok bool) {
					if err := caller.QueryRow(context.Background(), `select `+columns+` from headgate.`+function+`($1, $2, $3, $4)`,
						fmt.Sprint("id ", i), rules, keys, []int{cost, cost}).Scan(&ok); err != nil {
						t.Error(err)
					}
					return ok
				})
			})
		}
		wg.Wait()
	}
	levels := func() string {
		return queryText(t, conn, `select string_agg((level / unit)::text, ', ') from headgate.cells`)
	}

	runCallers(func(i int, call func(columns, function string, cost int) bool) { // before extensions use up the keys
		call("bool_and(allowed)", "take_all_once", 1)
		charged[i] = 1
	})
	runCallers(func(i int, call func(columns, function string, cost int) bool) {
		for range rounds {
			if call("bool_and(allowed and charged = ($4::numeric[])[ordinality])", "extend_all", charged[i]+1) {
				charged[i]++
			}
		}
	})
	sum := 0
	for _, n := range charged {
		sum += n
	}
	if got := levels(); sum != 40 || got != "40, 40" {
		t.Errorf("got %d charged, %v, levels %s; want 40, levels 40, 40", sum, charged, got)
	}
	runCallers(func(i int, call func(columns, function string, cost int) bool) {
		if !call(fmt.Sprint("bool_and(corrected = ", charged[i]-2, ")"), "settle_all", 2) {
			t.Errorf("id %d: want a correction from %d to 2", i, charged[i])
		}
	})
	if got := levels(); got != "12, 12" { // 6 * 2
		t.Errorf("levels after settle_all: got %s, want 12, 12", got)
	}
}

// TestSettleInOneBatchWithAnExtendedCharge settles three requests in one batch. One of them was extended, so
// headgate_internal.apply_plain leaves it to apply_once.
func TestSettleInOneBatchWithAnExtendedCharge(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s := openAt(t, dsn)
	var takes, settles []law.Op
	for i := range 3 {
		op := newTake(fmt.Sprint("id ", i), 3_600_000_000)
		op.Group, op.Cell.Key = uint32(i), fmt.Sprint("key ", i)
		takes = append(takes, op)
		op.Verb, op.Cost, op.TTL = law.Settle, 0, 0
		settles = append(settles, op)
	}
	outs := make([]law.Outcome, len(takes))
	if err := s.Apply(t.Context(), takes, outs); err != nil {
		t.Fatal(err)
	}
	extend := takes[1]
	extend.Verb, extend.Cost = law.Extend, 3*extend.Cost
	if out := applyOp(t, s, extend); out.Granted != extend.Cost || out.RetryAt != 0 {
		t.Fatalf("Extend: got %+v, want %d granted", out, extend.Cost)
	}
	if err := s.Apply(t.Context(), settles, outs); err != nil {
		t.Fatal(err)
	}
	for i, out := range outs {
		if want := []int64{1, 3, 1}[i] * takes[0].Cost; out.Err != nil || out.Granted != want || out.State.Level != 0 {
			t.Errorf("settlement %d: got %+v, want %d given back", i, out, want)
		}
	}
}
