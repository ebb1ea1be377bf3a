package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// room is how full a limit is, as a transaction knows it.
type room struct {
	keys       int64 // those included that groups of this batch may make
	most       int64 // 0: any number
	generation int64
	since      int64 // 0: it does not share
}

// full finds out which groups of a batch ask for cells that are not there and cannot
// be made, since their limits share one: it sets the outcomes of those, and returns
// their ops. It begins and ends periods of sharing.
func (t *transaction) full(ops []law.Op, outs []law.Outcome, clock int64) (skip []int, err error) {
	if tracked, err := t.tracks(ops); err != nil || !tracked {
		return nil, err
	}
	made := map[law.Cell]bool{} // that groups may make
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		if law.ValidGroup(ops[i:j]) == nil {
			found, err := t.fullGroup(ops[i:j], outs[i:j], clock, made)
			if err != nil {
				return nil, err
			}
			for k := i; found && k < j; k++ {
				skip = append(skip, k)
			}
		}
		i = j
	}
	return skip, nil
}

// fullGroup is full for one group.
func (t *transaction) fullGroup(ops []law.Op, outs []law.Outcome, clock int64, made map[law.Cell]bool) (found bool,
	err error,
) {
	var mine []law.Cell
	for i := range ops {
		op := &ops[i]
		outs[i] = law.Outcome{Clock: clock}
		if !t.missing(op) || made[op.Cell] {
			continue
		}
		if outs[i].Full, err = t.fullFor(op, clock); err != nil {
			return false, err
		}
		switch {
		case outs[i].Full != 0:
			found = true
		case makes(op) && !law.IsShared(op.Cell):
			made[op.Cell] = true
			mine = append(mine, op.Cell)
		}
	}
	if !found {
		return false, nil
	}
	for _, c := range mine { // it does nothing
		delete(made, c)
		if r := t.rooms[c.Limit]; r != nil {
			r.keys--
		}
	}
	for i := range outs {
		outs[i].Stale = outs[i].Full == 0
	}
	return true, nil
}

// missing reports whether the cell of an op is not there, and it matters.
func (t *transaction) missing(op *law.Op) bool {
	c := t.cells[op.Cell]
	return c != nil && !c.there && op.Verb != law.Reset && op.Verb != law.Settle && op.Verb != law.Extend
}

// makes reports whether an op may make a cell that is not there.
func makes(op *law.Op) bool {
	return op.Verb == law.Take || op.Verb == law.Block || op.Verb == law.Return && op.Cost < 0
}

// tracks reports whether there is a maximum for any of the cells that are not there,
// or was one.
func (t *transaction) tracks(ops []law.Op) (bool, error) {
	asks, own := false, false
	for i := range ops {
		if t.missing(&ops[i]) {
			asks, own = true, own || ops[i].Params.MaxKeys > 0 || law.IsShared(ops[i].Cell)
		}
	}
	if !asks {
		return false, nil
	}
	var rows bool
	if err := t.st.setting.QueryRowContext(t.ctx).Scan(&t.most, &rows); err != nil {
		return false, err
	}
	return own || t.most > 0 || rows, nil
}

// fullFor returns the Full of an op whose cell is not there, and otherwise counts the
// cell that it may make.
func (t *transaction) fullFor(op *law.Op, clock int64) (int64, error) {
	limit := op.Cell.Limit
	r, err := t.room(limit, cmp.Or(op.Params.MaxKeys, t.most))
	if law.IsShared(op.Cell) {
		if err != nil || r != nil && r.since > 0 && r.generation == law.Generation(op.Cell) {
			return 0, err // somebody has deleted it: it is empty
		}
		return law.Ended, nil
	}
	if r == nil || err != nil {
		return 0, err
	}
	if r.since > 0 {
		if ended, err := t.end(limit, r, clock); err != nil || !ended {
			return r.generation, err
		}
	}
	if !makes(op) {
		return 0, nil
	}
	if r.most > 0 && r.keys >= r.most {
		err := t.share(limit, r, clock)
		return r.generation, err
	}
	r.keys++
	return 0, nil
}

// room returns how full a limit is; nil if nobody counts its keys and it may have any
// number of them.
func (t *transaction) room(limit string, most int64) (*room, error) {
	if r, ok := t.rooms[limit]; ok {
		return r, nil
	}
	r := &room{}
	var before int64
	err := t.st.room.QueryRowContext(t.ctx, limit).Scan(&r.keys, &before, &r.generation, &r.since)
	known := err == nil
	if r.most = most; errors.Is(err, sql.ErrNoRows) {
		r, err = nil, nil
		if most > 0 {
			r = &room{most: most}
			err = t.st.countKeys.QueryRowContext(t.ctx, limit).Scan(&r.keys)
		}
	}
	if err == nil && r != nil && (!known || before != most) {
		_, err = t.st.saveRoom.ExecContext(t.ctx, limit, r.keys, most)
	}
	if err != nil {
		return nil, err
	}
	t.rooms[limit] = r
	return r, nil
}

// share begins a period of sharing. Its number is the time, so that none comes twice,
// although a room is forgotten while its limit has no keys.
func (t *transaction) share(limit string, r *room, clock int64) error {
	r.generation, r.since = max(clock, r.generation+1), max(clock, 1)
	if _, err := t.st.turn.ExecContext(t.ctx, limit, r.generation, r.since); err != nil {
		return err
	}
	c := law.SharedCell(limit, r.generation)
	_, err := t.st.save.ExecContext(t.ctx, c.Limit, c.Key, 0, 0, 0, 0, 0, 0, 0, 0, "", 0)
	return err
}

// end ends a period of sharing if there is room, and nothing counts in the shared cell
// and no op of the batch is about to charge it.
func (t *transaction) end(limit string, r *room, clock int64) (bool, error) {
	c := law.SharedCell(limit, r.generation)
	if t.cells[c] != nil || r.most > 0 && r.keys >= r.most {
		return false, nil
	}
	res, err := t.st.endPeriod.ExecContext(t.ctx, c.Limit, c.Key, clock)
	if err != nil {
		return false, err
	}
	if n, err := res.RowsAffected(); err != nil {
		return false, err
	} else if n == 0 { // it counts still, unless somebody has deleted it
		var there bool
		if err := t.st.there.QueryRowContext(t.ctx, c.Limit, c.Key).Scan(&there); err != nil || there {
			return false, err
		}
	}
	r.since = 0
	_, err = t.st.turn.ExecContext(t.ctx, limit, r.generation, 0)
	return err == nil, err
}

// endAll ends the periods of sharing that are over, and forgets the rooms of limits
// without keys.
func (s *Store) endAll(ctx context.Context) error {
	return s.transact(ctx, "sweep", func(ctx context.Context) error {
		t := transaction{ctx: ctx, st: &s.stmts}
		rows, err := s.stmts.sharing.QueryContext(ctx)
		if err != nil {
			return err
		}
		defer rows.Close()
		rooms := map[string]*room{}
		for rows.Next() {
			var limit string
			r := &room{}
			if err := rows.Scan(&limit, &r.keys, &r.most, &r.generation, &r.since); err != nil {
				return err
			}
			rooms[limit] = r
		}
		if err := rows.Err(); err != nil {
			return err
		}
		for limit, r := range rooms {
			if _, err := t.end(limit, r, s.clock()); err != nil {
				return err
			}
		}
		_, err = s.stmts.emptyRooms.ExecContext(ctx)
		return err
	})
}

// settle keeps the maximum of the configuration in the file, where other processes
// find it.
func (s *Store) settle(ctx context.Context, most int) error {
	if most == 0 {
		return nil
	}
	want := max(0, int64(most))
	return s.transact(ctx, "set max_keys", func(ctx context.Context) error {
		var before int64
		var rows bool
		if err := s.stmts.setting.QueryRowContext(ctx).Scan(&before, &rows); err != nil || before == want {
			return err
		}
		if before > 0 {
			s.log.Warn("the file has another maximum of keys for each limit, which is replaced for all processes "+
				"that use it", "was", before, "is", want)
		}
		_, err := s.stmts.set.ExecContext(ctx, want)
		return err
	})
}

// maxRooms is how many limits Fullness tells about at most: the fullest.
const maxRooms = 1000

// Fullness implements store.KeyCounter.
func (s *Store) Fullness(ctx context.Context) (rooms []store.Room, err error) {
	db, done, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	rows, err := db.QueryContext(ctx, `select limit_name, keys, max_keys, generation, since from rooms
		where keys > 0 or since > 0
		order by since > 0 desc, max_keys > 0 desc, keys * 1.0 / max(max_keys, 1) desc limit ?`, maxRooms)
	if err != nil {
		return nil, classify("count keys", err)
	}
	defer rows.Close()
	for rows.Next() {
		var r store.Room
		if err := rows.Scan(&r.Limit, &r.Keys, &r.Max, &r.Generation, &r.Since); err != nil {
			return nil, classify("count keys", err)
		}
		r.Sharing, r.Shared = r.Since > 0, s.answered.Of(r.Limit)
		rooms = append(rooms, r)
	}
	if err := rows.Err(); err != nil {
		return nil, classify("count keys", err)
	}
	slices.SortFunc(rooms, func(a, b store.Room) int { return cmp.Compare(a.Limit, b.Limit) })
	return rooms, nil
}
