package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/law"
)

// shortWaitPeriod is how long after a batch has met a locked row single ops wait in short transactions.
const shortWaitPeriod = 10 * time.Second

// applyPassHeld applies a batch with store.PassHeld. It waits up to shortLockTimeout for rows that others have locked.
// If a row stays locked, the batch has charged nothing yet. Then one statement finds the rows without a lock, and only
// groups on these rows are applied. A missing cell counts as locked: another transaction may be about to commit it.
//
// For a while after that, a single op does not wait for its row in one long statement: the snapshot of the statement
// would keep the old versions of all rows that others update meanwhile.
func (s *Store) applyPassHeld(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	metLockRecently := time.Since(clockStart)-time.Duration(s.lastHeld.Load()) < shortWaitPeriod
	switch {
	case len(ops) == 1 && !metLockRecently:
		return s.apply(ctx, ops, outs)
	case len(ops) == 1:
		return s.applyInShortWaits(ctx, ops, outs)
	}
	err := s.apply(context.WithValue(ctx, lockWaitKey{}, lockGiveUp), ops, outs)
	if !isLockWait(err) {
		return err
	}
	s.lastHeld.Store(int64(time.Since(clockStart)))
	isHeld, err := s.heldOps(ctx, ops)
	if err != nil {
		return err
	}
	return wrap.PassBy(ctx, ops, outs, isHeld, s.applyInShortWaits)
}

// clockStart is the time from which Store.lastHeld counts: so long ago that a lastHeld of 0 is not recent.
var clockStart = time.Now().Add(-2 * shortWaitPeriod) //nolint:forbidigo // a pause, not a decision

// applyInShortWaits applies ops, and waits for locks in one short transaction after another.
func (s *Store) applyInShortWaits(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	return s.apply(context.WithValue(ctx, lockWaitKey{}, lockRetry), ops, outs)
}

// heldOps returns for each op whether its cell is missing, or locked by another transaction. Ops of invalid groups are
// not held, since they wait for nothing.
func (s *Store) heldOps(ctx context.Context, ops []law.Op) (isHeld []bool, err error) {
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
	unlocked := make(map[law.Cell]bool, len(limits))
	for rows.Next() {
		var c law.Cell
		if err := rows.Scan(&c.Limit, &c.Key); err != nil {
			return nil, classifyRead("look for what is free", err)
		}
		unlocked[c] = true
	}
	if err := rows.Err(); err != nil {
		return nil, classifyRead("look for what is free", err)
	}
	isHeld = make([]bool, len(ops))
	for i := range ops {
		isHeld[i] = !unlocked[ops[i].Cell] && outs[i].Err == nil
	}
	return isHeld, nil
}
