// Package articles holds the limiters that five articles publish, to be
// measured against. Each is mended only where it does not run, and its SQL says
// so. Article 002 repeats the function of article 000; of a bucket in Redis,
// article 004 publishes no code.
package articles

import (
	"context"
	_ "embed"
	"math"
	"strings"

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

// InstallPostgres makes the tables and functions of articles 000 and 004.
func InstallPostgres(ctx context.Context, pool *pgxpool.Pool) error {
	for _, text := range []string{tokenBucket, leakyBuckets} {
		if _, err := pool.Exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// InstallTranslated makes the tables and functions of articles 001 and 003, as translated to
// PostgreSQL.
func InstallTranslated(ctx context.Context, pool *pgxpool.Pool) error {
	for _, text := range []string{checkVelocityPostgres, requestTokenPostgres} {
		if _, err := pool.Exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// RateLimitingRequest is article 000's function: one statement, one decision.
type RateLimitingRequest struct {
	Pool                        *pgxpool.Pool
	RefillPerSec, WindowSeconds int
}

// Fill makes buckets, full.
func (r *RateLimitingRequest) Fill(ctx context.Context, keys []string) error {
	_, err := r.Pool.Exec(ctx, "insert into rate_limiting_token_bucket select k, $2, now() from unnest($1::text[]) "+
		"k on conflict do nothing",
		keys, int64(r.RefillPerSec)*int64(r.WindowSeconds))
	return err
}

// Allow asks for a token of a key's bucket.
func (r *RateLimitingRequest) Allow(ctx context.Context, key string) (bool, error) {
	var left int
	err := r.Pool.QueryRow(ctx, "select rate_limiting_request($1, $2, $3)", key, r.RefillPerSec,
		r.WindowSeconds).Scan(&left)
	return err == nil && left >= 0, err
}

// LeakyBucket is article 004's fillup of one unit.
type LeakyBucket struct {
	Pool               *pgxpool.Pool
	Capacity, LeakRate float64
	NoPrune            bool // leave out the pruning that follows every call
}

// Fill makes buckets that live for an hour and more.
func (l *LeakyBucket) Fill(ctx context.Context, keys []string) error {
	_, err := l.Pool.Exec(ctx, "insert into leaky_buckets select k, 1, clock_timestamp(), clock_timestamp() + '2 "+
		"hours' from unnest($1::text[]) k on conflict do nothing", keys)
	return err
}

// Allow pours one unit into a key's bucket. The article calls it full when it
// is within a hundredth of its capacity.
func (l *LeakyBucket) Allow(ctx context.Context, key string) (bool, error) {
	var level float64
	if err := l.Pool.QueryRow(ctx, fillUp, key, l.Capacity, 1.0, l.LeakRate, 2*l.Capacity/l.LeakRate).Scan(
		&level); err != nil {
		return false, err
	}
	if !l.NoPrune {
		if _, err := l.Pool.Exec(ctx, prune); err != nil {
			return false, err
		}
	}
	return math.Abs(l.Capacity-level) >= 0.01, nil
}

// statements cuts a text into its tables, and its one procedure.
func statements(text string) []string {
	tables, procedure, _ := strings.Cut(text, "-- procedure\n")
	var list []string
	for _, s := range append(strings.Split(tables, ";\n"), procedure) {
		if s = strings.TrimSpace(s); s != "" {
			list = append(list, s)
		}
	}
	return list
}
