package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/law"
)

// heldMemory is how long after a batch has met a held row even single ops wait in short transactions.
const heldMemory = 10 * time.Second

// applyPassing applies a batch of store.PassHeld. It waits up to 50 ms for rows that others have
// locked, and has done nothing if that was too short. Then one statement finds the free rows, and
// the ops on them are applied. Missing cells count as held, since another transaction may be about
// to commit them.
//
// An op that only waits for a row does not wait in one long statement: the snapshot of the statement
// would keep the old versions of all rows that others update meanwhile.
func (s *Store) applyPassing(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	heldRecently := time.Since(clockStart)-time.Duration(s.lastHeld.Load()) < heldMemory
	switch {
	case len(ops) == 1 && !heldRecently:
		return s.apply(ctx, ops, outs)
	case len(ops) == 1:
		return s.applyInShortWaits(ctx, ops, outs)
	}
	err := s.apply(context.WithValue(ctx, lockWaitKey{}, lockGiveUp), ops, outs)
	if !isLockWait(err) {
		return err
	}
	s.lastHeld.Store(int64(time.Since(clockStart)))
	held, err := s.heldOps(ctx, ops)
	if err != nil {
		return err
	}
	return wrap.PassBy(ctx, ops, outs, held, s.applyInShortWaits)
}

// clockStart is the time from which Store.lastHeld counts.
var clockStart = time.Now().Add(-2 * heldMemory) //nolint:forbidigo // a pause, not a decision

// applyInShortWaits applies ops, and waits for locks in one short transaction after another.
func (s *Store) applyInShortWaits(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	return s.apply(context.WithValue(ctx, lockWaitKey{}, lockRetry), ops, outs)
}

// heldOps returns which ops of a batch have a cell that is missing, or that another transaction
// has locked. Ops of invalid groups do not count: they wait for nothing.
func (s *Store) heldOps(ctx context.Context, ops []law.Op) (held []bool, err error) {
	outs := make([]law.Outcome, len(ops))
	valid := arrange(ops, outs)
	limits, keys := valid.names()
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
