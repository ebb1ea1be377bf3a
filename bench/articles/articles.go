// Package articles holds the rate limiters that five articles publish. Their code is changed only where it would not
// run; the SQL files note each change. Article 002 repeats the function of article 000; article 004 has no code for its
// bucket in Redis.
package articles

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"math"

	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	//go:embed sql/000_rate_limiting_request.sql
	tokenBucket string
	//go:embed sql/001_check_velocity.sql
	checkVelocity string
	//go:embed sql/001_check_velocity_postgres.sql
	checkVelocityPostgres string
	//go:embed sql/003_request_token.sql
	requestToken string
	//go:embed sql/003_request_token_postgres.sql
	requestTokenPostgres string
	//go:embed sql/004_leaky_buckets.sql
	leakyBuckets string
	//go:embed sql/004_fillup.sql
	fillUp string
	//go:embed sql/004_prune.sql
	prune string
)

// Postgres returns the statements that make the tables and functions of articles 000 and 004, and those of 001 and 003
// as translated to PostgreSQL.
func Postgres() []string {
	return []string{tokenBucket, leakyBuckets, checkVelocityPostgres, requestTokenPostgres}
}

// MariaDB returns the statements that make the tables and procedures of articles 001 and 003.
func MariaDB() []string { return []string{checkVelocity, requestToken} }

// RateLimitingRequest calls the function of article 000 in one statement. Its bucket has 1000 tokens a second for an
// hour, as in the article's own test.
type RateLimitingRequest struct{ Pool *pgxpool.Pool }

// Allow takes a token from a key's bucket.
func (r RateLimitingRequest) Allow(ctx context.Context, key string) (bool, error) {
	var remaining int
	err := r.Pool.QueryRow(ctx, "select rate_limiting_request($1, 1000, 3600)", key).Scan(&remaining)
	return err == nil && remaining >= 0, err
}

// LeakyBucket calls the fillup of article 004, and prunes after every call as the article does.
type LeakyBucket struct{ Pool *pgxpool.Pool }

const capacity, leakRate = 100_000.0, 1000.0 / (365 * 86400) // a unit takes nine hours to drain

// Allow pours one unit into a bucket. The article calls it full when its level is within 0.01 unit of its capacity.
func (l LeakyBucket) Allow(ctx context.Context, key string) (bool, error) {
	var level float64
	if err := l.Pool.QueryRow(ctx, fillUp, key, capacity, 1.0, leakRate, 2*capacity/leakRate).Scan(&level); err != nil {
		return false, err
	}
	_, err := l.Pool.Exec(ctx, prune)
	return math.Abs(capacity-level) >= 0.01, err
}

// CheckVelocity calls the procedure of article 001 for zone 1: 5 in 60 s.
type CheckVelocity struct{ DB *sql.DB }

// Forget empties the log, which grows with every call.
func (c CheckVelocity) Forget(ctx context.Context) error {
	_, err := c.DB.ExecContext(ctx, "TRUNCATE zone_txn")
	return err
}

// Allow calls the procedure. The first result set is from the lock, the second has the decision.
func (c CheckVelocity) Allow(ctx context.Context, key string) (bool, error) {
	rows, err := c.DB.QueryContext(ctx, "CALL check_velocity(1, ?)", key)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for more := true; more; more = rows.NextResultSet() {
		columns, err := rows.Columns()
		if err != nil {
			return false, err
		}
		if len(columns) == 6 && rows.Next() {
			var blocked int
			var rest [5]any
			err := rows.Scan(&blocked, &rest[0], &rest[1], &rest[2], &rest[3], &rest[4])
			return blocked == 0, errors.Join(err, rows.Close())
		}
	}
	return false, errors.Join(errors.New("check_velocity has not answered"), rows.Err())
}

// RequestToken calls the procedure of article 003. The driver prepares, executes and closes the statement in each call,
// unless DB was opened with interpolateParams=true: then it is one round trip.
type RequestToken struct{ DB *sql.DB }

// Allow takes one token of a key's bucket.
func (r RequestToken) Allow(ctx context.Context, key string) (bool, error) {
	result, err := r.DB.ExecContext(ctx, "CALL request_token(?)", key)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
