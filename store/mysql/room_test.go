package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// takeKeys takes one of each of n keys, and returns how many were answered by a cell of
// their own.
func takeKeys(tb testing.TB, s *mysql.Store, limit headgate.Limit, prefix string, n int) (own int) {
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

func sweep(tb testing.TB, s *mysql.Store) {
	tb.Helper()
	if _, err := s.Sweep(context.Background(), 1000); err != nil {
		tb.Fatal(err)
	}
}

func roomOf(tb testing.TB, s *mysql.Store, limit string) (r store.Room) {
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

// boundedURL returns a database and a store whose limits may have so many keys.
func boundedURL(tb testing.TB, most int) (url string, s *mysql.Store) {
	tb.Helper()
	url = dbtest.MariaDB(tb)
	openAt(tb, url).Close()
	return url, openWith(tb, url, most)
}

func TestNewKeysOfAFullLimitShareACell(t *testing.T) {
	t.Parallel()
	url, s := boundedURL(t, 20)
	other := openWith(t, url, 0)
	limit := headgate.MustParse("fixed-window 10/1h")
	name := limit.Name()
	if own := takeKeys(t, s, limit, "own", 20); own != 20 {
		t.Fatalf("%d keys have a cell of their own", own)
	}
	takeKeys(t, other, limit, "own", 20) // before it knows of any full limit
	sweep(t, s)
	if r := roomOf(t, other, name); !r.Sharing || r.Keys != 20 || r.Max != 20 || r.Generation != 1 || r.Since == 0 || r.CountedAt == 0 {
		t.Fatalf("%+v; want one that is full and shares", r)
	}
	l := headgate.New(other, nil)
	for i := range 12 {
		d, err := l.Allow(t.Context(), limit, fmt.Sprint("new", i))
		if err != nil || d.Allowed != (i < 10) {
			t.Errorf("new key %d: %+v, %v; want ten admitted, in common", i, d, err)
		}
	}
	if own := takeKeys(t, other, limit, "own", 20); own != 20 {
		t.Errorf("%d old keys kept their own cell", own)
	}
	if r := roomOf(t, other, name); r.Shared != 12 {
		t.Errorf("%d ops were answered by the shared cell", r.Shared)
	}
	var cells int
	if err := plain(t, url).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM headgate_cells WHERE limit_name = ?", name).Scan(&cells); err != nil || cells != 21 {
		t.Errorf("%d cells, %v", cells, err)
	}
}

// TestCallsShareToo fills a limit and goes through the procedures with a key that has no
// cell.
func TestCallsShareToo(t *testing.T) {
	t.Parallel()
	url, s := boundedURL(t, 5)
	db := plain(t, url)
	log, held, bucket := headgate.MustParse("sliding-log 3/1h history 1d"), headgate.MustParse("concurrency 3 ttl 1h"), headgate.MustParse("token-bucket 3/1h")
	for _, limit := range []headgate.Limit{log, held, bucket} {
		takeKeys(t, s, limit, "own", 5)
	}
	if _, err := db.ExecContext(t.Context(), "INSERT INTO headgate_zones (id, rate, window_seconds) VALUES (1, 3, 3600)"); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if _, err := db.ExecContext(t.Context(), "CALL check_velocity(1, ?)", fmt.Sprint("own", i)); err != nil {
			t.Fatal(err)
		}
	}
	sweep(t, s)
	first := func(db querier, statement string, args ...any) string {
		t.Helper()
		rows, err := db.QueryContext(t.Context(), statement, args...)
		if err != nil {
			return err.Error()
		}
		defer rows.Close()
		columns, _ := rows.Columns()
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.NullString)
		}
		if rows.Next() {
			if err := rows.Scan(values...); err != nil {
				return err.Error()
			}
		}
		if len(values) == 0 {
			return fmt.Sprint(rows.Err())
		}
		return values[0].(*sql.NullString).String
	}
	for i, want := range []string{"1", "1", "1", "0"} {
		for _, limit := range []headgate.Limit{log, bucket} {
			check := first(db, "CALL headgate_check(?, ?, 1)", limit.Name(), fmt.Sprint("new", i))
			if got := first(db, "CALL headgate_take(?, ?, 1)", limit.Name(), fmt.Sprint("new", i)); got != want || check != want {
				t.Errorf("%s: new key %d: check %s, take %s, want %s", limit, i, check, got, want)
			}
		}
		if got := first(db, "CALL check_velocity(1, ?)", fmt.Sprint("new", i)); got == want {
			t.Errorf("zone: new key %d: blocked %s", i, got)
		}
	}
	if got := first(db, "CALL headgate_take(?, 'own1', 1)", bucket.Name()); got != "1" {
		t.Errorf("a key with a cell: %s", got)
	}
	if got := first(db, "CALL headgate_reserve(?, 'new', 1, 7200, NULL, NULL)", bucket.Name()); got != "1" {
		t.Errorf("a reservation: %s", got)
	}
	var lease string
	for i := range 3 {
		var acquired string
		var x any
		if err := db.QueryRowContext(t.Context(), "CALL headgate_acquire(?, ?, 1)", held.Name(), fmt.Sprint("new", i)).Scan(&acquired, &lease, &x, &x, &x); err != nil || acquired != "1" {
			t.Errorf("acquire: %s, %v", acquired, err)
		}
	}
	for _, tt := range []struct{ statement, want string }{
		{"CALL headgate_acquire('" + held.Name() + "', 'another', 1)", "0"},
		{"CALL headgate_renew('" + held.Name() + "', 'new2', " + lease + ")", "1"},
		{"CALL headgate_release('" + held.Name() + "', 'new2', " + lease + ")", "1"},
		{"CALL headgate_acquire('" + held.Name() + "', 'another', 1)", "1"},
		{"CALL headgate_block('" + bucket.Name() + "', 'new', 0, NULL)", ""},
		{"CALL headgate_reset('" + bucket.Name() + "', 'new')", "0"},
	} {
		if got := first(db, tt.statement); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.statement, got, tt.want)
		}
	}
	for statement, says := range map[string]string{
		"CALL headgate_block('" + bucket.Name() + "', 'new', 60, NULL)":                      "a block needs a key of its own",
		"CALL headgate_take_once('id', '" + bucket.Name() + "', 'new', 1, 60)":               "a request with an id needs a k",
		"CALL headgate_settle('id', '" + bucket.Name() + "', 'new', 1)":                      "no request of this id is known",
		"CALL headgate_take('" + bucket.Name() + "', 'headgate:shared:1', 1)":                "key: begins with \"headgate:shared:\"",
		"CALL headgate_take_once('id', '" + bucket.Name() + "', 'headgate:shared:1', 1, 60)": "key: begins with \"headgate:shared:\"",
		"CALL check_velocity(1, 'headgate:shared:1')":                                        "bucket_key: begins with \"headgate:shared:\"",
	} {
		if got := first(db, statement); !strings.Contains(got, says) {
			t.Errorf("%s: %s, want %q", statement, got, says)
		}
	}
	// Within a transaction of the caller's.
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		if got := first(tx, "CALL headgate_take('token-bucket 3/1h', 'newest', 1)"); got != "0" {
			t.Errorf("in a transaction, %s: %s", level, got)
		}
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
	}
	var cells int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM headgate_cells WHERE cell_key LIKE 'new%'").Scan(&cells); err != nil || cells != 0 {
		t.Errorf("%d new keys have a cell, %v", cells, err)
	}
}

// querier is a pool or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
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
	for _, level := range []string{"READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			comeAndGo(t, level)
		})
	}
}

// traffic is what some callers do to the keys of one limit, until it ends.
type traffic struct {
	t      *testing.T
	ctx    context.Context
	url    string
	level  string // of isolation
	limit  headgate.Limit
	got    admissions
	begin  time.Time
	shared atomic.Int64
}

// key returns a key, with pauses in which a shared cell becomes empty.
func (c *traffic) key() string {
	if time.Since(c.begin)%(1500*time.Millisecond) > time.Second {
		time.Sleep(500 * time.Millisecond)
	}
	return fmt.Sprint("k", rand.IntN(120))
}

func comeAndGo(t *testing.T, level string) {
	const most = 10
	url, s := boundedURL(t, most)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // until enough was seen
	defer cancel()
	c := &traffic{t: t, ctx: ctx, url: url, level: level, limit: headgate.MustParse("token-bucket 10/s burst 2"), got: admissions{at: map[string][]int64{}}, begin: time.Now()}
	stores := []*mysql.Store{s, openWith(t, url, 0)}
	var wg sync.WaitGroup
	var periods atomic.Int64
	for w := range 4 {
		wg.Go(func() { c.batches(stores[w%2], 1+w%2) })
	}
	wg.Go(c.calls)
	wg.Go(c.calls)
	wg.Go(func() { c.inTx(stores[1]) })
	for _, s := range []*mysql.Store{s, openWith(t, url, 0)} { // the other one has to find out for itself
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Sweep(context.Background(), 100); err != nil && !errors.Is(err, store.ErrConflict) {
					t.Errorf("sweep: %v", err)
				}
				periods.Store(max(periods.Load(), roomOf(t, s, c.limit.Name()).Generation))
				if time.Since(c.begin) > 4*time.Second && periods.Load() >= 4 && c.shared.Load() >= 50 {
					cancel()
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	wg.Go(func() {
		quiet := slog.New(slog.DiscardHandler)
		for ctx.Err() == nil {
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
			setter, err := mysql.Open(context.Background(), url, &mysql.Config{MaxKeys: []int{5, 10, 20, 10, -1}[rand.IntN(5)], Logger: quiet})
			if err != nil {
				t.Error(err)
				return
			}
			sweep(t, setter)
			setter.Close()
		}
	})
	wg.Wait()
	admitted := 0
	for _, times := range c.got.at {
		admitted += len(times)
	}
	t.Logf("%d admitted, %d answers of shared cells, %d periods of sharing", admitted, c.shared.Load(), periods.Load())
	p := c.limit.Params()
	if over := c.got.over(&p); over > 0 {
		t.Errorf("a key has passed %.2f units more than its limit", over)
	}
	if c.shared.Load() < 50 || periods.Load() < 4 {
		t.Errorf("nothing was tested: %d answers of shared cells in %d periods", c.shared.Load(), periods.Load())
	}
}

// batches takes, in groups of so many ops.
func (c *traffic) batches(s *mysql.Store, group int) {
	p := c.limit.Params()
	for c.ctx.Err() == nil {
		ops := make([]law.Op, 1+rand.IntN(6))
		for i := range ops {
			ops[i] = law.Op{Verb: law.Take, Group: uint32(i / group), Cell: law.Cell{Limit: c.limit.Name(), Key: c.key()}, Params: p, Cost: p.Unit, Count: 1}
		}
		outs := make([]law.Outcome, len(ops))
		if err := s.Apply(context.Background(), ops, outs); err != nil {
			c.t.Errorf("apply: %v", err)
			return
		}
		c.heard(ops, outs)
	}
}

// heard notes what a batch has admitted.
func (c *traffic) heard(ops []law.Op, outs []law.Outcome) {
	for i := 0; i < len(ops); {
		j, admitted := law.GroupEnd(ops, i), true
		for k := i; k < j; k++ {
			if outs[k].Err != nil && !errors.Is(outs[k].Err, store.ErrConflict) {
				c.t.Errorf("take: %v", outs[k].Err)
			}
			admitted = admitted && outs[k].Granted == 1 && outs[k].Err == nil
			if outs[k].Shared {
				c.shared.Add(1)
			}
		}
		for ; i < j; i++ {
			if admitted {
				c.got.add(ops[i].Cell.Key, ops[i].DecidedAt(&outs[i]))
			}
		}
	}
}

// lost reports whether a statement, or its transaction, is to be repeated.
func lost(err error) bool {
	var my *driver.MySQLError
	return errors.As(err, &my) && (my.Number == 1213 || my.Number == 1205)
}

// calls takes by headgate_take.
func (c *traffic) calls() {
	db := plain(c.t, c.url)
	for c.ctx.Err() == nil {
		var allowed bool
		var at time.Time
		var x any
		k := c.key()
		err := db.QueryRowContext(context.Background(), "CALL headgate_take(?, ?, 1)", c.limit.Name(), k).Scan(&allowed, &x, &x, &x, &x, &at)
		switch {
		case lost(err):
		case err != nil:
			c.t.Errorf("headgate_take: %v", err)
			return
		case allowed:
			c.got.add(k, at.UnixMicro())
		}
	}
}

// inTx takes within transactions that were begun a while ago, and stay open.
func (c *traffic) inTx(s *mysql.Store) {
	db := pool(c.t, c.url, "transaction_isolation=%27"+c.level+"%27")
	if _, err := db.ExecContext(context.Background(), "DO 1"); err != nil {
		db = pool(c.t, c.url, "tx_isolation=%27"+c.level+"%27") // MariaDB before 11.1
	}
	p := c.limit.Params()
	for c.ctx.Err() == nil {
		tx, err := db.BeginTx(context.Background(), nil)
		if err != nil {
			c.t.Error(err)
			return
		}
		ops := []law.Op{{Verb: law.Take, Cell: law.Cell{Limit: c.limit.Name(), Key: c.key()}, Params: p, Cost: p.Unit, Count: 1}}
		outs := make([]law.Outcome, 1)
		var n int
		if err := tx.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM headgate_schema_version").Scan(&n); err != nil { // the snapshot is of now
			c.t.Error(err)
		}
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
		err = s.InTx(tx).Apply(context.Background(), ops, outs)
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
		if err != nil {
			_ = tx.Rollback()
		} else {
			err = tx.Commit()
		}
		switch {
		case errors.Is(err, store.ErrConflict) || lost(err):
		case err != nil:
			c.t.Errorf("in a transaction: %v", err)
			return
		default:
			c.heard(ops, outs)
		}
	}
}
