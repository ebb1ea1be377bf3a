package mysql

import (
	"context"
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
	rows, err := s.pick(0).db.QueryContext(ctx, "SELECT limit_name, COUNT(*), "+readClock+
		" FROM headgate_cells GROUP BY limit_name ORDER BY 2 DESC, 1 LIMIT "+strconv.Itoa(keycount.Most))
	if err != nil {
		return nil, classifyRead("count keys", err)
	}
	defer rows.Close()
	for rows.Next() {
		var c store.KeyCount
		if err := rows.Scan(&c.Limit, &c.Keys, &c.At); err != nil {
			return nil, classifyRead("count keys", err)
		}
		counts = append(counts, c)
	}
	if err := rows.Err(); err != nil {
		return nil, classifyRead("count keys", err)
	}
	return counts, nil
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

// sweepEntries looks at a page of the oldest entries. end tells that there are
// no more. An entry that is old enough can no longer begin to count, so it
// needs no lock to look at it; a node whose clock is behind may renew it until
// it is removed.
func (s *Store) sweepEntries(ctx context.Context, n *node, now int64, most int) (removed int, end bool, err error) {
	at, slack := &s.sweeper, sweepSlack
	if s.galera.Load() || s.group.Load() {
		slack = clusterSlack
	}
	rows, err := n.db.QueryContext(ctx, fmt.Sprintf(`SELECT
			e.keep_until, e.number, e.limit_name, e.cell_key, c.law IS NULL OR e.expires_at <= c.at, COALESCE(%[5]s, 0)
		FROM (SELECT keep_until, number, limit_name, cell_key, expires_at FROM headgate_entries FORCE INDEX (by_age)
			WHERE keep_until <= %[1]d AND (keep_until > %[2]d OR keep_until = %[2]d AND number > %[3]d)
			ORDER BY keep_until, number LIMIT %[4]d) e
		LEFT JOIN headgate_cells c ON c.limit_name = e.limit_name AND c.cell_key = e.cell_key
		ORDER BY e.keep_until, e.number`,
		now, at.until, at.number, sweepPage, emptied("c", strconv.FormatInt(now, 10), slack)))
	if err != nil {
		return 0, false, classify("sweep entries", err)
	}
	defer rows.Close()
	seen, found := 0, 0
	var subtracted []string // the numbers of those that the levels of their cells count no more
	var ofEmpty []oldEntry
	for found < most && rows.Next() {
		var cell law.Cell
		var over, empty bool
		if err := rows.Scan(&at.until, &at.number, &cell.Limit, &cell.Key, &over, &empty); err != nil {
			return 0, false, classify("sweep entries", err)
		}
		seen++
		number := strconv.FormatInt(at.number, 10)
		switch {
		case over:
			subtracted = append(subtracted, number)
		case empty:
			ofEmpty = append(ofEmpty, oldEntry{cell, number})
		default:
			continue
		}
		found++
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return 0, false, classify("sweep entries", err)
	}
	if end = seen < sweepPage && found < most; end {
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
		more, err := s.removeFree(ctx, n, now, slices.Compact(cells), func(cells []law.Cell, _ string) string {
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
// enough has to stay, so there is no place to go on from; but an ID may be
// admitted again until its row is removed.
func (s *Store) sweepAdmissions(ctx context.Context, n *node, now int64, most int) (removed int, end bool, err error) {
	chunk := min(most, sweepChunk)
	rows, err := n.db.QueryContext(ctx, fmt.Sprintf(`SELECT limit_name, cell_key, id
		FROM headgate_admissions FORCE INDEX (by_age)
		WHERE keep_until <= %d ORDER BY keep_until LIMIT %d`, now, chunk))
	if err != nil {
		return 0, false, classify("sweep admissions", err)
	}
	defer rows.Close()
	seen := 0
	var b strings.Builder
	b.WriteString("DELETE a FROM (")
	for rows.Next() {
		var a admission
		if err := rows.Scan(&a.cell.Limit, &a.cell.Key, &a.id); err != nil {
			return 0, false, classify("sweep admissions", err)
		}
		if seen++; seen > 1 {
			b.WriteString(" UNION ALL ")
		}
		b.WriteString("SELECT ")
		literal(&b, a.cell.Limit)
		b.WriteString(" AS l,")
		literal(&b, a.cell.Key)
		b.WriteString(" AS k,")
		literal(&b, a.id)
		b.WriteString(" AS i")
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return 0, false, classify("sweep admissions", err)
	}
	if seen == 0 {
		return 0, true, nil
	}
	b.WriteString(") o STRAIGHT_JOIN headgate_admissions a FORCE INDEX (PRIMARY) ON a.limit_name = o.l AND " +
		"a.cell_key = o.k AND a.id = o.i WHERE a.keep_until <= " +
		strconv.FormatInt(now, 10))
	if removed, err = s.remove(ctx, n, b.String()); err != nil {
		return 0, false, classify("sweep admissions", err)
	}
	return removed, seen < chunk || removed == 0, nil
}

// sweepCells looks at a page of cells and removes those that are dead.
func (s *Store) sweepCells(ctx context.Context, n *node, now int64, most int) (removed int, end bool, err error) {
	at := &s.sweeper
	rows, err := n.db.QueryContext(ctx, fmt.Sprintf(
		`SELECT c.limit_name, c.cell_key, %s FROM headgate_cells c WHERE %s ORDER BY c.limit_name, c.cell_key LIMIT %d`,
		dead("c", strconv.FormatInt(now, 10)), afterCell(at.cell), sweepPage))
	if err != nil {
		return 0, false, classify("sweep cells", err)
	}
	defer rows.Close()
	seen := 0
	var dead []law.Cell
	for len(dead) < most && rows.Next() {
		var over bool
		if err := rows.Scan(&at.cell.Limit, &at.cell.Key, &over); err != nil {
			return 0, false, classify("sweep cells", err)
		}
		if seen++; over {
			dead = append(dead, at.cell)
		}
	}
	if err := rows.Err(); err != nil {
		return 0, false, classify("sweep cells", err)
	}
	if err := rows.Close(); err != nil {
		return 0, false, classify("sweep cells", err)
	}
	if end = seen < sweepPage && len(dead) < most; end {
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

// removal makes the statement that removes rows while some cells are locked. list is a table of these cells, c, and
// @hg_t the time.
type removal func(cells []law.Cell, list string) (statement string)

// deadCells is the removal of those of the cells that are of no use.
func deadCells(_ []law.Cell, list string) string {
	return "DELETE c FROM " + list + " WHERE " + dead("c", "@hg_t")
}

// removeFree is removeLocked for those of some cells that are not in use.
func (s *Store) removeFree(ctx context.Context, n *node, now int64, cells []law.Cell, what removal) (
	removed int, err error,
) {
	removed, err = s.removeLocked(ctx, n, now, cells, what)
	if !errors.Is(err, store.ErrConflict) {
		return removed, err
	}
	if len(cells) == 1 {
		return 0, nil
	}
	for _, half := range [][]law.Cell{cells[:len(cells)/2], cells[len(cells)/2:]} {
		more, err := s.removeFree(ctx, n, now, half, what)
		if removed += more; err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// removeLocked removes rows in one transaction that locks some cells in order and waits for
// nobody. If one is locked by another the error is ErrConflict, and nothing is removed. The clock is
// read again under the locks: it may have been set back since the sweep began, and what was of no use
// then may count again.
func (s *Store) removeLocked(ctx context.Context, n *node, now int64, cells []law.Cell, what removal) (
	removed int, err error,
) {
	var b strings.Builder
	values := s.returning.Load()
	b.WriteByte('(')
	for i, c := range cells {
		openRow(&b, values, i)
		named(&b, i, quoted(c.Limit), "l")
		b.WriteByte(',')
		named(&b, i, quoted(c.Key), "k")
		shutRow(&b, values, i)
	}
	b.WriteString(") o STRAIGHT_JOIN headgate_cells c FORCE INDEX (PRIMARY) ON c.limit_name = o.l AND c.cell_key = o.k")
	list := b.String()
	removed, err = transactOnce(ctx, n, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION;"+
		"SELECT COUNT(*) FROM "+list+" FOR UPDATE NOWAIT;"+
		"SET @hg_t = LEAST("+strconv.FormatInt(now, 10)+", "+readClock+");"+
		what(cells, list)+"; SET @hg_n = ROW_COUNT();"+
		"COMMIT; SELECT @hg_n")
	if err != nil {
		return 0, classify("sweep", err)
	}
	return removed, nil
}

// transactOnce sends a text that is a transaction of its own, and returns the number that it selects
// last. What has failed is rolled back, or ends with its connection.
func transactOnce(ctx context.Context, n *node, text string) (number int, err error) {
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return 0, &notSent{err}
	}
	defer conn.Close()
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err = scanLast(within, conn, text, &number); err != nil {
		if _, undo := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); undo != nil {
			_ = conn.Raw(func(any) error { return errBadConn })
		}
	}
	return number, err
}
