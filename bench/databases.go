package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/articles"
	"github.com/headgate/headgate/internal/testing/dbtest"
)

// The bare statements of PostgreSQL and MariaDB: rows by a primary key of two texts, one prepared statement in a round
// trip, no function. They use no table and no statement of Headgate's.
const (
	bareTable = "CREATE TABLE bare (limit_name varchar(100) NOT NULL, k varchar(100) NOT NULL, " +
		"level bigint NOT NULL, at bigint NOT NULL, empty_at bigint NOT NULL, PRIMARY KEY (limit_name, k))"
	bareLimit = "token-bucket 1000000000/1h burst 1000000000"
)

const poolSize = "?pool_max_conns=32" // behind the URL of a database

// postgresField compares articles 000 and 004 and a bare UPDATE on PostgreSQL. Every answer is on disk before it
// is given.
func (b *bench) postgresField() *field {
	return &field{
		name: "postgres", title: "PostgreSQL", url: b.postgres, processes: true, clients: []int{8, 32},
		workloads: append(slices.Clone(workloads), workload{
			"leaky", "leaky buckets, 100,000 keys", []string{leaky}, 100_000, false, []shape{{1, 512}},
		}),
		prepareOthers: func(ctx context.Context, url string) error {
			numbers := fmt.Sprintf(" from generate_series(0, %d) i", otherKeys-1)
			return execPostgres(ctx, url, append(articles.Postgres(),
				"insert into rate_limiting_token_bucket select 'user:' || i, 3600000, now()"+numbers, // full buckets
				"insert into leaky_buckets select 'user:' || i, 1, clock_timestamp(), clock_timestamp() + '2 hours'"+
					numbers,
				bareTable+" WITH (fillfactor = 66)",
				"INSERT INTO bare SELECT '"+bareLimit+"', 'user:' || i, 0, 0, 0"+numbers, "VACUUM ANALYZE bare"))
		},
		connectOthers: func(ctx context.Context, at string) (others []other, stop func(), err error) {
			pool, err := pgxpool.New(ctx, at+poolSize)
			if err != nil {
				return nil, nil, err
			}
			// Connections of the bare statements use the primary key whatever the statistics say.
			direct, err := pgxpool.New(ctx, at+poolSize+
				"&enable_seqscan=off&enable_bitmapscan=off&plan_cache_mode=force_generic_plan")
			if err != nil {
				pool.Close()
				return nil, nil, err
			}
			first, last := articles.RateLimitingRequest{Pool: pool}, articles.LeakyBucket{Pool: pool}
			return []other{
				{side: rival, name: "article 000", calls: map[string]decide[[]string]{
					"hot": firstKey(first.Allow), "plain": firstKey(first.Allow), "new": firstKey(first.Allow),
				}},
				{side: rival, name: "article 004", calls: map[string]decide[[]string]{"leaky": firstKey(last.Allow)}},
				barePostgres(direct),
			}, func() { direct.Close(); pool.Close() }, nil
		},
	}
}

// bareOther measures bare statements: one updates a key, fresh inserts new keys, several updates keys together. Each
// call has the deadline of a Limiter's.
func bareOther(name string, one, fresh, several decide[[]string]) other {
	return other{side: ceiling, name: name, calls: map[string]decide[[]string]{
		"hot": one, "plain": one, "window": one, "log": one, "leaky": one, "new": fresh, "limits-3": several,
		"settled-3": several, "limits-6": several, "settled-6": several,
	}}
}

func barePostgres(pool *pgxpool.Pool) other {
	one := func(text string) func(context.Context, string) (bool, error) {
		return func(ctx context.Context, key string) (bool, error) {
			var level, at int64
			ctx, cancel := context.WithTimeout(ctx, headgate.DefaultTimeout)
			defer cancel()
			err := pool.QueryRow(ctx, text, bareLimit, key, time.Now().UnixMicro()).Scan(&level, &at)
			return err == nil, err
		}
	}
	update := one("UPDATE bare SET level = level + 1, at = $3::bigint, empty_at = $3::bigint + 1 " +
		"WHERE limit_name = $1 AND k = $2 AND level <= 1000000000000 RETURNING level, at")
	insert := one("INSERT INTO bare VALUES ($1, $2, 1, $3::bigint, $3::bigint + 1) " +
		"ON CONFLICT (limit_name, k) DO UPDATE SET level = bare.level + 1, at = $3::bigint, " +
		"empty_at = $3::bigint + 1 RETURNING level, at")
	several := func(ctx context.Context, keys []string) (bool, error) { // it locks in the order of the index
		ctx, cancel := context.WithTimeout(ctx, headgate.DefaultTimeout)
		defer cancel()
		_, err := pool.Exec(ctx, "UPDATE bare SET level = level + 1, at = $3::bigint, empty_at = $3::bigint + 1 "+
			"WHERE limit_name = $1 AND k = ANY ($2::text[]) AND level <= 1000000000000", bareLimit, keys,
			time.Now().UnixMicro())
		return err == nil, err
	}
	return bareOther("a bare UPDATE", firstKey(update), firstKey(insert), several)
}

// mariadbField compares articles 001 and 003 and a bare UPDATE on MariaDB. The log is flushed at every commit.
func (b *bench) mariadbField() *field {
	name, title := "mariadb", "MariaDB"
	if strings.HasPrefix(os.Getenv("HEADGATE_TEST_ENGINE"), "mysql") { // that engine is started instead
		name, title = "mysql", "MySQL"
	}
	return &field{
		name: name, title: title, workloads: workloads, processes: true, url: b.mariadb, clients: []int{8, 32},
		prepareOthers: func(ctx context.Context, url string) error {
			return execMariaDB(ctx, url, append(articles.MariaDB(), bareTable,
				// MySQL has no sequences.
				fmt.Sprintf("INSERT INTO bare SELECT '%s', CONCAT('user:', i - 1), 0, 0, 0 FROM "+
					"JSON_TABLE(CONCAT('[', REPEAT('0,', %d), '0]'), '$[*]' COLUMNS (i FOR ORDINALITY)) t", bareLimit,
					otherKeys-1),
				"INSERT INTO token_buckets SELECT k, 1000000000, 1000000000, 3600, NOW(3) FROM bare", // full
				// The procedure locks these rows, which it makes otherwise: no measurement includes that.
				"INSERT INTO zone_bucket_lock SELECT k FROM bare"))
		},
		connectOthers: func(ctx context.Context, at string) (others []other, stop func(), err error) {
			db, err := dbtest.OpenMariaDB(at)
			if err != nil {
				return nil, nil, err
			}
			db.SetMaxOpenConns(32)
			db.SetMaxIdleConns(32)
			tokens, log := articles.RequestToken{DB: db}, articles.CheckVelocity{DB: db}
			bare, err := bareMariaDB(ctx, db)
			return []other{
				{side: rival, name: "article 003", calls: map[string]decide[[]string]{
					"hot": firstKey(tokens.Allow), "plain": firstKey(tokens.Allow),
				}},
				{side: rival, name: "article 001", before: log.Forget, calls: map[string]decide[[]string]{
					"log": firstKey(log.Allow),
				}},
				bare,
			}, func() { db.Close() }, err
		},
	}
}

func bareMariaDB(ctx context.Context, db *sql.DB) (bare other, err error) {
	one := func(text string) func(context.Context, string) (bool, error) {
		s, errOfOne := db.PrepareContext(ctx, text) //nolint:sqlclosecheck // it is closed with db
		err = errors.Join(err, errOfOne)
		return func(ctx context.Context, key string) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, headgate.DefaultTimeout)
			defer cancel()
			now := time.Now().UnixMicro()
			_, err := s.ExecContext(ctx, now, now+1, bareLimit, key)
			return err == nil, err
		}
	}
	update := one("UPDATE bare SET level = level + 1, at = ?, empty_at = ? " +
		"WHERE limit_name = ? AND k = ? AND level <= 1000000000000")
	insert := one("INSERT INTO bare (at, empty_at, limit_name, k, level) VALUES (?, ?, ?, ?, 1) " +
		"ON DUPLICATE KEY UPDATE level = level + 1, at = VALUES(at), empty_at = VALUES(empty_at)")
	several := func(ctx context.Context, keys []string) (bool, error) { // it locks in the order of the index
		ctx, cancel := context.WithTimeout(ctx, headgate.DefaultTimeout)
		defer cancel()
		now := time.Now().UnixMicro()
		args := []any{now, now + 1, bareLimit}
		for _, k := range keys {
			args = append(args, k)
		}
		_, err := db.ExecContext(ctx, "UPDATE bare SET level = level + 1, at = ?, empty_at = ? "+
			"WHERE limit_name = ? AND k IN (?"+strings.Repeat(", ?", len(keys)-1)+")", args...)
		return err == nil, err
	}
	return bareOther("a bare UPDATE", firstKey(update), firstKey(insert), several), err
}

// sqliteField has one upsert for each decision, and 512 of them in a transaction. All sync at every
// commit.
func (b *bench) sqliteField() *field {
	return &field{
		name: "sqlite", title: "SQLite", workloads: workloads,
		url: func(context.Context) (string, func(), error) {
			dir, err := os.MkdirTemp("", "headgate-bench-")
			return "sqlite:" + filepath.Join(dir, "headgate.db"), func() { os.RemoveAll(dir) }, err
		},
		prepareOthers: func(ctx context.Context, url string) error {
			return errors.Join(fillSQLite(ctx, url+".one"), fillSQLite(ctx, url+".many"))
		},
		connectOthers: func(ctx context.Context, url string) (others []other, stop func(), err error) {
			one, endOne, errOne := bareSQLite(ctx, url+".one", 1)
			many, endMany, errMany := bareSQLite(ctx, url+".many", 512)
			return []other{
				{side: rival, name: "one upsert a decision", clients: 1, calls: singles(one)},
				{side: ceiling, name: "512 upserts a transaction", clients: 1, calls: singles(many)},
			}, func() { endMany(); endOne() }, errors.Join(errOne, errMany)
		},
	}
}

func singles(allow decide[string]) map[string]decide[[]string] {
	do := firstKey(allow)
	return map[string]decide[[]string]{"hot": do, "plain": do, "new": do}
}

// bareUpsert is GCRA in nanoseconds.
const bareUpsert = `insert into tat (key, at) values (?1, ?2 + ?3)
on conflict (key) do update set at = max(at, ?2) + ?3 where max(at, ?2) + ?3 - ?2 <= ?4`

func openSQLite(url string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(url, "sqlite:")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// fillSQLite makes the table of bareUpsert with its rows.
func fillSQLite(ctx context.Context, url string) error {
	db, err := openSQLite(url)
	if err != nil {
		return err
	}
	defer db.Close()
	_, errTable := db.ExecContext(ctx, "create table tat (key text primary key, at integer not null) without rowid")
	_, errRows := db.ExecContext(ctx, "insert into tat with recursive n(i) as (select 0 union all select i + 1 from n "+
		"limit ?) select 'user:' || i, 0 from n", otherKeys)
	return errors.Join(errTable, errRows)
}

// bareSQLite runs GCRA in one upsert, the least that an exact limiter can do for a decision. A transaction has
// atOnce upserts. With more than one, the answers come before they are on disk, and only one caller may use it.
func bareSQLite(ctx context.Context, url string, atOnce int) (
	allow func(context.Context, string) (bool, error), end func(), err error,
) {
	db, err := openSQLite(url)
	if err != nil {
		return nil, func() {}, err
	}
	end = func() { db.Close() }
	statement, err := db.PrepareContext(ctx, bareUpsert) //nolint:sqlclosecheck // it is closed with db
	if err != nil {
		return nil, end, err
	}
	open := 0
	return func(ctx context.Context, key string) (bool, error) {
		if atOnce > 1 {
			if open == 0 {
				if _, err := db.ExecContext(ctx, "begin immediate"); err != nil {
					return false, err
				}
			}
			if open++; open == atOnce {
				open = 0
				defer db.ExecContext(ctx, "commit") //nolint:errcheck // the next begin fails
			}
		}
		r, err := statement.ExecContext(ctx, key, time.Now().UnixNano(), each, burst)
		if err != nil {
			return false, err
		}
		n, err := r.RowsAffected()
		return n > 0, err
	}, end, nil
}
