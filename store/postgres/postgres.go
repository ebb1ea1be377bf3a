// Package postgres keeps cells in PostgreSQL 13 or later, in the schema headgate. Any number of processes share them.
//
// The laws run in the server, in functions of schema headgate_internal, such as apply. A call is one round trip and one
// transaction, and holds no lock while the server waits for a client. Most batches are one call. SQL users reach the
// same functions through headgate.take and others; see docs/sql.md.
package postgres

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/keycount"
)

var (
	_ store.Store     = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
	_ store.Informer  = (*Store)(nil)
	_ store.Migrator  = (*Store)(nil)
	_ store.Catalog   = (*Store)(nil)
)

// Config adjusts a Store. A nil Config, and every zero field, is fine.
type Config struct {
	// RetryFor bounds the retries of a batch that conflicts with others when the context has no deadline. Zero: 5 s.
	RetryFor time.Duration
	// Articles names an existing schema in which Migrate makes the functions that well-known articles describe, such as
	// rate_limiting_request. Empty: Migrate only upgrades those that earlier migrations have made, in any schema.
	Articles string
	// Observer is told about transactions that were repeated. Nil: nobody is.
	Observer store.Observer
	// Logger gets a warning if the functions are older than the binary. Nil: slog.Default().
	Logger *slog.Logger
}

// Store keeps cells in PostgreSQL. It is safe for concurrent use.
type Store struct {
	def             *definition
	db              querier
	pool            *pgxpool.Pool // nil inside a caller's transaction
	ownsPool        bool          // Close closes pool
	cfg             Config
	closed          atomic.Bool
	checked         atomic.Bool // this binary can use the server and the schema
	retries         atomic.Int64
	skipSumsBatches atomic.Int32 // how many of the next batches skip headgate_internal.take_sums: see skippedBatches
	lastHeld        atomic.Int64 // when applyPassHeld last met a locked row, in nanoseconds since clockStart
	sweeper         *sweeper
	keyCounts       *keycount.Cache
	log             *slog.Logger
}

// querier is a pool or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Open connects to a postgres:// or postgresql:// URL and checks that the server answers. It does not migrate. Close
// closes the connections.
func Open(ctx context.Context, rawURL string, cfg *Config) (*Store, error) {
	dsn, pooler, err := parseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	pc, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, urlError(err)
	}
	if pooler { // keep no prepared statements, since the next statement may go to another session
		pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	pc.ConnConfig.OnNotice = OnNotice
	pc.ConnConfig.ConnectTimeout = cmp.Or(pc.ConnConfig.ConnectTimeout, 5*time.Second)
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, classifyRead("connect", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, classifyRead("connect", err)
	}
	s := New(pool, cfg)
	s.ownsPool = true
	return s, nil
}

// Info implements store.Informer.
func (s *Store) Info() store.Info {
	return store.Info{Retries: s.retries.Load(), Partial: true, Passes: s.passes()}
}

// New returns a store over the caller's pool, which Close leaves open. The pool should have OnNotice.
func New(pool *pgxpool.Pool, cfg *Config) *Store {
	s := &Store{def: postgresDefinition(), db: pool, pool: pool, sweeper: &sweeper{}, keyCounts: &keycount.Cache{}}
	if cfg != nil {
		s.cfg = *cfg
	}
	if s.log = s.cfg.Logger; s.log == nil {
		s.log = slog.Default()
	}
	if s.cfg.RetryFor <= 0 {
		s.cfg.RetryFor = 5 * time.Second
	}
	return s
}

// InTx returns a store that charges inside the caller's transaction: the charge commits or rolls back with it, and its
// cells stay locked until then. After a conflict the caller retries the whole transaction. The caller also checks
// whether the commit was confirmed (see OnNotice). Like tx, the store is not safe for concurrent use.
func (s *Store) InTx(tx pgx.Tx) *Store {
	txStore := &Store{def: s.def, db: tx, cfg: s.cfg, sweeper: &sweeper{}, keyCounts: s.keyCounts, log: s.log}
	txStore.checked.Store(s.checked.Load())
	return txStore
}

// Close implements store.Store.
func (s *Store) Close() error {
	if !s.closed.Swap(true) && s.ownsPool {
		s.pool.Close()
	}
	return nil
}

// ready returns why the store cannot be used, or nil. It checks the server and the schema until that succeeds once, and
// again after an error about a missing function.
func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.checked.Load() {
		return nil
	}
	if pool, ok := s.db.(*pgxpool.Pool); ok && pool == nil {
		return fmt.Errorf("postgres: %w", law.Invalid("pool", "is missing"))
	}
	if _, err := checkServer(ctx, s.db); err != nil {
		return err
	}
	installed, err := readInstalled(ctx, s.db)
	if err != nil {
		return err
	}
	if err := installed.check(s.def); err != nil {
		return err
	}
	if installed.revision < s.def.revision {
		s.log.Warn("the functions in schema headgate are older than this binary: run headgate migrate", "revision",
			installed.revision, "binary", s.def.revision)
	}
	s.checked.Store(true)
	return nil
}

// checkServer returns the text of the server's version, and an error if the server cannot be used.
func checkServer(ctx context.Context, db querier) (version string, err error) {
	var number string
	if err := db.QueryRow(ctx, "select pg_catalog.current_setting('server_version_num'), pg_catalog.version()").Scan(
		&number, &version); err != nil {
		return "", classifyRead("read the server's version", err)
	}
	return version, checkVersion(number, version)
}

// checkVersion refuses a server that is too old. YugabyteDB passes: it reports the version of PostgreSQL that it is
// compatible with, which says little about YugabyteDB itself.
func checkVersion(number, version string) error {
	if n, err := strconv.Atoi(number); err == nil && !isYugabyte(version) && n < oldestVersion {
		return fmt.Errorf("postgres: %w: the server has version %d; 13 or later is needed", store.ErrSetup, n/10000)
	}
	return nil
}

// Cells implements store.Inspector.
func (s *Store) Cells(ctx context.Context, q store.Query) (cells []store.Cell, clock int64, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, 0, err
	}
	if err := q.Valid(); err != nil {
		return nil, 0, err
	}
	maxCells := q.PageSize()
	if err := s.db.QueryRow(ctx, `select (extract(epoch from pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint`).Scan(&clock); err != nil {
		return nil, 0, classifyRead("read the clock", err)
	}
	var where strings.Builder
	args := []any{clock, maxCells}
	addCondition := func(condition string, values ...any) {
		for _, v := range values {
			args = append(args, v)
			condition = strings.Replace(condition, "?", fmt.Sprintf("$%d", len(args)), 1)
		}
		where.WriteString(" and " + condition)
	}
	if q.Limit != "" {
		addCondition("limit_name OPERATOR(pg_catalog.=) ?", q.Limit)
	}
	if q.HasKey {
		addCondition("key OPERATOR(pg_catalog.=) ?", q.Key)
	}
	if q.Blocked {
		where.WriteString(" and blocked_until OPERATOR(pg_catalog.>) $1")
	}
	if q.After != (law.Cell{}) {
		addCondition("(limit_name, key) OPERATOR(pg_catalog.>) (?, ?)", q.After.Limit, q.After.Key)
	}
	cells, err = query(ctx, s, "list cells", func(row pgx.CollectableRow) (c store.Cell, err error) {
		err = row.Scan(&c.Limit, &c.Key, &c.State.Kind, &c.State.Level, &c.State.Prev, &c.State.At,
			&c.State.Unit, &c.State.Step, &c.State.EmptyAt, &c.State.BlockedUntil, &c.Reason)
		return c, err
	}, `select limit_name, key, law, level, prev, at, unit, step, empty_at, blocked_until, reason
		from headgate.cells where law OPERATOR(pg_catalog.<>) 0 and $1::bigint is not null`+where.String()+` order by limit_name, key limit $2`, args...)
	return cells, clock, err
}

// Entries implements store.Inspector. The + 0 keeps the planner from searching the index on number for the cell.
func (s *Store) Entries(ctx context.Context, cell law.Cell, n int) ([]law.Entry, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if err := store.ValidEntries(cell, n); err != nil {
		return nil, err
	}
	return query(ctx, s, "list entries", func(row pgx.CollectableRow) (e law.Entry, err error) {
		err = row.Scan(&e.Number, &e.ID, &e.At, &e.ExpiresAt, &e.KeepUntil, &e.Cost, &e.Granted)
		return e, err
	}, `select number, id, at, expires_at, keep_until, cost, granted from headgate.entries
		where limit_name OPERATOR(pg_catalog.=) $1 and key OPERATOR(pg_catalog.=) $2
		order by number OPERATOR(pg_catalog.+) 0 desc limit $3`, cell.Limit, cell.Key, n)
}

// query reads rows, and classifies errors. It retries conflicts, which reads can have above read committed.
func query[T any](ctx context.Context, s *Store, operation string, scan pgx.RowToFunc[T], statement string,
	args ...any,
) (result []T, err error) {
	err = s.retry(ctx, func() error {
		rows, err := s.db.Query(ctx, statement, args...)
		if err == nil {
			result, err = pgx.CollectRows(rows, scan)
		}
		return err
	})
	if err != nil {
		return nil, classifyRead(operation, err)
	}
	return result, nil
}
