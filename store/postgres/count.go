package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/overflow"
)

// counter counts the keys of limits that have a maximum: at each Sweep, and when many
// charges of cells that seem new have been seen. It lets limits begin and end to share
// a cell. How that is exact is said in sql/012_rooms.sql.
type counter struct {
	shared overflow.Counts
	every  atomic.Int64  // after how many of those charges to count; 0: no limit has a maximum
	seen   atomic.Int64  // of them, since the last count
	asking atomic.Bool   // a count in the background is under way
	turn   chan struct{} // holds one while somebody counts
	warned atomic.Int64  // of this maximum, which is not that of the configuration

	mu    sync.Mutex
	own   map[string]ownMax // of single limits, by name
	since time.Time         // own has what was seen from then on
}

// ownMax is how many keys a limit may have by itself.
type ownMax struct {
	most    int64
	written bool // it is in the store
}

// What limits say of their own is written again after a while, since a count forgets
// limits without keys. Names of limits may come from outside, so only so many are kept.
const (
	ownFor  = 10 * time.Minute
	mostOwn = 10_000
)

func newCounter() *counter { return &counter{turn: make(chan struct{}, 1)} }

// often returns every for a maximum: a fiftieth of it.
func often(most int64) int64 { return max(1, most/50) }

// saw counts when there were many charges of cells that seem new.
func (s *Store) saw(ops []law.Op, outs []law.Outcome) {
	every, seen := s.counter.every.Load(), int64(0)
	for i := range ops {
		op, out := &ops[i], &outs[i]
		if op.Params.MaxKeys > 0 && s.counter.note(op) {
			every = s.counter.every.Load()
			seen = every // so that it is soon in the store
		}
		if every > 0 && op.Verb == law.Take && out.Granted > 0 && !out.Shared && out.Used == op.Cost*out.Granted {
			seen++
		}
	}
	if seen > 0 && s.counter.seen.Add(seen) >= every {
		s.counter.seen.Store(0)
		s.countSoon()
	}
}

// note notes the maximum that a limit has of its own, and reports whether it was not
// known.
func (c *counter) note(op *law.Op) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own[op.Cell.Limit].most == op.Params.MaxKeys && time.Since(c.since) < ownFor {
		return false
	}
	if len(c.own) == 0 || len(c.own) >= mostOwn || time.Since(c.since) >= ownFor {
		c.own, c.since = map[string]ownMax{}, time.Now() //nolint:forbidigo // a pause, not a decision
	}
	c.own[op.Cell.Limit] = ownMax{most: op.Params.MaxKeys}
	if every := c.every.Load(); every == 0 || often(op.Params.MaxKeys) < every {
		c.every.Store(often(op.Params.MaxKeys))
	}
	return true
}

// unwritten returns the maxima that are not in the store yet.
func (c *counter) unwritten() (limits []string, most []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, own := range c.own {
		if !own.written {
			limits, most = append(limits, name), append(most, own.most)
		}
	}
	return limits, most
}

// wrote notes that maxima are in the store.
func (c *counter) wrote(limits []string, most []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, name := range limits {
		if own := c.own[name]; own.most == most[i] {
			c.own[name] = ownMax{most[i], true}
		}
	}
}

// countSoon counts in the background, unless that is under way.
func (s *Store) countSoon() {
	if s.pool == nil || s.counter.asking.Swap(true) {
		return
	}
	go func() {
		defer s.counter.asking.Store(false)
		ctx, cancel := context.WithTimeout(s.life, time.Minute)
		defer cancel()
		if err := s.count(ctx); err != nil && ctx.Err() == nil {
			s.log.Debug("the keys of limits could not be counted", "error", err) // the next sweep says it louder
		}
	}()
}

// full is a limit that is to begin or to end to share a cell.
type full struct {
	limit      string
	keys, most int64
	begin      bool
}

// count counts keys, and lets limits begin and end to share a cell.
func (s *Store) count(ctx context.Context) error {
	select {
	case s.counter.turn <- struct{}{}:
		defer func() { <-s.counter.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if limits, most := s.counter.unwritten(); len(limits) > 0 {
		err := s.atReadCommitted(ctx, s.def.statement("select headgate.set_own_max_keys_N($1, $2)"), limits, most)
		switch {
		case err == nil:
			s.counter.wrote(limits, most)
		case inTheWay(err): // the next count tries again
			s.log.Debug("transactions that have made keys are in the way of what limits say they may have")
		default:
			return classify("set how many keys limits may have", err)
		}
	}
	var list []full
	err := s.retry(ctx, func() (err error) { list, err = s.countKeys(ctx); return err })
	if err != nil {
		return classify("count keys", err)
	}
	for _, f := range list {
		if err := s.turnTo(ctx, &f); err != nil {
			return classify("let a limit begin or end to share a cell", err)
		}
	}
	return nil
}

// countKeys counts, and returns the limits that are to begin or to end to share.
func (s *Store) countKeys(ctx context.Context) (list []full, err error) {
	var most, smallest *int64
	err = s.readCommitted(ctx, func(tx pgx.Tx) error {
		list = nil
		rows, err := tx.Query(ctx, s.def.statement(
			"select limit_name, keys, max_keys, action from headgate.count_keys_N()"))
		if err != nil {
			return err
		}
		var f full
		var action int
		_, err = pgx.ForEachRow(rows, []any{&f.limit, &f.keys, &f.most, &action}, func() error {
			if f.begin = action > 0; action != 0 {
				list = append(list, f)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return s.readMaxima(ctx, tx, &most, &smallest)
	})
	if err == nil {
		s.heed(most, smallest)
	}
	return list, err
}

// readMaxima reads how many keys limits may have: those that say nothing of their own,
// and the one that may have the fewest. They are nil if no limit has a maximum.
func (s *Store) readMaxima(ctx context.Context, db querier, most, smallest **int64) error {
	return db.QueryRow(ctx, s.def.statement("select max_keys, smallest from headgate.maxima_N()")).Scan(most, smallest)
}

// heed counts as often as the maxima ask for, and says once that the one for all limits
// is not that of the configuration.
func (s *Store) heed(most, smallest *int64) {
	every := int64(0)
	if smallest != nil {
		every = often(*smallest)
	}
	s.counter.every.Store(every)
	mine, now := int64(max(0, s.cfg.MaxKeys)), int64(0)
	if most != nil {
		now = *most
	}
	if s.cfg.MaxKeys == 0 || now == mine {
		s.counter.warned.Store(mine)
	} else if s.counter.warned.Swap(now) != now {
		s.log.Warn("another process has set how many keys a limit may have, for all", "here", mine, "now", now)
	}
}

// turnTo lets one limit begin or end to share. It gives up without an error where
// transactions that make cells of the limit stay open: the next count tries again.
func (s *Store) turnTo(ctx context.Context, f *full) error {
	statement := s.def.statement("select headgate.end_sharing_N($1)")
	if f.begin {
		statement = s.def.statement("select headgate.begin_sharing_N($1)")
	}
	var done bool
	err := s.atReadCommitted(ctx, s.def.statement("select headgate.close_room_N($1)"), f.limit)
	if err == nil {
		err = s.readCommitted(ctx, func(tx pgx.Tx) error { return tx.QueryRow(ctx, statement, f.limit).Scan(&done) })
	}
	switch {
	case inTheWay(err):
		s.log.Debug("transactions that have made keys are in the way of a count", "limit", f.limit)
		return nil
	case err != nil:
		return err
	case done && f.begin:
		s.log.Warn("a limit has as many keys as it may: new ones share one cell", "limit", f.limit, "keys", f.keys,
			"max", f.most)
	case done:
		s.log.Info("a limit has room for new keys again", "limit", f.limit, "keys", f.keys)
	}
	return nil
}

// inTheWay reports whether an error says that a transaction holds what is to be locked, and that
// the statement did not wait, or has waited for as long as its setting lock_timeout allows.
func inTheWay(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "55P03"
}

// readCommitted runs a transaction at this level, whatever that of the sessions is: at
// a stricter one a count would be in the way of all who make keys.
func (s *Store) readCommitted(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, do)
}

func (s *Store) atReadCommitted(ctx context.Context, statement string, args ...any) error {
	return s.readCommitted(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, statement, args...); return err })
}

// declare writes the maximum of the configuration into the store, so that it counts for
// all processes, and begins to count if there is one.
func (s *Store) declare(ctx context.Context) error {
	var was, most, smallest *int64
	if s.cfg.MaxKeys != 0 && s.pool != nil {
		err := s.retry(ctx, func() error {
			return s.readCommitted(ctx, func(tx pgx.Tx) error {
				return tx.QueryRow(ctx, s.def.statement("select headgate.set_max_keys_N($1)"), s.cfg.MaxKeys).Scan(&was)
			})
		})
		if err != nil {
			return classify("set how many keys a limit may have", err)
		}
		if mine := int64(max(0, s.cfg.MaxKeys)); was != nil && *was != mine {
			s.log.Warn("the number of keys that a limit may have was changed, for all processes", "before", *was,
				"now", mine)
		}
	}
	if err := s.retry(ctx, func() error { return s.readMaxima(ctx, s.db, &most, &smallest) }); err != nil {
		return classifyRead("read how many keys a limit may have", err)
	}
	if s.heed(most, smallest); smallest != nil {
		s.countSoon()
	}
	return nil
}

// Fullness implements store.KeyCounter. Limits that have less than a hundredth of
// their keys may be left out. It is one round trip.
func (s *Store) Fullness(ctx context.Context) ([]store.Room, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	shared := s.counter.shared.All()
	return list(ctx, s, "read how full limits are", func(row pgx.CollectableRow) (r store.Room, err error) {
		var counted, since *time.Time
		err = row.Scan(&r.Limit, &r.Keys, &counted, &r.Max, &r.Sharing, &r.Generation, &since)
		if counted != nil {
			r.CountedAt = counted.UnixMicro()
		}
		if since != nil {
			r.Since = since.UnixMicro()
		}
		r.Shared = shared[r.Limit]
		return r, err
	}, s.def.statement("select limit_name, keys, counted_at, max_keys, sharing, generation, sharing_since from "+
		"headgate.fullness_N()"))
}
