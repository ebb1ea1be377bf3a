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
	// sweepPage is how many rows a sweep looks at in one reading without locks.
	sweepPage = 5000
	// sweepChunk is how many cells are locked at once to remove them. A decision waits
	// for a chunk at most.
	sweepChunk = 500
	// sweepAtOnce is how many chunks of cells are removed at once: one connection among
	// those of a flood of new keys gets too little of the server's time to keep pace.
	// It is no more than a quarter of the connections.
	sweepAtOnce = 4
)

// Sweep implements store.Store: entries that count no more and that nobody
// asked to keep, requests that need be remembered no longer, then cells that
// could refuse nobody. It waits for no lock of a cell, and each call goes on
// where the last one stopped.
//
// Now and then it counts the keys of all limits.
func (s *Store) Sweep(ctx context.Context, max int) (removed int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	removed, err = s.sweep(ctx, max)
	if err == nil && s.tx == nil {
		s.keys.Count(ctx, s.countKeys)
	}
	return removed, err
}

// KeyCounts implements store.Inspector: what this process has counted after a sweep.
func (s *Store) KeyCounts(ctx context.Context) ([]store.KeyCount, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.keys.Counts()
}

func (s *Store) countKeys(ctx context.Context) (counts []store.KeyCount, err error) {
	counts, err = readList(ctx, s.pick(0).db, "SELECT limit_name, COUNT(*), "+readClock+
		" FROM headgate_cells GROUP BY limit_name ORDER BY 2 DESC, 1 LIMIT "+strconv.Itoa(keycount.Most),
		func(c *store.KeyCount) []any { return []any{&c.Limit, &c.Keys, &c.At} })
	return counts, classifyRead("count keys", err)
}

// errEnough ends the reading of rows.
var errEnough = errors.New("enough was read")

// page reads rows until take returns errEnough, and reports whether there were none but these.
func (s *Store) page(ctx context.Context, n *node, query string, take func(*sql.Rows) error) (end bool, err error) {
	seen := 0
	err = eachRow(ctx, n.db, query+" LIMIT "+strconv.Itoa(sweepPage), func(r *sql.Rows) error {
		seen++
		return take(r)
	})
	if errors.Is(err, errEnough) {
		return false, nil
	}
	return seen < sweepPage, err
}

func (s *Store) sweep(ctx context.Context, max int) (removed int, err error) {
	s.sweeper.mu.Lock()
	defer s.sweeper.mu.Unlock()
	n := s.pick(0)
	now, err := clock(ctx, n.db)
	if err != nil {
		return 0, err
	}
	for _, pass := range []func(context.Context, *node, int64, int) (int, bool, error){
		s.sweepEntries,
		s.sweepAdmissions, s.sweepCells,
	} {
		for end := false; !end && err == nil && removed < max; {
			var more int
			more, end, err = pass(ctx, n, now, max-removed)
			removed += more
		}
	}
	return removed, err
}

// sweepEntries looks at a page of the oldest entries. end reports that there are
// no more. An entry that is old enough can no longer begin to count, so it
// needs no lock to look at it; a node whose clock is behind may renew it until
// it is removed.
func (s *Store) sweepEntries(ctx context.Context, n *node, now int64, most int) (removed int, end bool, err error) {
	at, slack := &s.sweeper, sweepSlack
	if s.galera.Load() || s.group.Load() {
		slack = clusterSlack
	}
	var subtracted []string // the numbers of those that the levels of their cells count no more
	var ofEmpty []oldEntry
	end, err = s.page(ctx, n, fmt.Sprintf(`SELECT
			e.keep_until, e.number, e.limit_name, e.cell_key, c.law IS NULL OR e.expires_at <= c.at, COALESCE(%[5]s, 0)
		FROM (SELECT keep_until, number, limit_name, cell_key, expires_at FROM headgate_entries FORCE INDEX (by_age)
			WHERE keep_until <= %[1]d AND (keep_until > %[2]d OR keep_until = %[2]d AND number > %[3]d)
			ORDER BY keep_until, number LIMIT %[4]d) e
		LEFT JOIN headgate_cells c ON c.limit_name = e.limit_name AND c.cell_key = e.cell_key
		ORDER BY e.keep_until, e.number`,
		now, at.until, at.number, sweepPage, emptied("c", strconv.FormatInt(now, 10), slack)), func(r *sql.Rows) error {
		var cell law.Cell
		var over, empty bool
		if err := r.Scan(&at.until, &at.number, &cell.Limit, &cell.Key, &over, &empty); err != nil {
			return err
		}
		number := strconv.FormatInt(at.number, 10)
		switch {
		case over:
			subtracted = append(subtracted, number)
		case empty:
			ofEmpty = append(ofEmpty, oldEntry{cell, number})
		}
		if len(subtracted)+len(ofEmpty) == most {
			return errEnough
		}
		return nil
	})
	switch {
	case err != nil:
		return 0, false, classify("sweep entries", err)
	case end:
		at.until, at.number = 0, 0
	}
	for chunk := range slices.Chunk(subtracted, sweepChunk) {
		gone, err := s.remove(ctx, n, "DELETE FROM headgate_entries WHERE number IN ("+strings.Join(chunk, ",")+
			") AND keep_until <= "+strconv.FormatInt(now, 10))
		if removed += gone; err != nil {
			return removed, false, classify("sweep entries", err)
		}
	}
	gone, err := s.removeOfEmpty(ctx, n, now, slack, ofEmpty)
	return removed + gone, end && err == nil, err
}

// oldEntry is an entry that nobody asked to keep, with its cell.
type oldEntry struct {
	cell   law.Cell
	number string
}

// removeOfEmpty removes entries of cells that are empty. It locks the cells and looks at them again: a charge that is
// not committed yet has its cell locked, and may have counted the entries while they counted. If they were gone, the
// level of its cell would be too high for as long as the key is used.
func (s *Store) removeOfEmpty(ctx context.Context, n *node, now int64, slack time.Duration, entries []oldEntry) (
	removed int, err error,
) {
	slices.SortFunc(entries, func(a, b oldEntry) int { return a.cell.Compare(b.cell) })
	for chunk := range slices.Chunk(entries, sweepChunk) {
		var cells []law.Cell
		for _, e := range chunk {
			cells = append(cells, e.cell)
		}
		more, err := s.removeFree(ctx, n, now, slices.Compact(cells), func(cells []law.Cell) string {
			var numbers []string
			for _, e := range chunk {
				if _, ok := slices.BinarySearchFunc(cells, e.cell, law.Cell.Compare); ok {
					numbers = append(numbers, e.number)
				}
			}
			return "DELETE e FROM headgate_entries e FORCE INDEX (PRIMARY) " +
				"STRAIGHT_JOIN headgate_cells c FORCE INDEX (PRIMARY) ON c.limit_name = e.limit_name " +
				"AND c.cell_key = e.cell_key WHERE e.number IN (" + strings.Join(numbers, ",") +
				") AND e.keep_until <= @hg_t AND " + emptied("c", "@hg_t", slack)
		})
		if removed += more; err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// remove sends a statement that removes rows, and says how many.
func (s *Store) remove(ctx context.Context, n *node, statement string) (removed int, err error) {
	_, err = store.Retry(ctx, s.cfg.RetryFor, func() error {
		res, err := n.db.ExecContext(ctx, statement)
		if err != nil {
			return err
		}
		gone, err := res.RowsAffected()
		removed = int(gone)
		return err
	}, again)
	return removed, err
}

// sweepAdmissions removes a chunk of the oldest admissions. No one that is old
// enough has to stay, so there is no place to go on from.
func (s *Store) sweepAdmissions(ctx context.Context, n *node, now int64, most int) (removed int, end bool, err error) {
	chunk := min(most, sweepChunk)
	removed, err = s.remove(ctx, n, fmt.Sprintf(
		"DELETE FROM headgate_admissions WHERE keep_until <= %d ORDER BY keep_until LIMIT %d", now, chunk))
	return removed, err == nil && removed < chunk, classify("sweep admissions", err)
}

// sweepCells looks at a page of cells and removes those that are dead.
func (s *Store) sweepCells(ctx context.Context, n *node, now int64, most int) (removed int, end bool, err error) {
	at := &s.sweeper
	var dead []law.Cell
	end, err = s.page(ctx, n, fmt.Sprintf(
		"SELECT c.limit_name, c.cell_key, %s FROM headgate_cells c WHERE %s ORDER BY c.limit_name, c.cell_key",
		isDead("c", strconv.FormatInt(now, 10)), afterCell(at.cell)), func(r *sql.Rows) error {
		var over bool
		if err := r.Scan(&at.cell.Limit, &at.cell.Key, &over); err != nil {
			return err
		}
		if over {
			dead = append(dead, at.cell)
		}
		if len(dead) == most {
			return errEnough
		}
		return nil
	})
	switch {
	case err != nil:
		return 0, false, classify("sweep cells", err)
	case end:
		at.cell = law.Cell{}
	}
	removed, err = s.removeChunks(ctx, n, now, dead)
	return removed, end && err == nil, err
}

// removeChunks removes the cells that are still dead, up to sweepAtOnce chunks concurrently.
func (s *Store) removeChunks(ctx context.Context, n *node, now int64, cells []law.Cell) (removed int, err error) {
	var sum atomic.Int64
	var g errgroup.Group
	if most := n.db.Stats().MaxOpenConnections; most > 0 {
		g.SetLimit(max(1, min(sweepAtOnce, most/4)))
	} else {
		g.SetLimit(sweepAtOnce)
	}
	for chunk := range slices.Chunk(cells, sweepChunk) {
		g.Go(func() error {
			more, err := s.removeFree(ctx, n, now, chunk, deadCells)
			sum.Add(int64(more))
			return err
		})
	}
	err = g.Wait()
	return int(sum.Load()), err
}

// deadCells returns the statement that removes those of the cells that are of no use at the time @hg_t.
func deadCells(cells []law.Cell) string {
	var b strings.Builder
	whereCells(&b, cells)
	return "DELETE c FROM headgate_cells c FORCE INDEX (PRIMARY) WHERE (" + b.String() + ") AND " + isDead("c", "@hg_t")
}

// removeFree removes rows in one transaction in which it locks those of some cells that nobody else holds. The
// clock is read again under the locks: it may have been set back since the sweep began, and what was of no use
// then may count again. A conflict with others leaves the rows for a later sweep. The savepoint is lost if the
// transaction was, and so the locks. what returns the statement that removes rows at the time @hg_t.
func (s *Store) removeFree(ctx context.Context, n *node, now int64, cells []law.Cell, what func([]law.Cell) string) (
	removed int, err error,
) {
	err = holdFree(ctx, n, cells, func(conn *sql.Conn, free []law.Cell) error {
		if len(free) == 0 {
			return nil
		}
		return scanLast(ctx, conn, "RELEASE SAVEPOINT headgate;SET @hg_t = LEAST("+strconv.FormatInt(now, 10)+", "+
			readClock+");"+what(free)+";SET @hg_n = ROW_COUNT();COMMIT;SELECT @hg_n", &removed)
	})
	if err != nil && errors.Is(class(err), store.ErrConflict) {
		return 0, nil
	}
	return removed, classify("sweep", err)
}
