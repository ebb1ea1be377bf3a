package articles

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// InstallMariaDB makes the tables and procedures of articles 001 and 003.
func InstallMariaDB(ctx context.Context, db *sql.DB) error {
	for _, s := range append(statements(checkVelocity), statements(requestToken)...) {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%.60s: %w", s, err)
		}
	}
	return nil
}

// The zones of article 001.
const (
	Login     = 1 // 5 in 60 s
	LoginRate = 5
	Counted   = 2 // 100 in 60 s
	Rate      = 100
)

// CheckVelocity is article 001's procedure, for a zone.
type CheckVelocity struct {
	DB   *sql.DB
	Zone int
}

// Fill makes the locks of keys, so that none is made while it is measured.
func (c *CheckVelocity) Fill(ctx context.Context, keys []string) error {
	return insert(ctx, c.DB, "zone_bucket_lock (bucket_key)", "(?)", keys)
}

// Forget empties the log, which grows with every call.
func (c *CheckVelocity) Forget(ctx context.Context) error {
	_, err := c.DB.ExecContext(ctx, "TRUNCATE zone_txn")
	return err
}

// Allow calls the procedure, which answers with two sets of rows: the lock's,
// which nobody needs, and the decision.
func (c *CheckVelocity) Allow(ctx context.Context, key string) (bool, error) {
	rows, err := c.DB.QueryContext(ctx, "CALL check_velocity(?, ?)", c.Zone, key)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	blocked, answered := 1, false
	for {
		columns, err := rows.Columns()
		if err != nil {
			return false, err
		}
		for rows.Next() {
			if len(columns) == 6 {
				var rest [5]any
				if err := rows.Scan(&blocked, &rest[0], &rest[1], &rest[2], &rest[3], &rest[4]); err != nil {
					return false, err
				}
				answered = true
			}
		}
		if !rows.NextResultSet() {
			break
		}
	}
	if err := rows.Err(); err != nil {
		return false, err
	}
	if !answered {
		return false, errors.New("check_velocity has not answered")
	}
	return blocked == 0, nil
}

// RequestToken is article 003's SQLTokenRequester. Its statement is prepared,
// executed and closed in each call, unless DB was opened with
// interpolateParams=true: then it is one round trip.
type RequestToken struct {
	DB                      *sql.DB
	Capacity, RefillSeconds int
}

// Fill makes full buckets.
func (r *RequestToken) Fill(ctx context.Context, keys []string) error {
	row := fmt.Sprintf("(?, %d, %[1]d, %d, NOW(3))", r.Capacity, r.RefillSeconds)
	return insert(ctx, r.DB, "token_buckets", row, keys)
}

// Allow requests a token of a key's bucket.
func (r *RequestToken) Allow(ctx context.Context, key string) (bool, error) {
	result, err := r.DB.ExecContext(ctx, "CALL request_token(?)", key)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// insert inserts a row for each key, many in a statement.
func insert(ctx context.Context, db *sql.DB, table, row string, keys []string) error {
	for len(keys) > 0 {
		n := min(len(keys), 1000)
		args := make([]any, n)
		for i, key := range keys[:n] {
			args[i] = key
		}
		text := "INSERT IGNORE INTO " + table + " VALUES " + strings.Repeat(row+", ", n-1) + row
		if _, err := db.ExecContext(ctx, text, args...); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}
