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

// TestExtendFromSQL extends requests of one charge and of several, by valid and by invalid calls.
func TestExtendFromSQL(t *testing.T) {
	t.Parallel()
	conn, _ := session(t)
	if _, err := conn.Exec(t.Context(), `insert into headgate.limits (name, rule) values ('user', 'fixed-window 10/30d'), ('org', 'sliding-log 20/30d'),
			('slow', 'token-bucket 1/30d burst 10'), ('blocking', 'fixed-window 5/30d block 1h')`); err != nil {
		t.Fatal(err)
	}
	const one = "select allowed, remaining, charged, retry_after > '0', limit_name from headgate."
	all := func(call string) string {
		return forAllRows("allowed || ' ' || key || ' ' || capacity || ' ' || remaining || ' ' || refused || ' ' || charged", call)
	}
	for _, tt := range []struct{ sql, want string }{
		{one + `extend('i', 'user', 'a', 3)`, `22023 id: "i": no request of this id is known`},
		{`select allowed from headgate.take_once('i', 'user', 'a', 2)`, "t"},
		{one + `extend('i', 'user', 'a', 3.5)`, "t 6 3.5 f user"},
		{one + `extend('i', 'user', 'a', 3.5)`, "t 8 3.5 f user"}, // as it was admitted
		{one + `extend('i', 'user', 'a', 1)`, "t 8 3.5 f user"},
		{one + `extend('i', 'user', 'b', 3)`, `22023 id: "i": no request of this id is known`},
		{`select allowed from headgate.take('user', 'a', 4)`, "t"},
		{one + `extend('i', 'user', 'a', 6.001)`, "f 2 3.5 t user"},
		{`select retry_after is null from headgate.extend('i', 'user', 'a', 14)`, "t"}, // the difference never fits
		{one + `extend('i', 'user', 'a', 6)`, "t 0 6 f user"},
		{`select allowed, replayed from headgate.take_once('i', 'user', 'a', 2)`, "t t"},
		{`select headgate.settle('i', 'user', 'a', 1.5)`, "4.5"},
		{`select remaining from headgate.check('user', 'a')`, "4"},
		{one + `extend('i', 'user', 'a', 7)`, `22023 id: "i": it is settled already`},
		{`select headgate.settle('i', 'user', 'a', 1.5)`, "0"},
		{`select allowed from headgate.take_once('c', 'fixed-window 12/30d', 'a', 2)`, "t"},
		{one + `extend('c', 'fixed-window 12/30d', 'a', 5)`, "t 7 5 f fixed-window 12/30d"},
		{`select headgate.cancel('c', 'fixed-window 12/30d', 'a')`, "5"},
		{one + `extend('c', 'fixed-window 12/30d', 'a', 6)`, `22023 id: "c": it is settled already`},
		{`select allowed, replayed from headgate.take_once('c', 'fixed-window 12/30d', 'a', 2)`, "t f"},
		{one + `extend('c', 'fixed-window 12/30d', 'a', 3)`, "t 9 3 f fixed-window 12/30d"},
		{`select headgate.settle('c', 'fixed-window 12/30d', 'a', 8)`, "-5"},

		{one + `extend('', 'user', 'a', 3)`, "22023 id: is missing"},
		{one + `extend('i', 'user', 'a', 0)`, "22023 total: is 0; it must be above 0"},
		{one + `extend('i', 'user', 'a', null)`, "22023 total: is null"},
		{one + `extend('i', 'user', 'a', 3, null)`, "22023 life: is null"},
		{one + `extend('i', 'user', null, 3)`, "22023 key: is null"},
		{one + `extend('i', 'nothing', 'a', 3)`, "22023 unknown limit: "},
		{one + `extend('i', 'concurrency 1 ttl 1h', 'a', 3)`, "22023 limit: concurrency 1 ttl 1h is acquired and released, not taken"},

		{`select bool_and(allowed) from headgate.take_all_once('all', '{user,org,slow}', '{x,y,x}', '{2,2,2}')`, "t"},
		{
			all(`extend_all('all', '{slow,user,org}', '{x,x,y}', '{3,4,5.5}')`),
			"true x 10 7 false 3, true x 10 6 false 4, true y 20 14 false 5.5",
		},
		{ // one of the three does not fit, and another needs nothing more
			all(`extend_all('all', '{slow,user,org}', '{x,x,y}', '{4,99,5.5}')`),
			"false x 10 7 false 3, false x 10 6 true 4, false y 20 18 false 5.5",
		},
		{all(`extend_all('all', '{user}', '{x}', '{10}')`), "true x 10 0 false 10"},
		{all(`extend_all('all', '{user,user}', '{x,x}', '{10,10}')`), "22023 keys[2]: \"x\" of \"user\" is charged twice"},
		{all(`extend_all('all', '{user,org}', '{x,z}', '{10,10}')`), `22023 id: "all": no request of this id is known`},
		{all(`extend_all(null, '{user}', '{x}', '{10}')`), "22023 id: is missing"},
		{all(`extend_all('all', '{user}', '{x}', '{0}')`), "22023 costs[1]: is 0; it must be above 0"},
		{forAllRows("corrected::text", `settle_all('all', '{user,org,slow}', '{x,y,x}', '{1,0,12}')`), "9, 5.5, -9"},
		{all(`extend_all('all', '{user,org}', '{x,y}', '{10,10}')`), `22023 id: "all": it is settled already`},
		{`select cost, allowed from headgate.history where limit_name = 'org' order by number desc limit 1`, "0.000000 t"},

		{`select allowed from headgate.take_once('b', 'blocking', 'a', 4)`, "t"},
		{one + `extend('b', 'blocking', 'a', 10)`, "f 1 4 blocking"}, // this cost never fits, so it does not block
		{`select allowed from headgate.take('blocking', 'a', 1)`, "t"},
		{one + `extend('b', 'blocking', 'a', 5)`, "f 0 4 t blocking"},
		{`select blocked_until > now() from headgate.levels where limit_name = 'blocking'`, "t"},
		{one + `extend('b', 'blocking', 'a', 4)`, "t 1 4 f blocking"},
		{`select extensions is null from headgate.admissions where id = 'b'`, "t"},
	} {
		got := textOf(t, conn, tt.sql)
		if got != tt.want && (!strings.HasPrefix(tt.want, "22023") || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s:\n got %s\nwant %s", tt.sql, got, tt.want)
		}
	}
}

// TestAnExtensionProlongsTheLifeOfAnID extends an id by a longer life and by a shorter one.
func TestAnExtensionProlongsTheLifeOfAnID(t *testing.T) {
	t.Parallel()
	conn, _ := session(t)
	for _, sql := range []string{
		`take_once('i', 'fixed-window 10/30d', 'a', 1, '1 hour')`, `extend('i', 'fixed-window 10/30d', 'a', 1, '2 hours')`,
		`take_once('j', 'fixed-window 10/30d', 'a', 1, '2 hours')`, `extend_all('j', '{fixed-window 10/30d}', '{a}', '{2}', '1 hour')`,
	} {
		if got := textOf(t, conn, "select allowed from headgate."+sql); got != "t" {
			t.Errorf("%s: %s", sql, got)
		}
	}
	if got := textOf(t, conn, `select string_agg(round((a.keep_until - date_part('epoch', now()) * 1000000) / 3600000000)::text, ', ' order by id) from headgate.admissions a`); got != "2, 2" {
		t.Errorf("the ids are known for %s hours, want 2", got)
	}
}

// TestManyExtendAtOnce lets callers extend requests of two keys, in opposite orders, until these are used up, and
// then settle them: the charges are exact.
func TestManyExtendAtOnce(t *testing.T) {
	t.Parallel()
	conn, dsn := session(t)
	const callers, rounds = 6, 8 // they want 54 of 40 units
	var charged [callers]int
	together := func(do func(i int, call func(columns, function string, cost int) bool)) {
		var wg sync.WaitGroup
		for i := range callers {
			caller := connect(t, dsn)
			wg.Go(func() {
				keys := []string{"a", "b"}
				if i%2 == 1 {
					keys = []string{"b", "a"}
				}
				rules := []string{"fixed-window 40/30d", "fixed-window 40/30d"}
				do(i, func(columns, function string, cost int) (ok bool) {
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
	used := func() string {
		return textOf(t, conn, `select string_agg((level / unit)::text, ', ') from headgate.cells`)
	}

	together(func(i int, call func(columns, function string, cost int) bool) { // before others have used up the keys
		call("bool_and(allowed)", "take_all_once", 1)
		charged[i] = 1
	})
	together(func(i int, call func(columns, function string, cost int) bool) {
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
	if got := used(); sum != 40 || got != "40, 40" {
		t.Errorf("%d were charged, %v; in use are %s", sum, charged, got)
	}
	together(func(i int, call func(columns, function string, cost int) bool) {
		if !call(fmt.Sprint("bool_and(corrected = ", charged[i]-2, ")"), "settle_all", 2) {
			t.Errorf("id %d was not corrected from %d to 2", i, charged[i])
		}
	})
	if got := used(); got != "12, 12" {
		t.Errorf("in use after they were settled: %s", got)
	}
}

// TestSettlingInOneBatchWithAnExtendedCharge settles several requests in one batch. One of them was extended, so the
// statements for plain requests cannot settle it.
func TestSettlingInOneBatchWithAnExtendedCharge(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s := openAt(t, dsn)
	var takes, settles []law.Op
	for i := range 3 {
		op := request(fmt.Sprint("id ", i), 3_600_000_000)
		op.Group, op.Cell.Key = uint32(i), fmt.Sprint("key ", i)
		takes = append(takes, op)
		op.Verb, op.Cost, op.TTL = law.Settle, 0, 0
		settles = append(settles, op)
	}
	outs := make([]law.Outcome, len(takes))
	if err := s.Apply(t.Context(), takes, outs); err != nil {
		t.Fatal(err)
	}
	more := takes[1]
	more.Verb, more.Cost = law.Extend, 3*more.Cost
	if out := applyOp(t, s, more); out.Granted != more.Cost || out.RetryAt != 0 {
		t.Fatalf("extended: %+v", out)
	}
	if err := s.Apply(t.Context(), settles, outs); err != nil {
		t.Fatal(err)
	}
	for i, out := range outs {
		if want := []int64{1, 3, 1}[i] * takes[0].Cost; out.Err != nil || out.Granted != want || out.State.Level != 0 {
			t.Errorf("settlement %d: %+v, want %d given back", i, out, want)
		}
	}
}
