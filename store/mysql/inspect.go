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
	if err := s.ready(ctx); err != nil {
		return nil, 0, err
	}
	if err := q.Valid(); err != nil {
		return nil, 0, err
	}
	err = s.anywhere(func(db querier) error {
		cells = nil
		if now, err = clock(ctx, db); err != nil {
			return err
		}
		cells, err = listCells(ctx, db, q, now)
		return err
	})
	return cells, now, err
}

func listCells(ctx context.Context, db querier, q store.Query, now int64) (cells []store.Cell, err error) {
	var b strings.Builder
	b.WriteString(`SELECT limit_name, cell_key, law, level, prev, at, unit, step, empty_at, blocked_until, reason
		FROM headgate_cells WHERE law <> 0`)
	if q.Limit != "" {
		b.WriteString(" AND limit_name = " + quoted(q.Limit))
	}
	if q.HasKey {
		b.WriteString(" AND cell_key = " + quoted(q.Key))
	}
	if q.Blocked {
		fmt.Fprintf(&b, " AND blocked_until > %d", now)
	}
	if q.After != (law.Cell{}) {
		b.WriteString(" AND " + afterCell(q.After))
	}
	fmt.Fprintf(&b, " ORDER BY limit_name, cell_key LIMIT %d", q.Most())
	rows, err := db.QueryContext(ctx, b.String())
	if err != nil {
		return nil, classify("list cells", err)
	}
	defer rows.Close()
	for rows.Next() {
		var c store.Cell
		if err := rows.Scan(&c.Limit, &c.Key, &c.State.Kind, &c.State.Level, &c.State.Prev, &c.State.At,
			&c.State.Unit, &c.State.Step, &c.State.EmptyAt, &c.State.BlockedUntil, &c.Reason); err != nil {
			return nil, classify("list cells", err)
		}
		cells = append(cells, c)
	}
	if err := rows.Err(); err != nil {
		return nil, classify("list cells", err)
	}
	return cells, nil
}

// Entries implements store.Inspector.
func (s *Store) Entries(ctx context.Context, cell law.Cell, n int) (entries []law.Entry, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if err := store.ValidEntries(cell, n); err != nil {
		return nil, err
	}
	err = s.anywhere(func(db querier) error {
		entries, err = listEntries(ctx, db, cell, n)
		return err
	})
	return entries, err
}

func listEntries(ctx context.Context, db querier, cell law.Cell, n int) (entries []law.Entry, err error) {
	var b strings.Builder
	b.WriteString("SELECT number, id, at, expires_at, keep_until, cost, granted FROM headgate_entries WHERE ")
	ofCell(&b, cell)
	fmt.Fprintf(&b, " ORDER BY number DESC LIMIT %d", max(n, 0))
	rows, err := db.QueryContext(ctx, b.String())
	if err != nil {
		return nil, classify("list entries", err)
	}
	defer rows.Close()
	for rows.Next() {
		var e law.Entry
		if err := rows.Scan(&e.Number, &e.ID, &e.At, &e.ExpiresAt, &e.KeepUntil, &e.Cost, &e.Granted); err != nil {
			return nil, classify("list entries", err)
		}
		entries = append(entries, e)
	}
	if err := rows.Err(); err != nil {
		return nil, classify("list entries", err)
	}
	return entries, nil
}
