package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

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
	tier.Engines(t)
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
	begin  int64 // by the clock of the server
	shared atomic.Int64
}

// pause waits in the database.
func pause(t *testing.T, db *sql.DB, by time.Duration) {
	if _, err := db.ExecContext(context.Background(), fmt.Sprintf("DO SLEEP(%f)", by.Seconds())); err != nil {
		t.Error(err)
	}
}

// key returns a key, with pauses in which a shared cell becomes empty.
func (c *traffic) key(db *sql.DB) string {
	const cycle, rest = 1_500_000, 500_000
	if at := (serverClock(c.t, db) - c.begin) % cycle; at > cycle-rest {
		pause(c.t, db, rest*time.Microsecond)
	}
	return fmt.Sprint("k", rand.IntN(120))
}

func comeAndGo(t *testing.T, level string) {
	const most = 10
	url, s := boundedURL(t, most)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience) // until enough was seen
	defer cancel()
	c := &traffic{
		t: t, ctx: ctx, url: url, level: level, limit: headgate.MustParse("token-bucket 10/s burst 2"),
		got: admissions{at: map[string][]int64{}},
	}
	db := plain(t, url)
	c.begin = serverClock(t, db)
	stores := []*mysql.Store{s, openWith(t, url, 0)}
	var wg sync.WaitGroup
	var periods atomic.Int64
	for w := range 4 {
		wg.Go(func() { c.batches(db, stores[w%2], 1+w%2) })
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
				if periods.Load() >= 4 && c.shared.Load() >= 50 {
					cancel()
				}
				pause(t, db, 20*time.Millisecond)
			}
		})
	}
	wg.Go(func() {
		quiet := slog.New(slog.DiscardHandler)
		for ctx.Err() == nil {
			pause(t, db, time.Duration(rand.IntN(1000))*time.Millisecond)
			setter, err := mysql.Open(context.Background(), url,
				&mysql.Config{MaxKeys: []int{5, 10, 20, 10, -1}[rand.IntN(5)], Logger: quiet})
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
func (c *traffic) batches(db *sql.DB, s *mysql.Store, group int) {
	p := c.limit.Params()
	for c.ctx.Err() == nil {
		ops := make([]law.Op, 1+rand.IntN(6))
		for i := range ops {
			ops[i] = law.Op{
				Verb: law.Take, Group: uint32(i / group),
				Cell: law.Cell{Limit: c.limit.Name(), Key: c.key(db)}, Params: p, Cost: p.Unit, Count: 1,
			}
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
		k := c.key(db)
		err := db.QueryRowContext(context.Background(), "CALL headgate_take(?, ?, 1)", c.limit.Name(), k).Scan(&allowed,
			&x, &x, &x, &x, &at)
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
	if c.level != "READ-COMMITTED" && snapshots(c.t, db) == "ON" { // these would be refused
		db = pool(c.t, c.url, "transaction_isolation=%27"+c.level+"%27", "innodb_snapshot_isolation=OFF")
	}
	p := c.limit.Params()
	for c.ctx.Err() == nil {
		tx, err := db.BeginTx(context.Background(), nil)
		if err != nil {
			c.t.Error(err)
			return
		}
		ops := []law.Op{{
			Verb: law.Take, Cell: law.Cell{Limit: c.limit.Name(), Key: c.key(db)}, Params: p,
			Cost: p.Unit, Count: 1,
		}}
		outs := make([]law.Outcome, 1)
		var n int
		// the snapshot is of now
		if err := tx.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM headgate_schema_version").Scan(
			&n); err != nil {
			c.t.Error(err)
		}
		pause(c.t, db, time.Duration(rand.IntN(60))*time.Millisecond)
		err = s.InTx(tx).Apply(context.Background(), ops, outs)
		pause(c.t, db, time.Duration(rand.IntN(30))*time.Millisecond)
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
