package mysql

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Cells implements store.Inspector.
func (s *Store) Cells(ctx context.Context, q store.Query) (cells []store.Cell, now int64, err error) {
	if err := q.Valid(); err != nil {
		return nil, 0, err
	}
	err = s.readOnAnyNode(ctx, "list cells", func(db querier) error {
		if now, err = clock(ctx, db); err != nil {
			return err
		}
		cells, err = readList(ctx, db, selectCells(q, now), func(c *store.Cell) []any {
			return cellFields(&c.Limit, &c.Key, &c.State, &c.Reason)
		})
		return err
	})
	return cells, now, err
}

// selectCells returns the statement that selects the cells of a query.
func selectCells(q store.Query, now int64) string {
	var b strings.Builder
	b.WriteString("SELECT " + cellColumns + " FROM headgate_cells WHERE law <> 0")
	if q.Limit != "" {
		b.WriteString(" AND limit_name = " + hexLiteral(q.Limit))
	}
	if q.HasKey {
		b.WriteString(" AND cell_key = " + hexLiteral(q.Key))
	}
	if q.Blocked {
		fmt.Fprintf(&b, " AND blocked_until > %d", now)
	}
	if q.After != (law.Cell{}) {
		b.WriteString(" AND " + afterCell(q.After))
	}
	fmt.Fprintf(&b, " ORDER BY limit_name, cell_key LIMIT %d", q.PageSize())
	return b.String()
}

// Entries implements store.Inspector.
func (s *Store) Entries(ctx context.Context, cell law.Cell, n int) (entries []law.Entry, err error) {
	if err := store.ValidEntries(cell, n); err != nil {
		return nil, err
	}
	err = s.readOnAnyNode(ctx, "list entries", func(db querier) error {
		query := "SELECT number, id, at, expires_at, keep_until, cost, granted FROM headgate_entries WHERE " +
			cellCondition(cell) + fmt.Sprintf(" ORDER BY number DESC LIMIT %d", max(n, 0))
		entries, err = readList(ctx, db, query, func(e *law.Entry) []any {
			return []any{&e.Number, &e.ID, &e.At, &e.ExpiresAt, &e.KeepUntil, &e.Cost, &e.Granted}
		})
		return err
	})
	return entries, err
}
