package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
)

// bounded returns a store whose limits may have so many keys, in a database of its own.
func bounded(tb testing.TB, most int) (s *postgres.Store, dsn string) {
	tb.Helper()
	dsn = dbtest.Postgres(tb)
	openAt(tb, dsn).Close()
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
			ops[i] = law.Op{Verb: law.Take, Group: uint32(i), Cell: law.Cell{Limit: limit.Name(), Key: fmt.Sprint(prefix, from+i)}, Params: limit.Params(), Cost: limit.Params().Unit, Count: 1}
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
	limit := headgate.MustParse("fixed-window 10/1h")
	if own := fillKeys(t, s, limit, "own", 20); own != 20 {
		t.Fatalf("%d keys have a cell of their own", own)
	}
	sweep(t, s)
	if r := roomOf(t, other, limit); !r.Sharing || r.Keys != 20 || r.Max != 20 || r.Generation != 1 || r.Since == 0 || r.CountedAt == 0 {
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
	if err := connect(t, dsn).QueryRow(t.Context(), `select count(*) from headgate.cells where limit_name = $1`, limit.Name()).Scan(&cells); err != nil || cells != 21 {
		t.Errorf("%d cells, %v", cells, err)
	}
}

// TestAFloodIsAnsweredAndBounded lets two processes, and a third one from SQL, ask for
// five times as many keys as the limit may have.
func TestAFloodIsAnsweredAndBounded(t *testing.T) {
	t.Parallel()
	const most, keys = 20_000, 100_000
	s, dsn := bounded(t, most)
	other := openWith(t, dsn, 0)
	limit := headgate.MustParse("fixed-window 3/365d")
	var wg sync.WaitGroup
	var own atomic.Int64
	begin := time.Now()
	for w := range 4 {
		wg.Go(func() {
			store := []*postgres.Store{s, other}[w%2]
			own.Add(int64(fillKeys(t, store, limit, fmt.Sprint(w, "-"), keys/4)))
		})
	}
	wg.Wait()
	took := time.Since(begin)
	r := roomOf(t, s, limit)
	t.Logf("%d keys in %v, %d have cells of their own; %+v", keys, took, own.Load(), r)
	if !r.Sharing || own.Load() < most || own.Load() > 2*most {
		t.Errorf("%d keys have cells of their own, %+v; want %d, or somewhat more", own.Load(), r, most)
	}
	conn := connect(t, dsn)
	var cells int64
	if err := conn.QueryRow(t.Context(), `select count(*) from headgate.cells where limit_name = $1`, limit.Name()).Scan(&cells); err != nil || cells != own.Load()+1 {
		t.Errorf("%d cells, %v; want one more than %d", cells, err, own.Load())
	}
	var allowed bool
	if err := conn.QueryRow(t.Context(), `select allowed from headgate.take($1, 'from SQL')`, limit.Name()).Scan(&allowed); err != nil || allowed {
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
		{`select headgate.set_max_keys(0)`, "22023 p_max: is 0; it must be above 0, or below 0 for any number of keys"},
		{`select headgate.set_max_keys(2) is null`, "t"},
		{`select headgate.set_max_keys(2)`, "2"},
		{`select allowed from headgate.take('token-bucket 1/1h burst 3', 'own')`, "t"},
		{`select allowed from headgate.take('token-bucket 1/1h burst 3', 'own too')`, "t"},
		{`select acquired from headgate.acquire('concurrency 2 ttl 1h', 'own')`, "t"},
		{`select acquired from headgate.acquire('concurrency 2 ttl 1h', 'own too')`, "t"},
		{`select headgate.sweep(100)`, "0"},
		{`select headgate.sweep(100)`, "0"}, // now nobody is left who has not seen the maximum
		{`select keys, max_keys, sharing, generation from headgate.fullness() where limit_name like 'token%'`, "2 2 t 1"},
		{`select allowed, remaining from headgate.take('token-bucket 1/1h burst 3', 'new', 2)`, "t 1"},
		{`select allowed, remaining from headgate.check('token-bucket 1/1h burst 3', 'newer', 2)`, "f 1"},
		{`select allowed, remaining from headgate.take('token-bucket 1/1h burst 3', 'own', 2)`, "t 0"},
		{`select allowed from headgate.take_once('id', 'token-bucket 1/1h burst 3', 'new')`, `53400 limit: "token-bucket 1/1h burst 3" has as many keys as it may, and this one is not among them; a request with an id needs a key of its own`},
		{`select replayed from headgate.take_once('id', 'token-bucket 1/1h burst 3', 'own too')`, "f"},
		{`select replayed from headgate.take_once('id', 'token-bucket 1/1h burst 3', 'own too')`, "t"},
		{`select headgate.block('token-bucket 1/1h burst 3', 'new', '1 hour')`, `53400 limit: "token-bucket 1/1h burst 3" has as many keys as it may, and this one is not among them; a block needs a key of its own`},
		{`select headgate.block('token-bucket 1/1h burst 3', 'new', '0') is null`, "t"},
		{`select headgate.reset('token-bucket 1/1h burst 3', 'new')`, "f"},
		{`select headgate.settle('x', 'token-bucket 1/1h burst 3', 'new', 1)`, `22023 id: "x": no request of this id is known`},
		{`select allowed, delay > '0' from headgate.reserve('token-bucket 1/1h burst 3', 'newest', 2, '5 hours')`, "t t"},
		{`select allowed from headgate.take('token-bucket 1/1h burst 3', 'headgate:shared:1')`, `22023 key: begins with "headgate:shared:", which is kept for cells that keys share`},
		{`select acquired from headgate.acquire('concurrency 2 ttl 1h', 'new')`, "t"},
		{`select headgate.renew('concurrency 2 ttl 1h', 'new', max(number)) from headgate.entries`, "t"},
		{`select headgate.release('concurrency 2 ttl 1h', 'new', max(number)) from headgate.entries`, "t"},
		{`select headgate.release('concurrency 2 ttl 1h', 'new', max(number)) from headgate.entries`, "f"},
		{`select count(*) from headgate.cells`, "6"},
		{`select count(*) from headgate.cells where key like 'headgate:shared:%'`, "2"},
		{`select headgate.set_max_keys(-1)`, "2"},
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

// admissions are the times at which each key was admitted.
type admissions struct {
	mu sync.Mutex
	at map[string][]int64
}

func (a *admissions) add(key string, at int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at[key] = append(a.at[key], at)
}

// over returns how many units some key has passed beyond a token bucket, at most.
func (a *admissions) over(p *law.Params) (worst float64) {
	for _, times := range a.at {
		slices.Sort(times)
		level, last := 0.0, int64(0)
		for _, at := range times {
			level = max(0, level-float64(at-last)*float64(p.Drain)/float64(p.Step)) + float64(p.Unit)
			last = at
			worst = max(worst, level-float64(p.Capacity+p.Drain))
		}
	}
	return worst / float64(p.Unit)
}

// TestNoKeyPassesMoreThanItsLimitWhileSharingComesAndGoes lets batches, calls from SQL
// and transactions of callers take from more keys than the limit may have, while two
// processes count all the time and the maximum is changed, removed and set again.
func TestNoKeyPassesMoreThanItsLimitWhileSharingComesAndGoes(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read%20committed", "repeatable%20read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			comeAndGo(t, level)
		})
	}
}

func comeAndGo(t *testing.T, level string) {
	const most, keys = 10, 120
	_, dsn := bounded(t, most)
	url := dsn + "?default_transaction_isolation=" + level
	limit := headgate.MustParse("token-bucket 10/s burst 2")
	p := limit.Params()
	got := &admissions{at: map[string][]int64{}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // until enough was seen
	defer cancel()
	begin := time.Now()
	stores := []*postgres.Store{openWith(t, url, most), openWith(t, url, 0)}
	var wg sync.WaitGroup
	var shared, periods atomic.Int64
	key := func() string { // with pauses, in which a shared cell becomes empty
		if time.Since(begin)%(1500*time.Millisecond) > time.Second {
			time.Sleep(500 * time.Millisecond)
		}
		return fmt.Sprint("k", rand.IntN(keys))
	}
	for w := range 4 {
		wg.Go(func() { // batches, single ones and groups among them
			for ctx.Err() == nil {
				ops := make([]law.Op, 1+rand.IntN(6))
				for i := range ops {
					ops[i] = law.Op{Verb: law.Take, Group: uint32(i / (1 + w%2)), Cell: law.Cell{Limit: limit.Name(), Key: key()}, Params: p, Cost: p.Unit, Count: 1}
				}
				outs := make([]law.Outcome, len(ops))
				if err := stores[w%2].Apply(context.Background(), ops, outs); err != nil {
					t.Errorf("apply: %v", err)
					return
				}
				got.heard(t, ops, outs, &shared)
			}
		})
	}
	for range 2 {
		wg.Go(func() { callFromSQL(ctx, t, url, limit, key, got) })
	}
	wg.Go(func() { chargeInTx(ctx, t, url, stores[0], limit, key, got) })
	for _, s := range stores {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Sweep(context.Background(), 100); err != nil && !errors.Is(err, store.ErrConflict) {
					t.Errorf("sweep: %v", err)
				}
				r := roomOf(t, s, limit)
				periods.Store(max(periods.Load(), r.Generation))
				if time.Since(begin) > 4*time.Second && periods.Load() >= 3 && shared.Load() >= 50 {
					cancel()
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	wg.Go(func() {
		conn := connect(t, dsn)
		for ctx.Err() == nil {
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
			if _, err := conn.Exec(context.Background(), `select headgate.set_max_keys($1)`, []int{5, 10, 20, 10, -1}[rand.IntN(5)]); err != nil {
				t.Errorf("set: %v", err)
			}
		}
	})
	wg.Wait()
	admitted := 0
	for _, times := range got.at {
		admitted += len(times)
	}
	t.Logf("%d admitted, %d answers of shared cells, %d periods of sharing", admitted, shared.Load(), periods.Load())
	if over := got.over(&p); over > 0 {
		t.Errorf("a key has passed %.2f units more than its limit", over)
	}
	if shared.Load() < 50 || periods.Load() < 2 {
		t.Errorf("nothing was tested: %d answers of shared cells in %d periods", shared.Load(), periods.Load())
	}
}

// heard notes what a batch has admitted.
func (a *admissions) heard(t *testing.T, ops []law.Op, outs []law.Outcome, shared *atomic.Int64) {
	for i := 0; i < len(ops); {
		j, admitted := law.GroupEnd(ops, i), true
		for k := i; k < j; k++ {
			if outs[k].Err != nil {
				t.Errorf("take: %v", outs[k].Err)
			}
			admitted = admitted && outs[k].Granted == 1 && outs[k].Err == nil
			if outs[k].Shared {
				shared.Add(1)
			}
		}
		for ; i < j; i++ {
			if admitted {
				a.add(ops[i].Cell.Key, ops[i].DecidedAt(&outs[i]))
			}
		}
	}
}

// conflict reports whether a statement is to be repeated.
func conflict(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}

func callFromSQL(ctx context.Context, t *testing.T, url string, limit headgate.Limit, key func() string, got *admissions) {
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(context.Background())
	for ctx.Err() == nil {
		k := key()
		var allowed bool
		var at time.Time
		err := conn.QueryRow(context.Background(), `select allowed, at from headgate.take($1, $2)`, limit.Name(), k).Scan(&allowed, &at)
		switch {
		case conflict(err):
		case err != nil:
			t.Errorf("headgate.take: %v", err)
			return
		case allowed:
			got.add(k, at.UnixMicro())
		}
	}
}

func chargeInTx(ctx context.Context, t *testing.T, url string, s *postgres.Store, limit headgate.Limit, key func() string, got *admissions) {
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(context.Background())
	p := limit.Params()
	for ctx.Err() == nil {
		op := law.Op{Verb: law.Take, Cell: law.Cell{Limit: limit.Name(), Key: key()}, Params: p, Cost: p.Unit, Count: 1}
		outs := make([]law.Outcome, 1)
		err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(context.Background(), "select 1"); err != nil { // at a stricter level the snapshot is of now
				return err
			}
			time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
			err := s.InTx(tx).Apply(context.Background(), []law.Op{op}, outs)
			time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
			return err
		})
		switch {
		case errors.Is(err, store.ErrConflict) || conflict(err):
		case err != nil:
			t.Errorf("in a transaction: %v", err)
			return
		case outs[0].Err == nil && outs[0].Granted == 1:
			got.add(op.Cell.Key, op.DecidedAt(&outs[0]))
		}
	}
}
