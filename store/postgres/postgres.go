// Package postgres keeps cells in PostgreSQL 13 or later, in the schema
// headgate. Any number of processes share them.
//
// The laws run in the server, in the function headgate_internal.apply: one round trip
// and one transaction for a batch, and no lock held while a client is waited
// for. People call the same function through headgate.take and its kin; see
// docs/sql.md.
package postgres

import (
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
	// RetryFor bounds the retries of a batch that conflicts with others when
	// the context has no deadline. Zero: 5 s.
	RetryFor time.Duration
	// Articles names a schema in which Migrate makes the functions of the articles, such as
	// rate_limiting_request. It has to be there. Empty: Migrate makes none.
	Articles string
	// Observer hears of transactions that were repeated. Nil: none.
	Observer store.Observer
	// Logger gets a warning where functions are older than the binary. Nil: slog.Default().
	Logger *slog.Logger
}

// Store keeps cells in PostgreSQL. It is safe for concurrent use.
type Store struct {
	def     *definition
	db      querier
	pool    *pgxpool.Pool // nil inside a caller's transaction
	own     bool          // pool was opened here
	cfg     Config
	closed  atomic.Bool
	checked atomic.Bool // the schema has the version of this binary
	repeats atomic.Int64
	crowded atomic.Int32 // how many of the next batches headgate_internal.take_sums is not asked about: see crowdedFor
	heldAt  atomic.Int64 // when a batch has met a row that somebody else held: see applyPassing
	sweeper *sweeper
	keys    *keycount.Last
	log     *slog.Logger
}

// querier is a pool or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Open connects to a postgres:// or postgresql:// URL and checks that the
// server answers. It does not migrate. Close closes the connections.
func Open(ctx context.Context, rawURL string, cfg *Config) (*Store, error) {
	dsn, pooler, err := parseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	pc, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, badURL(err)
	}
	if pooler { // nothing is prepared, since the next statement may go to another session
		pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	pc.ConnConfig.OnNotice = OnNotice
	if pc.ConnConfig.ConnectTimeout == 0 {
		pc.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, classifyRead("connect", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, classifyRead("connect", err)
	}
	s := New(pool, cfg)
	s.own = true
	return s, nil
}

// Info implements store.Informer.
func (s *Store) Info() store.Info {
	return store.Info{Retries: s.repeats.Load(), Partial: true, Passes: s.passes()}
}

// New returns a store over the caller's pool, which Close leaves open. The pool
// should have OnNotice.
func New(pool *pgxpool.Pool, cfg *Config) *Store {
	s := &Store{def: current(), db: pool, pool: pool, sweeper: &sweeper{}, keys: &keycount.Last{}}
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

// InTx returns a store that charges inside the caller's transaction: the
// charge commits or rolls back with it. Its cells stay locked until then, and
// conflicts are the caller's to retry, with the transaction; so is what the server
// says of the commit (see OnNotice). The store is as safe for concurrent use as tx
// is: not at all.
func (s *Store) InTx(tx pgx.Tx) *Store {
	in := &Store{def: s.def, db: tx, cfg: s.cfg, sweeper: &sweeper{}, keys: s.keys, log: s.log}
	in.checked.Store(s.checked.Load())
	return in
}

// Close implements store.Store.
func (s *Store) Close() error {
	if !s.closed.Swap(true) && s.own {
		s.pool.Close()
	}
	return nil
}

// ready says why the store cannot be used, or nil. It looks at what is installed
// once, and again after an error that says that something is missing.
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
	have, err := readInstalled(ctx, s.db)
	if err != nil {
		return err
	}
	if err := have.check(s.def); err != nil {
		return err
	}
	if have.revision < s.def.revision {
		s.log.Warn("the functions in schema headgate are older than this binary: run headgate migrate", "revision",
			have.revision, "binary", s.def.revision)
	}
	s.checked.Store(true)
	return nil
}

// checkServer returns the server's version, and says why it cannot be used.
func checkServer(ctx context.Context, db querier) (version string, err error) {
	var number string
	if err := db.QueryRow(ctx, "select pg_catalog.current_setting('server_version_num'), pg_catalog.version()").Scan(
		&number, &version); err != nil {
		return "", classifyRead("read the server's version", err)
	}
	return version, checkVersion(number, version)
}

// checkVersion says whether a server of this version will do. What speaks
// PostgreSQL's protocol names a PostgreSQL that it is compatible with, which
// says little about it.
func checkVersion(number, version string) error {
	if n, err := strconv.Atoi(number); err == nil && !isYugabyte(version) && n < 130000 {
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
	most := q.Most()
	if err := s.db.QueryRow(ctx, `select (extract(epoch from pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint`).Scan(&clock); err != nil {
		return nil, 0, classifyRead("read the clock", err)
	}
	var where strings.Builder
	args := []any{clock, most}
	also := func(condition string, values ...any) {
		for _, v := range values {
			args = append(args, v)
			condition = strings.Replace(condition, "?", fmt.Sprintf("$%d", len(args)), 1)
		}
		where.WriteString(" and " + condition)
	}
	if q.Limit != "" {
		also("limit_name OPERATOR(pg_catalog.=) ?", q.Limit)
	}
	if q.HasKey {
		also("key OPERATOR(pg_catalog.=) ?", q.Key)
	}
	if q.Blocked {
		where.WriteString(" and blocked_until OPERATOR(pg_catalog.>) $1")
	}
	if q.After != (law.Cell{}) {
		also("(limit_name, key) OPERATOR(pg_catalog.>) (?, ?)", q.After.Limit, q.After.Key)
	}
	cells, err = list(ctx, s, "list cells", func(row pgx.CollectableRow) (c store.Cell, err error) {
		err = row.Scan(&c.Limit, &c.Key, &c.State.Kind, &c.State.Level, &c.State.Prev, &c.State.At,
			&c.State.Unit, &c.State.Step, &c.State.EmptyAt, &c.State.BlockedUntil, &c.Reason)
		return c, err
	}, `select limit_name, key, law, level, prev, at, unit, step, empty_at, blocked_until, reason
		from headgate.cells where law OPERATOR(pg_catalog.<>) 0 and $1::bigint is not null`+where.String()+` order by limit_name, key limit $2`, args...)
	return cells, clock, err
}

// Entries implements store.Inspector.
func (s *Store) Entries(ctx context.Context, cell law.Cell, n int) ([]law.Entry, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if err := store.ValidEntries(cell, n); err != nil {
		return nil, err
	}
	return list(ctx, s, "list entries", func(row pgx.CollectableRow) (e law.Entry, err error) {
		err = row.Scan(&e.Number, &e.ID, &e.At, &e.ExpiresAt, &e.KeepUntil, &e.Cost, &e.Granted)
		return e, err
	}, `select number, id, at, expires_at, keep_until, cost, granted from headgate.entries
		where limit_name OPERATOR(pg_catalog.=) $1 and key OPERATOR(pg_catalog.=) $2
		order by number OPERATOR(pg_catalog.+) 0 desc limit $3`, cell.Limit, cell.Key, n)
}

// list reads rows. At a stricter level reading can conflict with other transactions too,
// and is repeated.
func list[T any](ctx context.Context, s *Store, doing string, scan pgx.RowToFunc[T], query string, args ...any) (
	all []T, err error,
) {
	err = s.retry(ctx, func() error {
		rows, err := s.db.Query(ctx, query, args...)
		if err == nil {
			all, err = pgx.CollectRows(rows, scan)
		}
		return err
	})
	if err != nil {
		return nil, classifyRead(doing, err)
	}
	return all, nil
}
