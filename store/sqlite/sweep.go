package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/keycount"
)

// sweepChunk is how many cells one transaction of a sweep looks at, so that callers wait for one transaction and not
// for the whole sweep.
const sweepChunk = 2000

// afterLimits is greater than the name of any limit.
const afterLimits = "\xff"

// Sweep implements store.Store.
func (s *Store) Sweep(ctx context.Context, max int) (removed int, err error) {
	remove := func(ctx context.Context, stmt *sql.Stmt, args ...any) error {
		res, err := stmt.ExecContext(ctx, args...)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		removed += int(n)
		return err
	}
	err = s.transact(ctx, "sweep", func(ctx context.Context) error {
		if err := remove(ctx, s.stmts.sweepEntries, s.clock(), max); err != nil {
			return err
		}
		if err := remove(ctx, s.stmts.sweepRequests, s.clock(), max-removed); err != nil {
			return err
		}
		_, err := s.stmts.sweepResets.ExecContext(ctx, s.clock())
		return err
	})
	for from, to := (law.Cell{}), (law.Cell{}); err == nil && removed < max && from.Limit != afterLimits; from = to {
		err = s.transact(ctx, "sweep", func(ctx context.Context) error {
			err := s.stmts.chunkEnd.QueryRowContext(ctx, from.Limit, from.Key, sweepChunk-1).Scan(&to.Limit, &to.Key)
			if errors.Is(err, sql.ErrNoRows) {
				to = law.Cell{Limit: afterLimits}
			} else if err != nil {
				return err
			}
			return remove(ctx, s.stmts.sweepCells, from.Limit, from.Key, to.Limit, to.Key, s.clock(), max-removed)
		})
	}
	if err == nil {
		s.keyCounts.CountIfDue(ctx, s.countKeys)
	}
	return removed, err
}

// KeyCounts implements store.Inspector. It returns the counts that this process made last, after a sweep.
func (s *Store) KeyCounts(ctx context.Context) ([]store.KeyCount, error) {
	_, release, err := s.acquireReader(ctx)
	if err != nil {
		return nil, err
	}
	release()
	return s.keyCounts.Counts()
}

// countKeys counts the keys of the limits with the most keys.
func (s *Store) countKeys(ctx context.Context) ([]store.KeyCount, error) {
	db, release, err := s.acquireReader(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return s.countKeysIn(ctx, db)
}

func (s *Store) countKeysIn(ctx context.Context, db queryer) ([]store.KeyCount, error) {
	now := s.clock()
	counts, err := readAll(ctx, db, func(c *store.KeyCount) []any {
		c.At = now
		return []any{&c.Limit, &c.Keys}
	}, "select limit_name, count(*) from cells group by limit_name order by 2 desc, 1 limit ?", keycount.MaxLimits)
	return counts, classify("count keys", err)
}
