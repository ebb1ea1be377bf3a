package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
)

// bounded returns a store whose limits may have so many keys, in a database of its own.
func bounded(tb testing.TB, most int) (s *postgres.Store, dsn string) {
	tb.Helper()
	dsn = migrated.Postgres(tb)
	return openWith(tb, dsn, most), dsn
}

func openWith(tb testing.TB, dsn string, most int) *postgres.Store {
	tb.Helper()
	s, err := postgres.Open(context.Background(), dsn, &postgres.Config{MaxKeys: most})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// fill takes one of each of n keys, and returns how many were answered by a cell of
// their own.
func fillKeys(tb testing.TB, s *postgres.Store, limit headgate.Limit, prefix string, n int) (own int) {
	tb.Helper()
	const size = 500
	for from := 0; from < n; from += size {
		ops := make([]law.Op, min(n-from, size))
		for i := range ops {
			ops[i] = law.Op{
				Verb: law.Take, Group: uint32(i),
				Cell: law.Cell{Limit: limit.Name(), Key: fmt.Sprint(prefix, from+i)}, Params: limit.Params(),
				Cost: limit.Params().Unit, Count: 1,
			}
		}
		outs := make([]law.Outcome, len(ops))
		if err := s.Apply(context.Background(), ops, outs); err != nil {
			tb.Fatal(err)
		}
		for i := range outs {
			if outs[i].Err != nil {
				tb.Fatal(outs[i].Err)
			}
			if !outs[i].Shared {
				own++
			}
		}
	}
	return own
}

func sweep(tb testing.TB, s *postgres.Store) {
	tb.Helper()
	if _, err := s.Sweep(context.Background(), 1000); err != nil {
		tb.Fatal(err)
	}
}

func roomOf(tb testing.TB, s *postgres.Store, limit headgate.Limit) store.Room {
	tb.Helper()
	return roomIn(tb, s, limit.Name())
}

func roomIn(tb testing.TB, s *postgres.Store, limit string) (r store.Room) {
	tb.Helper()
	list, err := s.Fullness(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range list {
		if r.Limit == limit {
			return r
		}
	}
	return r
}

func TestNewKeysOfAFullLimitShareACell(t *testing.T) {
	t.Parallel()
	s, dsn := bounded(t, 20)
	other := openWith(t, dsn, 0)
	limit := headgate.MustParse("fixed-window 10/365d")
	if own := fillKeys(t, s, limit, "own", 20); own != 20 {
		t.Fatalf("%d keys have a cell of their own", own)
	}
	sweep(t, s)
	if r := roomOf(t, other, limit); !r.Sharing || r.Keys != 20 || r.Max != 20 || r.Generation != 1 || r.Since == 0 ||
		r.CountedAt == 0 {
		t.Fatalf("%+v; want one that is full and shares", r)
	}
	l := headgate.New(other, nil)
	for i := range 12 {
		d, err := l.Allow(t.Context(), limit, fmt.Sprint("new", i))
		if err != nil || d.Allowed != (i < 10) {
			t.Errorf("new key %d: %+v, %v; want ten admitted, in common", i, d, err)
		}
	}
	if own := fillKeys(t, other, limit, "own", 20); own != 20 {
		t.Errorf("%d old keys kept their own cell", own)
	}
	if r := roomOf(t, other, limit); r.Shared != 12 {
		t.Errorf("%d ops were answered by the shared cell", r.Shared)
	}
	var cells int
	if err := connect(t, dsn).QueryRow(t.Context(), `select count(*) from headgate.cells where limit_name = $1`,
		limit.Name()).Scan(&cells); err != nil || cells != 21 {
		t.Errorf("%d cells, %v", cells, err)
	}
}

// TestAFloodIsAnsweredAndBounded lets two processes, and a third one from SQL, ask for
// four times as many keys as the limit may have.
func TestAFloodIsAnsweredAndBounded(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	const most, keys = 40_000, 160_000
	s, dsn := bounded(t, most)
	other := openWith(t, dsn, 0)
	limit := headgate.MustParse("fixed-window 3/365d")
	var wg sync.WaitGroup
	var own atomic.Int64
	for w := range 4 {
		wg.Go(func() {
			store := []*postgres.Store{s, other}[w%2]
			own.Add(int64(fillKeys(t, store, limit, fmt.Sprint(w, "-"), keys/4)))
		})
	}
	wg.Wait()
	r := roomOf(t, s, limit)
	t.Logf("%d keys, %d have cells of their own; %+v", keys, own.Load(), r)
	if !r.Sharing || own.Load() < most || own.Load() > 2*most {
		t.Errorf("%d keys have cells of their own, %+v; want %d, or somewhat more", own.Load(), r, most)
	}
	conn := connect(t, dsn)
	var cells int64
	if err := conn.QueryRow(t.Context(), `select count(*) from headgate.cells where limit_name = $1`,
		limit.Name()).Scan(&cells); err != nil || cells != own.Load()+1 {
		t.Errorf("%d cells, %v; want one more than %d", cells, err, own.Load())
	}
	var allowed bool
	if err := conn.QueryRow(t.Context(), `select allowed from headgate.take($1, 'from SQL')`, limit.Name()).Scan(
		&allowed); err != nil || allowed {
		t.Errorf("a new key from SQL: allowed %v, %v; want a refusal by the shared cell", allowed, err)
	}
	if n := fillKeys(t, other, limit, "0-", 1000); n != 1000 { // old keys have kept what is theirs
		t.Errorf("%d of 1000 old keys have their own cell", n)
	}
}

// TestPeopleShareToo calls the functions for people about keys that a full limit has no
// room for.
func TestPeopleShareToo(t *testing.T) {
	t.Parallel()
	conn, _ := session(t)
	for _, tt := range []struct{ sql, want string }{
		{
			`select headgate.set_max_keys_1(0)`,
			"22023 p_max: is 0; it must be above 0, or below 0 for any number of keys",
		},
		{`select headgate.set_max_keys_1(2) is null`, "t"},
		{`select headgate.set_max_keys_1(2)`, "2"},
		{`select allowed from headgate.take('token-bucket 1/1h burst 3', 'own')`, "t"},
		{`select allowed from headgate.take('token-bucket 1/1h burst 3', 'own too')`, "t"},
		{`select acquired from headgate.acquire('concurrency 2 ttl 1h', 'own')`, "t"},
		{`select acquired from headgate.acquire('concurrency 2 ttl 1h', 'own too')`, "t"},
		{`select headgate.sweep(100)`, "0"},
		{`select headgate.sweep(100)`, "0"}, // now nobody is left who has not seen the maximum
		{
			`select keys, max_keys, sharing, generation from headgate.fullness_1() where limit_name like 'token%'`,
			"2 2 t 1",
		},
		{`select allowed, remaining from headgate.take('token-bucket 1/1h burst 3', 'new', 2)`, "t 1"},
		{`select allowed, remaining from headgate.check('token-bucket 1/1h burst 3', 'newer', 2)`, "f 1"},
		{`select allowed, remaining from headgate.take('token-bucket 1/1h burst 3', 'own', 2)`, "t 0"},
		{
			`select allowed from headgate.take_once('id', 'token-bucket 1/1h burst 3', 'new')`,
			`53400 limit: "token-bucket 1/1h burst 3" has as many keys as it may, and this one is not among them; a request with an id needs a key of its own`,
		},
		{`select replayed from headgate.take_once('id', 'token-bucket 1/1h burst 3', 'own too')`, "f"},
		{`select replayed from headgate.take_once('id', 'token-bucket 1/1h burst 3', 'own too')`, "t"},
		{
			`select headgate.block('token-bucket 1/1h burst 3', 'new', '1 hour')`,
			`53400 limit: "token-bucket 1/1h burst 3" has as many keys as it may, and this one is not among them; a block needs a key of its own`,
		},
		{
			`select bool_or(allowed), string_agg(remaining || ' ' || refused, ', ' order by ordinality) from headgate.take_all('{token-bucket 1/1h burst 3,token-bucket 1/1h burst 3,gcra 9/1h}', '{new,newer,new}', '{0.5,0.6,1}')`,
			"f 1 false, 0 true, 9 false",
		},
		{
			`select bool_and(allowed), string_agg(remaining || ' ' || refused, ', ' order by ordinality) from headgate.take_all('{token-bucket 1/1h burst 3,token-bucket 1/1h burst 3,gcra 9/1h}', '{new,newer,new}', '{0.25,0.25,1}')`,
			"t 0 false, 0 false, 8 false",
		},
		{
			`select accepted, level > 2.7 from headgate.take_up_to('token-bucket 1/1h burst 3', 'another', 0.25)`,
			"0.25 t",
		},
		{
			`select allowed from headgate.take_all_once('id', '{gcra 9/1h,token-bucket 1/1h burst 3}', '{new,new}', '{1,0.1}')`,
			`53400 limit: "token-bucket 1/1h burst 3" has as many keys as it may, and this one is not among them; a request with an id needs a key of its own`,
		},
		{`select headgate.block('token-bucket 1/1h burst 3', 'new', '0') is null`, "t"},
		{`select headgate.reset('token-bucket 1/1h burst 3', 'new')`, "f"},
		{
			`select allowed from headgate.extend('x', 'token-bucket 1/1h burst 3', 'new', 1)`,
			`22023 id: "x": no request of this id is known`,
		},
		{
			`select headgate.settle('x', 'token-bucket 1/1h burst 3', 'new', 1)`,
			`22023 id: "x": no request of this id is known`,
		},
		{
			`select allowed, delay > '0' from headgate.reserve('token-bucket 1/1h burst 3', 'newest', 2, '5 hours')`,
			"t t",
		},
		{
			`select allowed from headgate.take('token-bucket 1/1h burst 3', 'headgate:shared:1')`,
			`22023 key: begins with "headgate:shared:", which is kept for cells that keys share`,
		},
		{`select acquired from headgate.acquire('concurrency 2 ttl 1h', 'new')`, "t"},
		{`select headgate.renew('concurrency 2 ttl 1h', 'new', max(number)) from headgate.entries`, "t"},
		{`select headgate.release('concurrency 2 ttl 1h', 'new', max(number)) from headgate.entries`, "t"},
		{`select headgate.release('concurrency 2 ttl 1h', 'new', max(number)) from headgate.entries`, "f"},
		{`select count(*) from headgate.cells`, "7"},
		{`select count(*) from headgate.cells where key like 'headgate:shared:%'`, "2"},
		{`select headgate.set_max_keys_1(-1)`, "2"},
		{`select headgate.sweep(100)`, "0"},
		{`select allowed from headgate.take('token-bucket 1/1h burst 3', 'new')`, "f"}, // until nothing in it counts
		{`select allowed from headgate.take('token-bucket 2/1h burst 3', 'new')`, "t"},
	} {
		var got string
		err := conn.QueryRow(t.Context(), `select concat_ws(' ', `+columns(tt.sql)).Scan(&got)
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
			got = pg.Code + " " + pg.Message
		} else if err != nil {
			t.Errorf("%s: %v", tt.sql, err)
		}
		if got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.sql, got, tt.want)
		}
	}
}
