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

// The table for the bare statements of PostgreSQL and MariaDB: rows by a primary key of two texts, one statement in a
// round trip, no function. It is not a table of Headgate.
const (
	bareTable = "CREATE TABLE bare (limit_name varchar(100) NOT NULL, k varchar(100) NOT NULL, " +
		"level bigint NOT NULL, at bigint NOT NULL, empty_at bigint NOT NULL, PRIMARY KEY (limit_name, k))"
	bareLimit = "token-bucket 1000000000/1h burst 1000000000"
)

const poolOption = "?pool_max_conns=32" // appended to the URL of a database

// postgresBench compares Headgate with articles 000 and 004 and a bare UPDATE on PostgreSQL. Every decision is on disk
// before it is returned.
func (b *bench) postgresBench() *storeBench {
	return &storeBench{
		name: "postgres", title: "PostgreSQL", url: b.postgres, processes: true, clients: []int{8, 32},
		workloads: append(slices.Clone(workloads), workload{
			"leaky", "leaky buckets, 100,000 keys", []string{leakyLimit}, 100_000, false, []shape{{1, 512}},
		}),
		prepareOpponents: func(ctx context.Context, url string) error {
			numbers := fmt.Sprintf(" from generate_series(0, %d) i", maxKeys-1)
			return execPostgres(ctx, url, append(articles.Postgres(),
				"insert into rate_limiting_token_bucket select 'user:' || i, 3600000, now()"+numbers, // full buckets
				"insert into leaky_buckets select 'user:' || i, 1, clock_timestamp(), clock_timestamp() + '2 hours'"+
					numbers,
				bareTable+" WITH (fillfactor = 66)",
				"INSERT INTO bare SELECT '"+bareLimit+"', 'user:' || i, 0, 0, 0"+numbers, "VACUUM ANALYZE bare"))
		},
		connectOpponents: func(ctx context.Context, url string) (opponents []opponent, stop func(), err error) {
			pool, err := pgxpool.New(ctx, url+poolOption)
			if err != nil {
				return nil, nil, err
			}
			// The bare statements use the primary key whatever the statistics say.
			barePool, err := pgxpool.New(ctx, url+poolOption+
				"&enable_seqscan=off&enable_bitmapscan=off&plan_cache_mode=force_generic_plan")
			if err != nil {
				pool.Close()
				return nil, nil, err
			}
			bucket, leakyBucket := articles.RateLimitingRequest{Pool: pool}, articles.LeakyBucket{Pool: pool}
			return []opponent{
				{side: rivalSide, name: "article 000", calls: map[string]allowFunc[[]string]{
					"hot": firstKey(bucket.Allow), "plain": firstKey(bucket.Allow), "new": firstKey(bucket.Allow),
				}},
				{side: rivalSide, name: "article 004", calls: map[string]allowFunc[[]string]{
					"leaky": firstKey(leakyBucket.Allow),
				}},
				barePostgres(barePool),
			}, func() { barePool.Close(); pool.Close() }, nil
		},
	}
}

// bareOpponent returns an opponent of bare statements: update is for a key that exists, insert for a new key, updateAll
// for several keys together. Each of them has to set the deadline of a Limiter's call.
func bareOpponent(name string, update, insert, updateAll allowFunc[[]string]) opponent {
	return opponent{side: ceilingSide, name: name, calls: map[string]allowFunc[[]string]{
		"hot": update, "plain": update, "window": update, "log": update, "leaky": update, "new": insert,
		"limits-3": updateAll, "settled-3": updateAll, "limits-6": updateAll, "settled-6": updateAll,
	}}
}

func barePostgres(pool *pgxpool.Pool) opponent {
	prepare := func(text string) func(context.Context, string) (bool, error) {
		return func(ctx context.Context, key string) (bool, error) {
			var level, at int64
			ctx, cancel := context.WithTimeout(ctx, headgate.DefaultTimeout)
			defer cancel()
			err := pool.QueryRow(ctx, text, bareLimit, key, time.Now().UnixMicro()).Scan(&level, &at)
			return err == nil, err
		}
	}
	update := prepare("UPDATE bare SET level = level + 1, at = $3::bigint, empty_at = $3::bigint + 1 " +
		"WHERE limit_name = $1 AND k = $2 AND level <= 1000000000000 RETURNING level, at")
	insert := prepare("INSERT INTO bare VALUES ($1, $2, 1, $3::bigint, $3::bigint + 1) " +
		"ON CONFLICT (limit_name, k) DO UPDATE SET level = bare.level + 1, at = $3::bigint, " +
		"empty_at = $3::bigint + 1 RETURNING level, at")
	updateAll := func(ctx context.Context, keys []string) (bool, error) { // locks rows in the order of the index
		ctx, cancel := context.WithTimeout(ctx, headgate.DefaultTimeout)
		defer cancel()
		_, err := pool.Exec(ctx, "UPDATE bare SET level = level + 1, at = $3::bigint, empty_at = $3::bigint + 1 "+
			"WHERE limit_name = $1 AND k = ANY ($2::text[]) AND level <= 1000000000000", bareLimit, keys,
			time.Now().UnixMicro())
		return err == nil, err
	}
	return bareOpponent("a bare UPDATE", firstKey(update), firstKey(insert), updateAll)
}

// mariadbBench compares Headgate with articles 001 and 003 and a bare UPDATE on MariaDB, which flushes at every commit.
func (b *bench) mariadbBench() *storeBench {
	name, title := "mariadb", "MariaDB"
	if strings.HasPrefix(os.Getenv("HEADGATE_TEST_ENGINE"), "mysql") { // package dbtest starts MySQL instead
		name, title = "mysql", "MySQL"
	}
	return &storeBench{
		name: name, title: title, workloads: workloads, processes: true, url: b.mariadb, clients: []int{8, 32},
		prepareOpponents: func(ctx context.Context, url string) error {
			return execMariaDB(ctx, url, append(articles.MariaDB(), bareTable,
				// MySQL has no sequences.
				fmt.Sprintf("INSERT INTO bare SELECT '%s', CONCAT('user:', i - 1), 0, 0, 0 FROM "+
					"JSON_TABLE(CONCAT('[', REPEAT('0,', %d), '0]'), '$[*]' COLUMNS (i FOR ORDINALITY)) t", bareLimit,
					maxKeys-1),
				"INSERT INTO token_buckets SELECT k, 1000000000, 1000000000, 3600, NOW(3) FROM bare", // full
				// The procedure locks these rows, and makes missing ones: here they exist before it is measured.
				"INSERT INTO zone_bucket_lock SELECT k FROM bare"))
		},
		connectOpponents: func(ctx context.Context, url string) (opponents []opponent, stop func(), err error) {
			db, err := dbtest.OpenMariaDB(url)
			if err != nil {
				return nil, nil, err
			}
			db.SetMaxOpenConns(32)
			db.SetMaxIdleConns(32)
			tokens, log := articles.RequestToken{DB: db}, articles.CheckVelocity{DB: db}
			bare, err := bareMariaDB(ctx, db)
			return []opponent{
				{side: rivalSide, name: "article 003", calls: map[string]allowFunc[[]string]{
					"hot": firstKey(tokens.Allow), "plain": firstKey(tokens.Allow),
				}},
				{side: rivalSide, name: "article 001", reset: log.Forget, calls: map[string]allowFunc[[]string]{
					"log": firstKey(log.Allow),
				}},
				bare,
			}, func() { db.Close() }, err
		},
	}
}

func bareMariaDB(ctx context.Context, db *sql.DB) (bare opponent, err error) {
	prepare := func(text string) func(context.Context, string) (bool, error) {
		s, errPrepare := db.PrepareContext(ctx, text) //nolint:sqlclosecheck // it is closed with db
		err = errors.Join(err, errPrepare)
		return func(ctx context.Context, key string) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, headgate.DefaultTimeout)
			defer cancel()
			now := time.Now().UnixMicro()
			_, err := s.ExecContext(ctx, now, now+1, bareLimit, key)
			return err == nil, err
		}
	}
	update := prepare("UPDATE bare SET level = level + 1, at = ?, empty_at = ? " +
		"WHERE limit_name = ? AND k = ? AND level <= 1000000000000")
	insert := prepare("INSERT INTO bare (at, empty_at, limit_name, k, level) VALUES (?, ?, ?, ?, 1) " +
		"ON DUPLICATE KEY UPDATE level = level + 1, at = VALUES(at), empty_at = VALUES(empty_at)")
	updateAll := func(ctx context.Context, keys []string) (bool, error) { // locks rows in the order of the index
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
	return bareOpponent("a bare UPDATE", firstKey(update), firstKey(insert), updateAll), err
}

// sqliteBench compares Headgate with one upsert a transaction, and 512, on SQLite. All sync at every commit.
func (b *bench) sqliteBench() *storeBench {
	return &storeBench{
		name: "sqlite", title: "SQLite", workloads: workloads,
		url: func(context.Context) (string, func(), error) {
			dir, err := os.MkdirTemp("", "headgate-bench-")
			return "sqlite:" + filepath.Join(dir, "headgate.db"), func() { os.RemoveAll(dir) }, err
		},
		prepareOpponents: func(ctx context.Context, url string) error {
			return errors.Join(fillSQLite(ctx, url+".one"), fillSQLite(ctx, url+".many"))
		},
		connectOpponents: func(ctx context.Context, url string) (opponents []opponent, stop func(), err error) {
			singleUpsert, stopSingle, errSingle := bareSQLite(ctx, url+".one", 1)
			batchedUpserts, stopBatched, errBatched := bareSQLite(ctx, url+".many", 512)
			return []opponent{
				{side: rivalSide, name: "one upsert a decision", clients: 1, calls: singleKeyCalls(singleUpsert)},
				{
					side: ceilingSide, name: "512 upserts a transaction", clients: 1,
					calls: singleKeyCalls(batchedUpserts),
				},
			}, func() { stopBatched(); stopSingle() }, errors.Join(errSingle, errBatched)
		},
	}
}

// singleKeyCalls returns the calls of the workloads with one key a request.
func singleKeyCalls(allow allowFunc[string]) map[string]allowFunc[[]string] {
	call := firstKey(allow)
	return map[string]allowFunc[[]string]{"hot": call, "plain": call, "new": call}
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
		"limit ?) select 'user:' || i, 0 from n", maxKeys)
	return errors.Join(errTable, errRows)
}

// bareSQLite returns GCRA in one upsert, the least that an exact limiter can do for a decision. A transaction has
// batchSize upserts. With more than one, answers come before they are on disk, and only one caller may use allow.
func bareSQLite(ctx context.Context, url string, batchSize int) (
	allow func(context.Context, string) (bool, error), stop func(), err error,
) {
	db, err := openSQLite(url)
	if err != nil {
		return nil, func() {}, err
	}
	stop = func() { db.Close() }
	statement, err := db.PrepareContext(ctx, bareUpsert) //nolint:sqlclosecheck // it is closed with db
	if err != nil {
		return nil, stop, err
	}
	pending := 0 // upserts in the open transaction
	return func(ctx context.Context, key string) (bool, error) {
		if batchSize > 1 {
			if pending == 0 {
				if _, err := db.ExecContext(ctx, "begin immediate"); err != nil {
					return false, err
				}
			}
			if pending++; pending == batchSize {
				pending = 0
				defer db.ExecContext(ctx, "commit") //nolint:errcheck // the next begin fails
			}
		}
		r, err := statement.ExecContext(ctx, key, time.Now().UnixNano(), tokenNanos, burstNanos)
		if err != nil {
			return false, err
		}
		n, err := r.RowsAffected()
		return n > 0, err
	}, stop, nil
}
