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

// applyFree decides those groups of a batch of which nobody else has locked a cell. Cells that do not exist count as
// locked: their groups are soon decided without the others.
func (s *Store) applyFree(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) error {
	cells := make([]law.Cell, len(ops))
	for i := range ops {
		cells[i] = ops[i].Cell
	}
	slices.SortFunc(cells, law.Cell.Compare)
	cells = slices.Compact(cells)
	held := make([]bool, len(ops))
	err := holdFree(ctx, n, cells, func(_ *sql.Conn, free []law.Cell) error {
		for i := range ops {
			_, found := slices.BinarySearchFunc(free, ops[i].Cell, law.Cell.Compare)
			held[i] = !found
		}
		return nil
	})
	if err != nil {
		return classify(fmt.Sprintf("apply %d ops", len(ops)), undone.of(err))
	}
	ctx = store.PassHeld(ctx, false)
	return wrap.PassBy(ctx, ops, outs, held, func(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
		return s.apply(ctx, n, ops, outs)
	})
}

// holdFree calls do in a transaction that has locked those of the cells that exist and that nobody else has locked.
// What do does not commit is rolled back.
func holdFree(ctx context.Context, n *node, cells []law.Cell, do func(*sql.Conn, []law.Cell) error) error {
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return notSent.of(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var free []law.Cell
	if _, err = conn.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;START TRANSACTION;"+
		"SAVEPOINT headgate"); err == nil {
		free, err = findFree(ctx, conn, cells)
	}
	if err == nil {
		err = do(conn, free)
	}
	_, _ = abandon(ctx, conn, "")
	return err
}

// findFree locks those of the cells that exist and that nobody else has locked, and returns them. Both lists are in
// order. Where one of the cells is locked, it tries each half. TiDB accepts SKIP LOCKED, and then locks nothing.
func findFree(ctx context.Context, conn *sql.Conn, cells []law.Cell) ([]law.Cell, error) {
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
	first, err := findFree(ctx, conn, cells[:len(cells)/2])
	if err != nil {
		return nil, err
	}
	second, err := findFree(ctx, conn, cells[len(cells)/2:])
	return append(first, second...), err
}
