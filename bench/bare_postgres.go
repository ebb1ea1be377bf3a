package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/bench/rivals"
	"github.com/headgate/headgate/internal/load"
)

// The bare statements of PostgreSQL: rows by a primary key of two texts, one prepared statement
// in a round trip, no function. They use no table and no statement of Headgate's.
const (
	bareTable = "CREATE TABLE bare (limit_name varchar(100) NOT NULL, k varchar(100) NOT NULL, level bigint NOT NULL, " +
		"at bigint NOT NULL, empty_at bigint NOT NULL, PRIMARY KEY (limit_name, k))"
	bareIDs   = "CREATE TABLE bare_ids (id varchar(100) PRIMARY KEY, settled boolean NOT NULL)"
	bareLimit = "token-bucket 1000000000/1h burst 1000000000"

	bareUpdate = "UPDATE bare SET level = level + 1, at = $3::bigint, empty_at = $3::bigint + 1 " +
		"WHERE limit_name = $1 AND k = $2 AND level <= 1000000000000 RETURNING level, at"
	bareUpsert = "INSERT INTO bare VALUES ($1, $2, 1, $3::bigint, $3::bigint + 1) ON CONFLICT (limit_name, k) DO UPDATE " +
		"SET level = bare.level + 1, at = $3::bigint, empty_at = $3::bigint + 1 WHERE bare.level <= 1000000000000 " +
		"RETURNING level, at"
	bareSeveral = "UPDATE bare SET level = level + 1, at = $3::bigint, empty_at = $3::bigint + 1 " +
		"WHERE limit_name = $1 AND k = ANY ($2::text[]) AND level <= 1000000000000"
	bareFirst = "WITH i AS (INSERT INTO bare_ids VALUES ($4, false)) " + bareSeveral
	bareLast  = "WITH i AS (UPDATE bare_ids SET settled = true WHERE id = $4) UPDATE bare SET level = level - 1, at = $3::bigint " +
		"WHERE limit_name = $1 AND k = ANY ($2::text[])"
)

// barePostgres is the bare statement on a table of its own.
type barePostgres struct{ pool *pgxpool.Pool }

// fill makes the table, and the rows of keys and of those of several limits.
func (p barePostgres) fill(ctx context.Context, keys []string) error {
	for _, text := range []string{bareTable + " WITH (fillfactor = 66)", bareIDs} {
		if _, err := p.pool.Exec(ctx, text); err != nil {
			return err
		}
	}
	lists := [][]string{keys}
	if len(keys) > 1 {
		lists = append(lists, kindKeys(len(kinds), 1<<30)...)
	}
	for _, list := range lists {
		if _, err := p.pool.Exec(ctx, "INSERT INTO bare SELECT $1, k, 0, 0, 0 FROM unnest($2::text[]) k "+
			"ON CONFLICT DO NOTHING", bareLimit, list); err != nil {
			return err
		}
	}
	_, err := p.pool.Exec(ctx, "VACUUM ANALYZE bare")
	return err
}

// by returns the limiter of a statement on one key.
func (p barePostgres) by(text string) rivals.Limiter {
	return rivals.Func(func(ctx context.Context, key string) (bool, error) {
		var level, at int64
		err := p.pool.QueryRow(ctx, text, bareLimit, key, time.Now().UnixMicro()).Scan(&level, &at)
		return err == nil, err
	})
}

// empty removes all rows, and gives their room back.
func (p barePostgres) empty(ctx context.Context) error { return emptied(ctx, p.pool, "bare") }

func emptied(ctx context.Context, p *pgxpool.Pool, table string) error {
	for _, text := range []string{"DELETE FROM " + table, "VACUUM (ANALYZE, TRUNCATE) " + table} {
		if _, err := p.Exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// emptyHeadgate removes Headgate's rows.
func emptyHeadgate(ctx context.Context, dsn string) error {
	p, err := pool(ctx, dsn, 1, committed)
	if err != nil {
		return err
	}
	defer p.Close()
	return emptied(ctx, p, "headgate.cells")
}

// many updates the rows of several keys in one statement. With ids, that statement keeps the id,
// and a second one settles. The rows of a statement are locked in the order of the index.
func (p barePostgres) many(keys [][]string, ids bool) load.Ask {
	return func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
		list := make([]string, len(keys))
		for i := range keys {
			list[i] = keys[i][rng.IntN(len(keys[i]))]
		}
		now := time.Now().UnixMicro()
		if !ids {
			_, err := p.pool.Exec(ctx, bareSeveral, bareLimit, list, now)
			return err == nil, err
		}
		id := fresh()
		if _, err := p.pool.Exec(ctx, bareFirst, bareLimit, list, now, id); err != nil {
			return false, err
		}
		_, err := p.pool.Exec(ctx, bareLast, bareLimit, list, now, id)
		return err == nil, err
	}
}

// batch updates the rows of many keys in one statement.
func (p barePostgres) batch(keys []string) func(n int) load.Ask {
	return func(n int) load.Ask {
		return func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
			_, err := p.pool.Exec(ctx, bareSeveral, bareLimit, several(keys, n, rng), time.Now().UnixMicro())
			return err == nil, err
		}
	}
}

// indexed has connections use the primary key whatever the statistics say.
func indexed(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "SET enable_seqscan = off; SET enable_bitmapscan = off; "+
		"SET plan_cache_mode = 'force_generic_plan'")
	return err
}
