package postgres

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/keycount"
)

// sweepRows is how many rows of each table a sweep looks at for each that it may
// remove: so that a table of which nothing is dead costs the next decisions
// to nothing, however large it is.
const sweepRows = 2

// sweeper remembers where a sweep stopped. Others who sweep the same tables have
// places of their own.
type sweeper struct {
	mu         sync.Mutex
	number     int64
	limit, key string
	pass       pass
}

// pass is a way through both tables, from where the sweeps stood to there again.
type pass struct {
	entries, cells int // how often the end of the table has to come; both 0: it has not begun
	ended          int64
}

// note notes a sweep that has begun where w stands and ended at another place: 0 and
// an empty text, at the end of a table.
func (p *pass) note(w *sweeper, number int64, limit string) {
	if p.entries <= 0 && p.cells <= 0 {
		p.entries, p.cells = 1, 1
		if w.number != 0 { // it begins in the middle
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
		p.ended++
	}
}

// passes returns how often all rows were gone through.
func (s *Store) passes() int64 {
	s.sweeper.mu.Lock()
	defer s.sweeper.mu.Unlock()
	return s.sweeper.pass.ended
}

// Sweep implements store.Store. It never waits for a lock, looks at a bounded
// part of the tables, and goes on from there the next time. Now and then it counts the
// keys of all limits.
func (s *Store) Sweep(ctx context.Context, max int) (removed int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	if max <= 0 {
		return 0, nil
	}
	if removed, err = s.sweepPart(ctx, max); err == nil && s.pool != nil {
		s.keys.Count(ctx, s.countKeys)
	}
	return removed, err
}

// sweepPart removes the dead of the part that is next.
func (s *Store) sweepPart(ctx context.Context, max int) (removed int, err error) {
	w := s.sweeper
	w.mu.Lock()
	defer w.mu.Unlock()
	err = s.retry(ctx, func() error {
		var number int64
		var limit, key string
		err := s.db.QueryRow(ctx, s.def.statement(`select * from headgate_internal.sweep_from_N($1, $2, $3, $4, $5)`), max,
			sweepRows*max, w.number, w.limit, w.key).
			Scan(&removed, &number, &limit, &key)
		if err == nil && removed < max { // else what was looked at may hold more
			w.pass.note(w, number, limit)
			w.number, w.limit, w.key = number, limit, key
		}
		return err
	})
	if err != nil {
		return 0, classify("sweep", err)
	}
	return removed, nil
}

// KeyCounts implements store.Inspector: what this process has counted after a sweep.
func (s *Store) KeyCounts(ctx context.Context) ([]store.KeyCount, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.keys.Counts()
}

func (s *Store) countKeys(ctx context.Context) ([]store.KeyCount, error) {
	rows, err := s.db.Query(ctx, `select c.limit_name, count(*), 0::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint
		from headgate.cells c group by c.limit_name order by 2 desc, 1 limit $1`, keycount.Most)
	if err != nil {
		return nil, classifyRead("count keys", err)
	}
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[store.KeyCount])
	if err != nil {
		return nil, classifyRead("count keys", err)
	}
	return counts, nil
}
