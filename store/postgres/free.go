package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/law"
)

// heldLately is for how long after a batch has met a held row all that waits returns.
const heldLately = 10 * time.Second

// applyPassing applies a batch of store.PassHeld. It waits for 50 ms for what others have locked.
// After that it has done nothing; one statement looks which rows are free, and the ops on
// these are applied. Cells that are not there count as held, as somebody may be about to
// commit them.
//
// What has nothing to do but to wait for a row does not do so in one statement: its snapshot
// would keep the old versions of all rows that others update meanwhile.
func (s *Store) applyPassing(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	lately := time.Since(begun)-time.Duration(s.heldAt.Load()) < heldLately
	switch {
	case len(ops) == 1 && !lately:
		return s.apply(ctx, ops, outs)
	case len(ops) == 1:
		return s.applyReturning(ctx, ops, outs)
	}
	err := s.apply(context.WithValue(ctx, impatience{}, givesWay), ops, outs)
	if !waited(err) {
		return err
	}
	s.heldAt.Store(int64(time.Since(begun)))
	held, err := s.held(ctx, ops)
	if err != nil {
		return err
	}
	return wrap.PassBy(ctx, ops, outs, held, s.applyReturning)
}

// begun is what Store.heldAt counts from.
var begun = time.Now().Add(-2 * heldLately) //nolint:forbidigo // a pause, not a decision

func (s *Store) applyReturning(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	return s.apply(context.WithValue(ctx, impatience{}, returns), ops, outs)
}

// held returns which ops of a batch have a cell that is not there, or that another transaction
// has locked. Ops of invalid groups, which wait for nothing, do not count.
func (s *Store) held(ctx context.Context, ops []law.Op) (held []bool, err error) {
	outs := make([]law.Outcome, len(ops))
	a := arrange(ops, outs)
	limits, keys := a.names()
	rows, err := s.pool.Query(ctx, `select c.limit_name, c.key from unnest($1::text[], $2::text[]) u(l, k), lateral (
		select e.limit_name, e.key from headgate.cells e where e.limit_name = u.l and e.key = u.k
		for no key update skip locked) c`, limits, keys)
	if err != nil {
		return nil, classifyRead(fmt.Sprintf("look for what is free of %d ops", len(ops)), err)
	}
	defer rows.Close()
	free := make(map[law.Cell]bool, len(limits))
	for rows.Next() {
		var c law.Cell
		if err := rows.Scan(&c.Limit, &c.Key); err != nil {
			return nil, classifyRead("look for what is free", err)
		}
		free[c] = true
	}
	if err := rows.Err(); err != nil {
		return nil, classifyRead("look for what is free", err)
	}
	held = make([]bool, len(ops))
	for i := range ops {
		held[i] = !free[ops[i].Cell] && outs[i].Err == nil
	}
	return held, nil
}
