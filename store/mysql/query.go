package mysql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/headgate/headgate/store"
)

// querier is a pool, a connection or a transaction. Its statements have no arguments: see writeLiteral.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// readOnAnyNode calls do, which only reads, on a node that can be reached. It classifies the error of do.
func (s *Store) readOnAnyNode(ctx context.Context, action string, do func(querier) error) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.onAnyNode(func(db querier) error {
		err := do(db)
		if store.Class(err) != nil {
			return err
		}
		return classifyRead(action, err)
	})
}

// eachRow calls do for each row of all results of a query. The first error of do ends it.
func eachRow(ctx context.Context, db querier, query string, do func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for hasResult := true; hasResult; hasResult = rows.NextResultSet() {
		for rows.Next() {
			if err := do(rows); err != nil {
				return err
			}
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// readList returns a T for each row of a query. fields returns where to store a row's columns in a T.
func readList[T any](ctx context.Context, db querier, query string, fields func(*T) []any) (list []T, err error) {
	err = eachRow(ctx, db, query, func(r *sql.Rows) error {
		var zero T
		list = append(list, zero)
		return r.Scan(fields(&list[len(list)-1])...)
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// scanLast reads the last row of the results of a text; none is an error.
func scanLast(ctx context.Context, db querier, text string, to ...any) error {
	found := false
	err := eachRow(ctx, db, text, func(r *sql.Rows) error {
		found = true
		return r.Scan(to...)
	})
	if err == nil && !found {
		return errors.New("the server's answer makes no sense: it has no row")
	}
	return err
}
