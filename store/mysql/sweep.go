package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/keycount"
)

const (
	// sweepPage is how many rows a sweep reads at once without locks.
	sweepPage = 5000
	// sweepChunk is how many cells one transaction locks to remove rows. A decision waits for a chunk at most.
	sweepChunk = 500
	// sweepAtOnce is how many chunks of cells are removed concurrently, over at most a quarter of the connections:
	// during a flood of new keys, one connection among many gets too little of the server's time to keep pace.
	sweepAtOnce = 4
)

// Sweep implements store.Store. It removes entries that no longer count and are in no history, then receipts that have
// expired, then cells that could refuse nobody. It never waits for the lock of a cell. Each call continues where the
// last one stopped. Now and then it counts the keys of the limits, see KeyCounts.
func (s *Store) Sweep(ctx context.Context, max int) (removed int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	removed, err = s.sweep(ctx, max)
	if err == nil && s.tx == nil {
		s.keyCounts.CountIfDue(ctx, s.countKeys)
	}
	return removed, err
}

// KeyCounts implements store.Inspector. It returns the counts that this process made after a sweep.
func (s *Store) KeyCounts(ctx context.Context) ([]store.KeyCount, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.keyCounts.Counts()
}

// countKeys counts the keys of the limits with the most keys.
func (s *Store) countKeys(ctx context.Context) (counts []store.KeyCount, err error) {
	counts, err = readList(ctx, s.pick(0).db, "SELECT limit_name, COUNT(*), "+readClock+
		" FROM headgate_cells GROUP BY limit_name ORDER BY 2 DESC, 1 LIMIT "+strconv.Itoa(keycount.MaxLimits),
		func(c *store.KeyCount) []any { return []any{&c.Limit, &c.Keys, &c.At} })
	return counts, classifyRead("count keys", err)
}

// errPageFull ends a page early.
var errPageFull = errors.New("enough was read")

// readPage reads up to sweepPage rows, or until do returns errPageFull. end reports whether there are no more rows.
func (s *Store) readPage(ctx context.Context, n *node, query string, do func(*sql.Rows) error) (end bool, err error) {
	count := 0
	err = eachRow(ctx, n.db, query+" LIMIT "+strconv.Itoa(sweepPage), func(r *sql.Rows) error {
		count++
		return do(r)
	})
	if errors.Is(err, errPageFull) {
		return false, nil
	}
	return count < sweepPage, err
}

// sweep removes at most max rows.
func (s *Store) sweep(ctx context.Context, max int) (removed int, err error) {
	s.sweeper.mu.Lock()
	defer s.sweeper.mu.Unlock()
	n := s.pick(0)
	now, err := clock(ctx, n.db)
	if err != nil {
		return 0, err
	}
	for _, pass := range []func(context.Context, *node, int64, int) (int, bool, error){
		s.sweepEntries, s.sweepAdmissions, s.sweepCells,
	} {
		for end := false; !end && err == nil && removed < max; {
			var count int
			count, end, err = pass(ctx, n, now, max-removed)
			removed += count
		}
	}
	return removed, err
}

// sweepEntries removes at most limit entries of the next page of the oldest ones. end reports that there are no more.
// An entry that is old enough can no longer begin to count, so it is read without a lock; a node whose clock is behind
// may renew it until it is removed.
func (s *Store) sweepEntries(ctx context.Context, n *node, now int64, limit int) (removed int, end bool, err error) {
	pos, slack := &s.sweeper, sweepSlack
	if s.galera.Load() || s.groupRepl.Load() {
		slack = clusterSlack
	}
	var subtracted []string // the numbers of entries that the levels of their cells no longer include
	var emptyCellEntries []oldEntry
	end, err = s.readPage(ctx, n, fmt.Sprintf(`SELECT
			e.keep_until, e.number, e.limit_name, e.cell_key, c.law IS NULL OR e.expires_at <= c.at, COALESCE(%[5]s, 0)
		FROM (SELECT keep_until, number, limit_name, cell_key, expires_at FROM headgate_entries FORCE INDEX (by_age)
			WHERE keep_until <= %[1]d AND (keep_until > %[2]d OR keep_until = %[2]d AND number > %[3]d)
			ORDER BY keep_until, number LIMIT %[4]d) e
		LEFT JOIN headgate_cells c ON c.limit_name = e.limit_name AND c.cell_key = e.cell_key
		ORDER BY e.keep_until, e.number`,
		now, pos.until, pos.number, sweepPage, emptyCondition("c", strconv.FormatInt(now, 10), slack),
	), func(r *sql.Rows) error {
		var cell law.Cell
		var isSubtracted, empty bool
		if err := r.Scan(&pos.until, &pos.number, &cell.Limit, &cell.Key, &isSubtracted, &empty); err != nil {
			return err
		}
		number := strconv.FormatInt(pos.number, 10)
		switch {
		case isSubtracted:
			subtracted = append(subtracted, number)
		case empty:
			emptyCellEntries = append(emptyCellEntries, oldEntry{cell, number})
		}
		if len(subtracted)+len(emptyCellEntries) == limit {
			return errPageFull
		}
		return nil
	})
	switch {
	case err != nil:
		return 0, false, classify("sweep entries", err)
	case end:
		pos.until, pos.number = 0, 0
	}
	for chunk := range slices.Chunk(subtracted, sweepChunk) {
		count, err := s.execDelete(ctx, n, "DELETE FROM headgate_entries WHERE number IN ("+strings.Join(chunk, ",")+
			") AND keep_until <= "+strconv.FormatInt(now, 10))
		if removed += count; err != nil {
			return removed, false, classify("sweep entries", err)
		}
	}
	count, err := s.removeEmptyCellEntries(ctx, n, now, slack, emptyCellEntries)
	return removed + count, end && err == nil, err
}

// oldEntry is an entry that is in no history, with its cell.
type oldEntry struct {
	cell   law.Cell
	number string
}

// removeEmptyCellEntries removes entries of cells that are empty. It locks the cells and checks them once more: an
// uncommitted charge, which holds the lock of its cell, may have counted the entries before they expired. If they were
// removed, the level of the cell would be too high for as long as the key is used.
func (s *Store) removeEmptyCellEntries(ctx context.Context, n *node, now int64, slack time.Duration,
	entries []oldEntry,
) (removed int, err error) {
	slices.SortFunc(entries, func(a, b oldEntry) int { return a.cell.Compare(b.cell) })
	for chunk := range slices.Chunk(entries, sweepChunk) {
		var cells []law.Cell
		for _, e := range chunk {
			cells = append(cells, e.cell)
		}
		count, err := s.removeUnderLocks(ctx, n, now, slices.Compact(cells), func(cells []law.Cell) string {
			var numbers []string
			for _, e := range chunk {
				if _, ok := slices.BinarySearchFunc(cells, e.cell, law.Cell.Compare); ok {
					numbers = append(numbers, e.number)
				}
			}
			return "DELETE e FROM headgate_entries e FORCE INDEX (PRIMARY) " +
				"STRAIGHT_JOIN headgate_cells c FORCE INDEX (PRIMARY) ON c.limit_name = e.limit_name " +
				"AND c.cell_key = e.cell_key WHERE e.number IN (" + strings.Join(numbers, ",") +
				") AND e.keep_until <= @hg_t AND " + emptyCondition("c", "@hg_t", slack)
		})
		if removed += count; err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// execDelete sends a statement that removes rows, and returns how many it has removed. It repeats conflicts.
func (s *Store) execDelete(ctx context.Context, n *node, statement string) (removed int, err error) {
	_, err = store.Retry(ctx, s.cfg.RetryFor, func() error {
		res, err := n.db.ExecContext(ctx, statement)
		if err != nil {
			return err
		}
		count, err := res.RowsAffected()
		removed = int(count)
		return err
	}, isRetryable)
	return removed, err
}

// sweepAdmissions removes a chunk of the oldest receipts. Each expired receipt can be removed, so it needs no position.
func (s *Store) sweepAdmissions(ctx context.Context, n *node, now int64, limit int) (removed int, end bool, err error) {
	chunk := min(limit, sweepChunk)
	removed, err = s.execDelete(ctx, n, fmt.Sprintf(
		"DELETE FROM headgate_admissions WHERE keep_until <= %d ORDER BY keep_until LIMIT %d", now, chunk))
	return removed, err == nil && removed < chunk, classify("sweep admissions", err)
}

// sweepCells removes at most limit dead cells of the next page. end reports that there are no more.
func (s *Store) sweepCells(ctx context.Context, n *node, now int64, limit int) (removed int, end bool, err error) {
	pos := &s.sweeper
	var dead []law.Cell
	end, err = s.readPage(ctx, n, fmt.Sprintf(
		"SELECT c.limit_name, c.cell_key, %s FROM headgate_cells c WHERE %s ORDER BY c.limit_name, c.cell_key",
		deadCondition("c", strconv.FormatInt(now, 10)), afterCell(pos.cell)), func(r *sql.Rows) error {
		var isDead bool
		if err := r.Scan(&pos.cell.Limit, &pos.cell.Key, &isDead); err != nil {
			return err
		}
		if isDead {
			dead = append(dead, pos.cell)
		}
		if len(dead) == limit {
			return errPageFull
		}
		return nil
	})
	switch {
	case err != nil:
		return 0, false, classify("sweep cells", err)
	case end:
		pos.cell = law.Cell{}
	}
	removed, err = s.removeDeadCells(ctx, n, now, dead)
	return removed, end && err == nil, err
}

// removeDeadCells removes the cells that are still dead, up to sweepAtOnce chunks concurrently.
func (s *Store) removeDeadCells(ctx context.Context, n *node, now int64, cells []law.Cell) (removed int, err error) {
	var sum atomic.Int64
	var g errgroup.Group
	if conns := n.db.Stats().MaxOpenConnections; conns > 0 {
		g.SetLimit(max(1, min(sweepAtOnce, conns/4)))
	} else {
		g.SetLimit(sweepAtOnce)
	}
	for chunk := range slices.Chunk(cells, sweepChunk) {
		g.Go(func() error {
			count, err := s.removeUnderLocks(ctx, n, now, chunk, deleteDeadCells)
			sum.Add(int64(count))
			return err
		})
	}
	err = g.Wait()
	return int(sum.Load()), err
}

// deleteDeadCells returns the statement that removes the cells that are dead at the time @hg_t.
func deleteDeadCells(cells []law.Cell) string {
	var b strings.Builder
	whereCells(&b, cells)
	return "DELETE c FROM headgate_cells c FORCE INDEX (PRIMARY) WHERE (" + b.String() + ") AND " +
		deadCondition("c", "@hg_t")
}

// removeUnderLocks removes rows in one transaction, which locks those cells that no other transaction has locked.
// statement returns the statement that removes rows of the locked cells, as of the time @hg_t. The clock is read again
// under the locks: if it was set back since the sweep began, dead cells may count again. A conflict leaves the rows for
// a later sweep. If the transaction was lost, and its locks with it, the release of the savepoint fails.
func (s *Store) removeUnderLocks(ctx context.Context, n *node, now int64, cells []law.Cell,
	statement func([]law.Cell) string,
) (removed int, err error) {
	err = withFreeCells(ctx, n, cells, func(conn *sql.Conn, free []law.Cell) error {
		if len(free) == 0 {
			return nil
		}
		return scanLast(ctx, conn, "RELEASE SAVEPOINT headgate;SET @hg_t = LEAST("+strconv.FormatInt(now, 10)+", "+
			readClock+");"+statement(free)+";SET @hg_n = ROW_COUNT();COMMIT;SELECT @hg_n", &removed)
	})
	if err != nil && errors.Is(class(err), store.ErrConflict) {
		return 0, nil
	}
	return removed, classify("sweep", err)
}
