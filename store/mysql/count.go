package mysql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Keys are counted by reading their rows, without locks: those of all limits at a Sweep,
// and those of a limit alone when it seems to have many new keys. A count of all that
// takes longer than cheapCount waits until sweepPause times as long has passed since
// anybody counted; a limit alone is counted up to its maximum, as often as it asks.
const (
	cheapCount = 50 * time.Millisecond
	sweepPause = 20
)

// shareWait is for how long, in seconds, a limit that is to begin or end to share waits
// for transactions that have read whether it does. Others wait behind it.
const shareWait = 1

// countSoon counts the keys of limits in the background, unless that is under way.
func (s *Store) countSoon(limits []string) {
	if s.rooms.asking.Swap(true) {
		return
	}
	go func() {
		defer s.rooms.asking.Store(false)
		ctx, cancel := context.WithTimeout(s.life, time.Minute)
		defer cancel()
		if err := s.count(ctx, limits); err != nil && ctx.Err() == nil {
			s.log.Debug("the keys of limits could not be counted", "error", err) // the next sweep says it louder
		}
	}()
}

// count counts the keys of these limits, or of all if there are none, and lets limits
// begin and end to share a cell. Where no limit has a maximum or shares it reads that,
// and no more.
func (s *Store) count(ctx context.Context, limits []string) error {
	select {
	case s.rooms.turn <- struct{}{}:
		defer func() { <-s.rooms.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	n := s.pick(0)
	all, now, err := readRooms(ctx, n.db)
	if err != nil {
		return err
	}
	own := s.rooms.unwritten()
	for name, most := range own {
		if all[name] == nil {
			all[name] = &room{}
		}
		all[name].own = most
	}
	s.heed(all)
	if len(all) == 1 && all[""].own == 0 {
		return nil
	}
	took := time.Duration(all[""].took) * time.Microsecond
	if limits == nil && len(own) == 0 && took > cheapCount && now-all[""].at < sweepPause*all[""].took {
		return nil
	}
	_, err = store.Retry(ctx, s.cfg.RetryFor, func() error { return s.tally(ctx, n, all, limits) }, again)
	if err != nil {
		return classify("count keys", err)
	}
	s.rooms.counted(limits)
	s.rooms.wrote(own, all)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if r := all[name]; name != "" && r.counted(limits, name) {
			if err := s.turn(ctx, n, name, r, cmp.Or(r.own, all[""].own)); err != nil {
				return err
			}
		}
	}
	return nil
}

// counted reports whether the keys of a limit were counted.
func (r *room) counted(limits []string, name string) bool {
	return limits == nil || slices.Contains(limits, name)
}

// tally counts, and writes down what was counted of limits that have a hundredth of their
// keys, share, or have a maximum of their own.
func (s *Store) tally(ctx context.Context, n *node, all map[string]*room, limits []string) error {
	begin := time.Now() //nolint:forbidigo // how long it takes, not a decision
	most := all[""].own
	var keys map[string]int64
	var err error
	if limits == nil && most > 0 {
		keys, err = countKeys(ctx, n.db, "SELECT limit_name, COUNT(*) FROM headgate_cells WHERE cell_key NOT LIKE "+
			sharedKeys+" GROUP BY limit_name")
	} else {
		keys, err = countSome(ctx, n.db, all, limits)
	}
	if err != nil {
		return err
	}
	for name, count := range keys {
		if all[name] == nil && count >= max(1, most/100) {
			all[name] = &room{}
		}
	}
	var b strings.Builder
	took := time.Since(begin).Microseconds()
	if limits != nil {
		took = all[""].took
	}
	fmt.Fprintf(&b, "INSERT INTO headgate_key_counts (limit_name, max_keys, key_count, counted_at, took) VALUES "+
		"('', %d, 0, %s, %d)", most, readClock, took)
	for _, name := range slices.Sorted(maps.Keys(all)) { // counts of other processes lock in this order too
		r := all[name]
		if name == "" || !r.counted(limits, name) {
			continue
		}
		r.keys = keys[name]
		fmt.Fprintf(&b, ",(%s, %d, %d, %s, 0)", quoted(name), r.own, r.keys, readClock)
	}
	b.WriteString(" ON DUPLICATE KEY UPDATE max_keys = IF(limit_name = '', max_keys, VALUES(max_keys)), key_count = " +
		"VALUES(key_count), counted_at = VALUES(counted_at), took = VALUES(took)")
	_, err = n.db.ExecContext(ctx, b.String())
	if err == nil && limits == nil { // names may come from outside: they go with their keys
		_, err = n.db.ExecContext(ctx, "DELETE FROM headgate_key_counts WHERE limit_name <> '' AND key_count = 0")
	}
	return err
}

// countSome counts the keys of single limits, up to one more than they may have.
func countSome(ctx context.Context, db querier, all map[string]*room, limits []string) (map[string]int64, error) {
	if limits == nil {
		limits = slices.Collect(maps.Keys(all))
	}
	var parts []string
	for _, name := range limits {
		if name == "" {
			continue
		}
		if all[name] == nil {
			all[name] = &room{}
		}
		limit, most := quoted(name), cmp.Or(all[name].own, all[""].own)
		parts = append(parts, fmt.Sprintf(
			"SELECT %[1]s, COUNT(*) FROM (SELECT 1 FROM headgate_cells WHERE limit_name = %[1]s AND cell_key NOT LIKE %[2]s LIMIT %[3]d) c", limit, sharedKeys, most+1))
	}
	if len(parts) == 0 {
		return nil, nil
	}
	return countKeys(ctx, db, strings.Join(parts, " UNION ALL "))
}

func countKeys(ctx context.Context, db querier, query string) (map[string]int64, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	keys := map[string]int64{}
	for rows.Next() {
		var name string
		var count int64
		if err := rows.Scan(&name, &count); err != nil {
			return nil, err
		}
		keys[name] = count
	}
	return keys, rows.Err()
}

// turn lets a limit begin or end to share, if it is time. It gives up without an error
// where transactions are in the way: the next count tries again.
func (s *Store) turn(ctx context.Context, n *node, name string, r *room, most int64) error {
	begin := !r.sharing && most > 0 && r.keys >= most && name != tokens
	end := r.sharing && (most == 0 || r.keys < most && r.keys*100 <= most*95)
	if !begin && !end {
		return nil
	}
	text := endSharing(law.SharedCell(name, r.generation), r.generation)
	if begin {
		text = beginSharing(name)
	}
	done, err := s.askPatiently(ctx, n, text)
	switch {
	case errors.Is(class(err), store.ErrConflict):
		s.log.Debug("transactions that have made keys are in the way of a count", "limit", name)
		return nil
	case err != nil:
		return classify("let a limit begin or end to share a cell", err)
	case done && begin:
		s.rooms.full.Store(true)
		s.log.Warn("a limit has as many keys as it may: new ones share one cell", "limit", name, "keys", r.keys,
			"max", most)
	case done:
		s.log.Info("a limit has room for new keys again", "limit", name, "keys", r.keys)
	}
	return nil
}

// tokens is the limit of request_token, which is never full: its keys are the rows of a
// table of the owner's.
const tokens = "request_token"

const beginTurn = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;START TRANSACTION;"

// beginSharing begins a period. Its row in headgate_cells is made by the first charge.
func beginSharing(limit string) string {
	return beginTurn + "INSERT IGNORE INTO headgate_rooms (limit_name) VALUES (" + quoted(limit) + ");" +
		"UPDATE headgate_rooms SET generation = generation + 1, since = " + readClock +
		", sharing = 1 WHERE limit_name = " + quoted(limit) + " AND sharing = 0;" +
		"SET @hg_n = ROW_COUNT();COMMIT;SELECT @hg_n, ''"
}

// endSharing ends a period if nothing in its cell counts any more. The row of that is
// locked first, and made for it where it is missing.
func endSharing(cell law.Cell, generation int64) string {
	var b strings.Builder
	limit, key := quoted(cell.Limit), quoted(cell.Key)
	b.WriteString(beginTurn + "INSERT INTO headgate_cells (limit_name, cell_key) VALUES (" + limit + "," + key +
		") ON DUPLICATE KEY UPDATE law = headgate_cells.law;")
	fmt.Fprintf(&b, "UPDATE headgate_rooms SET sharing = 0, since = 0 WHERE limit_name = %s AND sharing = 1 AND "+
		"generation = %d AND EXISTS "+
		"(SELECT 1 FROM headgate_cells c WHERE c.limit_name = %[1]s AND c.cell_key = %[3]s AND (c.law = 0 OR GREATEST(c.empty_at, c.blocked_until) <= %[4]s));", limit, generation, key, readClock)
	b.WriteString("SET @hg_n = ROW_COUNT();DELETE FROM headgate_cells WHERE limit_name = " + limit +
		" AND cell_key = " + key + " AND (law = 0 OR @hg_n > 0);COMMIT;SELECT @hg_n, ''")
	return b.String()
}

// askPatiently sends a text that waits for locks no longer than shareWait, and reports
// whether it has done something.
func (s *Store) askPatiently(ctx context.Context, n *node, text string) (done bool, err error) {
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return false, &notSent{err}
	}
	defer conn.Close()
	if err := each(ctx, conn, "SET @hg_wait = @@innodb_lock_wait_timeout",
		fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", shareWait)); err != nil {
		return false, err
	}
	answer, err := hear(ctx, conn, text)
	undo := []string{"SET SESSION innodb_lock_wait_timeout = @hg_wait"}
	if err != nil {
		undo = []string{"ROLLBACK", undo[0]}
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if each(after, conn, undo...) != nil {
		_ = conn.Raw(func(any) error { return errBadConn }) // it must not go back to the pool
	}
	return err == nil && string(answer.records) != "0", err
}

// Fullness implements store.KeyCounter. Limits that have less than a hundredth of their
// keys are left out. It is one round trip.
func (s *Store) Fullness(ctx context.Context) ([]store.Room, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	var list []store.Room
	err := s.anywhere(func(db querier) error {
		list = nil
		all, now, err := readRooms(ctx, db)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			r := all[name]
			if name == "" || r.own == 0 && r.keys == 0 && !r.sharing {
				continue
			}
			list = append(list, store.Room{
				Limit: name, Keys: r.keys, CountedAt: cmp.Or(r.at, r.since, now), Max: cmp.Or(r.own, all[""].own),
				Sharing: r.sharing, Generation: r.generation, Since: r.since, Shared: s.rooms.shared.Of(name),
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}
