package postgres

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/keycount"
)

// rowsPerRemoval is how many entries, and how many cells, a sweep reads for each row that it may remove. So a sweep of
// a large table without dead rows does not slow decisions down.
const rowsPerRemoval = 2

// sweeper has the place where the last sweep by a Store stopped. Each Store has a place of its own.
type sweeper struct {
	mu         sync.Mutex
	number     int64  // of an entry
	limit, key string // of a cell
	passes     passCounter
}

// passCounter counts the passes of sweeps through entries and cells. A pass visits all rows of both, from any place.
type passCounter struct {
	entries, cells int // how often sweeps still have to reach the end of each table; none above 0: no pass has begun
	completed      int64
}

// addSweep counts a sweep from the place of w to a new place, a number in entries and a limit in cells. A number of 0
// means that the sweep has reached the end of entries; an empty limit, the end of cells.
func (p *passCounter) addSweep(w *sweeper, number int64, limit string) {
	if p.entries <= 0 && p.cells <= 0 {
		p.entries, p.cells = 1, 1
		if w.number != 0 { // the pass begins in the middle
			p.entries = 2
		}
		if w.limit != "" {
			p.cells = 2
		}
	}
	if number == 0 {
		p.entries--
	}
	if limit == "" {
		p.cells--
	}
	if p.entries <= 0 && p.cells <= 0 {
		p.completed++
	}
}

// passes returns how many passes sweeps have completed.
func (s *Store) passes() int64 {
	s.sweeper.mu.Lock()
	defer s.sweeper.mu.Unlock()
	return s.sweeper.passes.completed
}

// Sweep implements store.Store. It never waits for the lock of a row, and reads a bounded part of the tables. The next
// call goes on from there. Now and then it counts the keys of the limits, see KeyCounts.
func (s *Store) Sweep(ctx context.Context, max int) (removed int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	if max <= 0 {
		return 0, nil
	}
	if removed, err = s.sweepPart(ctx, max); err == nil && s.pool != nil {
		s.keyCounts.CountIfDue(ctx, s.countKeys)
	}
	return removed, err
}

// sweepPart removes up to max dead rows of the next part of the tables. If it removes max, the part comes again.
func (s *Store) sweepPart(ctx context.Context, max int) (removed int, err error) {
	w := s.sweeper
	w.mu.Lock()
	defer w.mu.Unlock()
	err = s.retry(ctx, func() error {
		var number int64
		var limit, key string
		err := s.db.QueryRow(ctx, s.def.statement(`select * from headgate_internal.sweep_from_N($1, $2, $3, $4, $5)`), max,
			rowsPerRemoval*max, w.number, w.limit, w.key).
			Scan(&removed, &number, &limit, &key)
		if err == nil && removed < max { // else there may be more dead rows in the same part
			w.passes.addSweep(w, number, limit)
			w.number, w.limit, w.key = number, limit, key
		}
		return err
	})
	if err != nil {
		return 0, classify("sweep", err)
	}
	return removed, nil
}

// KeyCounts implements store.Inspector. It returns the last count that a Sweep of this process has made.
func (s *Store) KeyCounts(ctx context.Context) ([]store.KeyCount, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.keyCounts.Counts()
}

// countKeys counts the keys of the limits with the most keys.
func (s *Store) countKeys(ctx context.Context) ([]store.KeyCount, error) {
	rows, err := s.db.Query(ctx, `select c.limit_name, count(*), 0::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint
		from headgate.cells c group by c.limit_name order by 2 desc, 1 limit $1`, keycount.MaxLimits)
	if err != nil {
		return nil, classifyRead("count keys", err)
	}
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[store.KeyCount])
	if err != nil {
		return nil, classifyRead("count keys", err)
	}
	return counts, nil
}
