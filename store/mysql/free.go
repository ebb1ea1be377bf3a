package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// applyFree decides the groups whose cells no other transaction has locked. The other groups get store.ErrHeld; if that
// would be all groups, applyFree waits for the locks. Missing cells count as locked.
func (s *Store) applyFree(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) error {
	cells := make([]law.Cell, len(ops))
	for i := range ops {
		cells[i] = ops[i].Cell
	}
	slices.SortFunc(cells, law.Cell.Compare)
	cells = slices.Compact(cells)
	held := make([]bool, len(ops)) // for each op, whether its cell counts as locked
	err := withFreeCells(ctx, n, cells, func(_ *sql.Conn, free []law.Cell) error {
		for i := range ops {
			_, found := slices.BinarySearchFunc(free, ops[i].Cell, law.Cell.Compare)
			held[i] = !found
		}
		return nil
	})
	if err != nil {
		return classify(fmt.Sprintf("apply %d ops", len(ops)), undone.wrap(err))
	}
	ctx = store.PassHeld(ctx, false)
	return wrap.PassBy(ctx, ops, outs, held, func(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
		return s.apply(ctx, n, ops, outs)
	})
}

// withFreeCells calls do in a transaction, with those of the existing cells that it could lock: no other transaction
// had locked them. It rolls the transaction back unless do has committed it.
func withFreeCells(ctx context.Context, n *node, cells []law.Cell, do func(*sql.Conn, []law.Cell) error) error {
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return notSent.wrap(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var free []law.Cell
	if _, err = conn.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;START TRANSACTION;"+
		"SAVEPOINT headgate"); err == nil {
		free, err = lockFreeCells(ctx, conn, cells)
	}
	if err == nil {
		err = do(conn, free)
	}
	_, _ = rollBack(ctx, conn, "")
	return err
}

// lockFreeCells locks those of the existing cells that no other transaction has locked, and returns them. Both lists
// are in order. If one of the cells is locked, it tries each half. It does not use SKIP LOCKED, which TiDB accepts
// without locking anything.
func lockFreeCells(ctx context.Context, conn *sql.Conn, cells []law.Cell) ([]law.Cell, error) {
	var b strings.Builder
	b.WriteString("SELECT limit_name,cell_key FROM headgate_cells FORCE INDEX (PRIMARY) WHERE ")
	whereCells(&b, cells)
	free, err := readList(ctx, conn, b.String()+" ORDER BY limit_name,cell_key FOR UPDATE NOWAIT",
		func(c *law.Cell) []any { return []any{&c.Limit, &c.Key} })
	switch {
	case err == nil:
		return free, nil
	case !errors.Is(class(err), store.ErrConflict):
		return nil, err
	case len(cells) == 1:
		return nil, nil
	}
	firstHalf, err := lockFreeCells(ctx, conn, cells[:len(cells)/2])
	if err != nil {
		return nil, err
	}
	secondHalf, err := lockFreeCells(ctx, conn, cells[len(cells)/2:])
	return append(firstHalf, secondHalf...), err
}
