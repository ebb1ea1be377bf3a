package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/overflow"
	"github.com/headgate/headgate/store/internal/wrap"
)

// statements are prepared once, on the one connection that writes.
type statements struct {
	load, save, remove                 *sql.Stmt
	sum, freed, entry                  *sql.Stmt
	add, renew, lower, clear           *sql.Stmt
	known, admit, forget               *sql.Stmt
	sweepEntries, sweepCells, chunkEnd *sql.Stmt
	sweepAdmissions                    *sql.Stmt
	setting, set, room, countKeys      *sql.Stmt
	saveRoom, turn, endPeriod, sharing *sql.Stmt
	emptyRooms, there                  *sql.Stmt
	begin, commit, rollback            *sql.Stmt
	all                                []*sql.Stmt
}

func (st *statements) prepare(ctx context.Context, conn *sql.Conn) error {
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&st.load, `select law, level, prev, at, unit, step, empty_at, blocked_until, reason
			from cells where limit_name = ? and key = ?`},
		{&st.save, `insert into cells
			(limit_name, key, law, level, prev, at, unit, step, empty_at, blocked_until, reason)
			values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			on conflict (limit_name, key) do update set law = excluded.law, level = excluded.level, prev = excluded.prev,
			at = excluded.at, unit = excluded.unit, step = excluded.step, empty_at = excluded.empty_at,
			blocked_until = excluded.blocked_until, reason = excluded.reason`},
		{&st.remove, `delete from cells where limit_name = ? and key = ?`},
		{&st.sum, `select coalesce(sum(cost), 0) from entries
			where limit_name = ? and key = ? and granted and expires_at > ? and expires_at <= ?`},
		{&st.freed, `select expires_at, cost from entries
			where limit_name = ? and key = ? and granted and expires_at > ? order by expires_at, number`},
		{&st.entry, `select cost, expires_at from entries
			where number = ? and limit_name = ? and key = ? and granted and expires_at > 0`},
		{&st.lower, `update entries set cost = cost - ?1, expires_at = case when cost > ?1 then expires_at else 0 end
			where number = ?2`},
		{&st.add, `insert into entries (limit_name, key, id, at, expires_at, keep_until, cost, granted)
			values (?, ?, ?, ?, ?, ?, ?, ?)`},
		{&st.clear, `update entries set expires_at = 0 where limit_name = ? and key = ? and expires_at > 0`},
		{&st.renew, `update entries set expires_at = ?1, keep_until = max(keep_until, ?1) where number = ?2`},
		{&st.known, `select print, rule, cost, outcome, settled, keep_until from admissions
			where limit_name = ? and key = ? and id = ?`},
		{&st.admit, `insert or replace into admissions
			(limit_name, key, id, print, rule, cost, outcome, settled, keep_until)
			values (?, ?, ?, ?, ?, ?, ?, ?, ?)`},
		{&st.forget, `delete from admissions where limit_name = ? and key = ?`},
		{&st.sweepAdmissions, `delete from admissions where rowid in (select rowid from admissions where keep_until <= ?1 limit ?2)`},
		{&st.sweepEntries, `delete from entries where number in (
			select e.number from entries e left join cells c on c.limit_name = e.limit_name and c.key = e.key
			where e.keep_until <= ?1 and (c.key is null or e.expires_at <= c.at or c.empty_at <= ?1) limit ?2)`},
		{&st.chunkEnd, `select limit_name, key from cells where (limit_name, key) > (?1, ?2) order by limit_name, key limit 1 offset ?3`},
		{&st.sweepCells, `delete from cells where (limit_name, key) in (
			select c.limit_name, c.key from cells c where (c.limit_name, c.key) > (?1, ?2) and (c.limit_name, c.key) <= (?3, ?4)
			and c.empty_at <= ?5 and c.blocked_until <= ?5 and substr(c.key, 1, 16) <> 'headgate:shared:'
			and not exists (select 1 from entries e where e.limit_name = c.limit_name and e.key = c.key)
			and not exists (select 1 from admissions a where a.limit_name = c.limit_name and a.key = c.key) limit ?6)`},
		{&st.setting, `select coalesce((select value from settings where name = 'max_keys'), 0), exists (select 1 from rooms)`},
		{&st.set, `insert or replace into settings (name, value) values ('max_keys', ?)`},
		{&st.room, `select keys, max_keys, generation, since from rooms where limit_name = ?`},
		{&st.countKeys, `select count(*) from cells where limit_name = ? and substr(key, 1, 16) <> 'headgate:shared:'`},
		{&st.saveRoom, `insert into rooms (limit_name, keys, max_keys, generation, since) values (?, ?, ?, 0, 0)
			on conflict (limit_name) do update set max_keys = excluded.max_keys`},
		{&st.turn, `update rooms set generation = ?2, since = ?3 where limit_name = ?1`},
		{&st.endPeriod, `delete from cells where limit_name = ? and key = ? and empty_at <= ?3 and blocked_until <= ?3`},
		{&st.there, `select exists (select 1 from cells where limit_name = ? and key = ?)`},
		{&st.emptyRooms, `delete from rooms where keys = 0 and since = 0`},
		{&st.sharing, `select limit_name, keys, max_keys, generation, since from rooms where since > 0`},
		{&st.begin, `begin immediate`},
		{&st.commit, `commit`},
		{&st.rollback, `rollback`},
	} {
		stmt, err := conn.PrepareContext(ctx, p.text) //nolint:sqlclosecheck // close does, all at once
		if err != nil {
			return err
		}
		*p.stmt = stmt
		st.all = append(st.all, stmt)
	}
	return nil
}

func (st *statements) close() {
	for _, s := range st.all {
		s.Close()
	}
}

// Apply implements store.Store: one immediate transaction, and another for keys that
// share a cell. Cells are read, package law decides, and what changed is written.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	return overflow.Apply(ctx, ops, outs, s.apply, &s.answered)
}

// apply is Apply but for keys that share a cell: their outcomes say Full.
func (s *Store) apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := s.transact(ctx, "apply", func(ctx context.Context) error {
		t := transaction{ctx: ctx, st: &s.stmts, cells: make(map[law.Cell]*cell, len(ops)), rooms: map[string]*room{}}
		records := make([]*law.Record, len(ops))
		for i := range ops {
			if err := ops[i].Cell.Valid(); err != nil {
				records[i] = &law.Record{} // its group is not valid and is not applied
				continue
			}
			r, err := t.load(ops[i].Cell)
			if err != nil {
				return err
			}
			records[i] = r
		}
		if err := t.decide(ops, outs, s.clock(), records); err != nil { // the clock is read under the lock
			return err
		}
		for _, c := range t.order {
			if err := t.save(c); err != nil {
				return err
			}
		}
		for i := range outs {
			records[i].Number(&outs[i])
		}
		return nil
	})
	if err != nil {
		clear(outs) // they were decided, but what they say was not saved
	}
	return err
}

// decide applies those groups that are not full by package law.
func (t *transaction) decide(ops []law.Op, outs []law.Outcome, clock int64, records []*law.Record) error {
	skip, err := t.full(ops, outs, clock)
	if err != nil {
		return err
	}
	if skip == nil {
		law.Apply(ops, outs, clock, records)
		return t.err
	}
	rest, index := wrap.Rest(ops, skip)
	its, answers := make([]*law.Record, len(rest)), make([]law.Outcome, len(rest))
	for k, i := range index {
		its[k] = records[i]
	}
	law.Apply(rest, answers, clock, its)
	wrap.Join(outs, answers, index, nil)
	return t.err
}

// transact runs do in an immediate transaction. Once begun it is not cut
// short by the caller, so that its outcome is always known.
func (s *Store) transact(ctx context.Context, doing string, do func(context.Context) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil { // it ended while others wrote
		return fmt.Errorf("sqlite: %s: %w: %w", doing, store.ErrUnavailable, err)
	}
	if err := s.file.check(); err != nil {
		return classify(doing, err)
	}
	ctx = context.WithoutCancel(ctx)
	if _, err := s.stmts.begin.ExecContext(ctx); err != nil {
		return classify(doing, err)
	}
	if err = do(ctx); err == nil {
		if _, err = s.stmts.commit.ExecContext(ctx); ioFailed(err) {
			// What reached the disk is not known, only what this process sees of it.
			err = fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
		}
	}
	if err != nil {
		_, undo := s.stmts.rollback.ExecContext(ctx)
		return classify(doing, errors.Join(err, undo))
	}
	return nil
}

// transaction is a batch under way.
type transaction struct {
	ctx   context.Context
	st    *statements
	cells map[law.Cell]*cell
	order []*cell
	err   error // the first that a ledger met

	most  int64            // keys that a limit may have, by the file; 0: any number
	rooms map[string]*room // by limit; nil of those that nobody counts
}

// cell is a record with its place, and the ledger over its entries.
type cell struct {
	law.Record
	id    law.Cell
	there bool // it was in the file before
	t     *transaction
}

func (t *transaction) load(id law.Cell) (*law.Record, error) {
	if c, ok := t.cells[id]; ok {
		return &c.Record, nil
	}
	c := &cell{id: id, t: t}
	c.Log, c.Receipts = c, c
	st := &c.State
	err := t.st.load.QueryRowContext(t.ctx, id.Limit, id.Key).Scan(&st.Kind, &st.Level, &st.Prev, &st.At,
		&st.Unit, &st.Step, &st.EmptyAt, &st.BlockedUntil, &c.Reason)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	c.there = err == nil
	t.cells[id] = c
	t.order = append(t.order, c)
	return &c.Record, nil
}

func (t *transaction) save(c *cell) error {
	if c.Clear {
		if _, err := t.st.clear.ExecContext(t.ctx, c.id.Limit, c.id.Key); err != nil {
			return err
		}
	}
	for _, n := range c.Renew {
		if _, err := t.st.renew.ExecContext(t.ctx, n.To, n.Number); err != nil {
			return err
		}
	}
	for _, l := range c.Lower {
		if _, err := t.st.lower.ExecContext(t.ctx, l.Credits, l.Number); err != nil {
			return err
		}
	}
	for i := range c.Add {
		e := &c.Add[i]
		res, err := t.st.add.ExecContext(t.ctx, c.id.Limit, c.id.Key, e.ID, e.At, e.ExpiresAt, e.KeepUntil,
			e.Cost, e.Granted)
		if err != nil {
			return err
		}
		if e.Number, err = res.LastInsertId(); err != nil {
			return err
		}
	}
	if err := t.saveRegister(c); err != nil {
		return err
	}
	st := &c.State
	switch {
	case st.Kind == 0 && c.Gone:
		_, err := t.st.remove.ExecContext(t.ctx, c.id.Limit, c.id.Key)
		return err
	case st.Kind != 0 && c.Dirty, c.Dirty && law.IsShared(c.id):
		_, err := t.st.save.ExecContext(t.ctx, c.id.Limit, c.id.Key, st.Kind, st.Level, st.Prev, st.At,
			st.Unit, st.Step, st.EmptyAt, st.BlockedUntil, c.Reason)
		return err
	}
	return nil
}

func (t *transaction) saveRegister(c *cell) error {
	if c.Forget {
		if _, err := t.st.forget.ExecContext(t.ctx, c.id.Limit, c.id.Key); err != nil {
			return err
		}
	}
	for i := range c.Admit {
		a := &c.Admit[i]
		c.Number(&a.Outcome)
		if _, err := t.st.admit.ExecContext(t.ctx, c.id.Limit, c.id.Key, a.ID, a.Fingerprint, a.Terms.String(), a.Cost,
			a.Charged(), a.Settled, a.KeepUntil); err != nil {
			return err
		}
	}
	return nil
}

// Receipt implements law.Receipts.
func (c *cell) Receipt(id string) (a law.Receipt, ok bool) {
	var rule, text string
	err := c.t.st.known.QueryRowContext(c.t.ctx, c.id.Limit, c.id.Key, id).Scan(&a.Fingerprint, &rule, &a.Cost, &text,
		&a.Settled, &a.KeepUntil)
	if errors.Is(err, sql.ErrNoRows) {
		return a, false
	}
	if err == nil {
		err = a.SetCharged(text)
	}
	if err == nil {
		a.Terms, err = law.ParseTerms(rule)
	}
	if err != nil {
		c.t.fail(err)
		return a, false
	}
	a.ID = id
	return a, true
}

// Sum implements law.Ledger.
func (c *cell) Sum(after, upto int64) (sum int64) {
	if err := c.t.st.sum.QueryRowContext(c.t.ctx, c.id.Limit, c.id.Key, after, upto).Scan(&sum); err != nil {
		c.t.fail(err)
	}
	return sum
}

// Freed implements law.Ledger.
func (c *cell) Freed(after, need int64) int64 {
	rows, err := c.t.st.freed.QueryContext(c.t.ctx, c.id.Limit, c.id.Key, after)
	if err != nil {
		c.t.fail(err)
		return law.Never
	}
	defer rows.Close()
	for rows.Next() {
		var expires, cost int64
		if err := rows.Scan(&expires, &cost); err != nil {
			c.t.fail(err)
			return law.Never
		}
		if need -= cost; need <= 0 {
			return expires
		}
	}
	if err := rows.Err(); err != nil {
		c.t.fail(err)
	}
	return law.Never
}

// Entry implements law.Ledger.
func (c *cell) Entry(number int64) (credits, expiresAt int64) {
	err := c.t.st.entry.QueryRowContext(c.t.ctx, number, c.id.Limit, c.id.Key).Scan(&credits, &expiresAt)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		c.t.fail(err)
	}
	return credits, expiresAt
}

func (t *transaction) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}
