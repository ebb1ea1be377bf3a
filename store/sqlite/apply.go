package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	codes "modernc.org/sqlite/lib"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/rows"
)

// Apply implements store.Store. In one immediate transaction it reads the cells, has package law decide, and writes
// what has changed.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := s.transact(ctx, "apply", func(ctx context.Context) error {
		t := &transaction{ctx: ctx, st: &s.stmts, requests: requests{ctx: ctx, st: &s.stmts}}
		batch := rows.New(ops, t)
		for _, c := range batch.Cells {
			if err := t.load(c); err != nil {
				return err
			}
		}
		if err := batch.Decide(outs, s.clock()); err != nil {
			return err
		}
		for _, c := range batch.Cells {
			if c.Forget && c.Found {
				if err := t.requests.forget(c.Name); err != nil {
					return err
				}
			}
		}
		for _, c := range batch.Cells {
			if err := t.save(c); err != nil {
				return err
			}
		}
		if err := t.requests.save(); err != nil {
			return err
		}
		batch.SetEntryNumbers(outs)
		return nil
	})
	if err != nil {
		clear(outs) // they were decided, but not saved
	}
	return err
}

// transact runs do in an immediate transaction. The end of ctx does not cut a transaction short that has begun, so that
// its outcome is known, unless the disk fails.
func (s *Store) transact(ctx context.Context, action string, do func(context.Context) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil { // ctx has ended while others wrote
		return fmt.Errorf("sqlite: %s: %w: %w", action, store.ErrUnavailable, err)
	}
	if err := s.file.check(); err != nil {
		return classify(action, err)
	}
	ctx = context.WithoutCancel(ctx)
	if _, err := s.stmts.begin.ExecContext(ctx); err != nil {
		return classify(action, err)
	}
	if err = do(ctx); err == nil {
		if _, err = s.stmts.commit.ExecContext(ctx); code(err) == codes.SQLITE_IOERR {
			// Nobody knows what has reached the disk: this process sees only its cache.
			err = fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
		}
	}
	if err != nil {
		_, rollbackErr := s.stmts.rollback.ExecContext(ctx)
		return classify(action, errors.Join(err, rollbackErr))
	}
	return nil
}

// transaction reads and writes what a batch needs. It implements rows.Reader.
type transaction struct {
	ctx      context.Context
	st       *statements
	requests requests
	err      error // the first error of save
}

// load reads the row of a cell.
func (t *transaction) load(c *rows.Cell) error {
	st := &c.State
	err := t.st.load.QueryRowContext(t.ctx, c.Name.Limit, c.Name.Key).Scan(&st.Kind, &st.Level, &st.Prev, &st.At,
		&st.Unit, &st.Step, &st.EmptyAt, &st.BlockedUntil, &c.Reason)
	c.Found = err == nil
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// exec executes a statement, unless one has failed before.
func (t *transaction) exec(stmt *sql.Stmt, args ...any) (res sql.Result) {
	if t.err == nil {
		res, t.err = stmt.ExecContext(t.ctx, args...)
	}
	return res
}

// save writes the changes of a cell and of its log, and passes its receipts to requests.
func (t *transaction) save(c *rows.Cell) error {
	limit, key, st, idsUntil := c.Name.Limit, c.Name.Key, &c.State, int64(0)
	if c.Clear {
		t.exec(t.st.clear, limit, key)
	}
	for _, n := range c.Renew {
		t.exec(t.st.renew, n.To, n.Number)
	}
	for _, l := range c.Lower {
		t.exec(t.st.lower, l.Credits, l.Number)
	}
	for i := range c.Add {
		e := &c.Add[i]
		res := t.exec(t.st.add, limit, key, e.ID, e.At, e.ExpiresAt, e.KeepUntil, e.Cost, e.Granted)
		if t.err == nil {
			e.Number, t.err = res.LastInsertId()
		}
	}
	for i := range c.Admit {
		a := &c.Admit[i]
		c.SetEntryNumber(&a.Outcome)
		idsUntil = max(idsUntil, a.KeepUntil) // until then the cell remembers ids
		if t.err == nil {
			t.err = t.requests.admit(c.Name, a)
		}
	}
	switch {
	case st.Kind == 0 && c.Gone:
		t.exec(t.st.remove, limit, key)
	case st.Kind != 0 && c.Dirty:
		t.exec(t.st.save, limit, key, st.Kind, st.Level, st.Prev, st.At, st.Unit, st.Step, st.EmptyAt,
			st.BlockedUntil, c.Reason, idsUntil)
	case idsUntil > 0:
		t.exec(t.st.keepIDs, limit, key, idsUntil)
	}
	return t.err
}

// Receipt implements rows.Reader.
func (t *transaction) Receipt(cell law.Cell, id string) (a law.Receipt, ok bool, err error) {
	return t.requests.receipt(cell, id)
}

// Sum implements rows.Reader.
func (t *transaction) Sum(cell law.Cell, after, upto int64) (sum int64, err error) {
	err = t.st.sum.QueryRowContext(t.ctx, cell.Limit, cell.Key, after, upto).Scan(&sum)
	return sum, err
}

// Freed implements rows.Reader.
func (t *transaction) Freed(cell law.Cell, after, need int64) (int64, error) {
	entries, err := t.st.freed.QueryContext(t.ctx, cell.Limit, cell.Key, after)
	if err != nil {
		return 0, err
	}
	defer entries.Close()
	for entries.Next() {
		var expires, cost int64
		if err := entries.Scan(&expires, &cost); err != nil {
			return 0, err
		}
		if need -= cost; need <= 0 {
			return expires, nil
		}
	}
	return law.Never, entries.Err()
}

// Entry implements rows.Reader.
func (t *transaction) Entry(cell law.Cell, number int64) (credits, expiresAt int64, err error) {
	err = t.st.entry.QueryRowContext(t.ctx, number, cell.Limit, cell.Key).Scan(&credits, &expiresAt)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return credits, expiresAt, err
}
