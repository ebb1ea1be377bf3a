package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Apply implements store.Store: one immediate transaction. Cells are read, package law
// decides, and what changed is written.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := s.transact(ctx, "apply", func(ctx context.Context) error {
		t := newTransaction(ctx, &s.stmts, len(ops))
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
		law.Apply(ops, outs, s.clock(), records) // the clock is read under the lock
		if t.err != nil {
			return t.err
		}
		for _, c := range t.order {
			if c.Forget && c.there {
				if err := t.requests.forget(c.id); err != nil {
					return err
				}
			}
		}
		for _, c := range t.order {
			if err := t.save(c); err != nil {
				return err
			}
		}
		if err := t.requests.save(); err != nil {
			return err
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

	requests requests
}

// cell is a record with its place, and the ledger over its entries.
type cell struct {
	law.Record
	id    law.Cell
	there bool // it was in the file before
	t     *transaction
}

func newTransaction(ctx context.Context, st *statements, ops int) *transaction {
	return &transaction{
		ctx: ctx, st: st, cells: make(map[law.Cell]*cell, ops), requests: requests{ctx: ctx, st: st},
	}
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
	for i := range c.Admit {
		a := &c.Admit[i]
		c.Number(&a.Outcome)
		if err := t.requests.admit(c.id, a); err != nil {
			return err
		}
	}
	return t.saveState(c)
}

// saveState writes what is in use in a cell, and for how long ids are known there.
func (t *transaction) saveState(c *cell) error {
	until := int64(0)
	for i := range c.Admit {
		until = max(until, c.Admit[i].KeepUntil)
	}
	st := &c.State
	switch {
	case st.Kind == 0 && c.Gone:
		_, err := t.st.remove.ExecContext(t.ctx, c.id.Limit, c.id.Key)
		return err
	case st.Kind != 0 && c.Dirty:
		_, err := t.st.save.ExecContext(t.ctx, c.id.Limit, c.id.Key, st.Kind, st.Level, st.Prev, st.At,
			st.Unit, st.Step, st.EmptyAt, st.BlockedUntil, c.Reason, until)
		return err
	case until > 0:
		_, err := t.st.keep.ExecContext(t.ctx, c.id.Limit, c.id.Key, until)
		return err
	}
	return nil
}

// Receipt implements law.Receipts.
func (c *cell) Receipt(id string) (a law.Receipt, ok bool) {
	if !c.there {
		return a, false // it stays for as long as an id is known in it
	}
	a, ok, err := c.t.requests.receipt(c.id, id)
	if err != nil {
		c.t.fail(err)
	}
	return a, ok
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
