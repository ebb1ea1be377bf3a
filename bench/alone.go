package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"

	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/gate"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/store"
	hgmysql "github.com/headgate/headgate/store/mysql"
	hgpostgres "github.com/headgate/headgate/store/postgres"
	hgredis "github.com/headgate/headgate/store/redis"
)

// alone measures one caller whom nobody shares a round trip with, against the
// plain driver that sends the statement which Headgate was seen to send.
func (b *bench) alone() []compare.Comparison {
	goals := []compare.Goal{compare.Within(1.2)}
	return []compare.Comparison{
		{Name: "single-postgres", Title: "PostgreSQL, a single caller", Goals: goals, Cells: b.alonePostgres},
		{Name: "single-mariadb", Title: "MariaDB, a single caller", Goals: goals, Cells: b.aloneMariaDB},
		{Name: "single-redis", Title: "Redis, a single caller", Goals: goals, Cells: b.aloneRedis},
	}
}

var errUnseen = errors.New("the store was not seen to send anything")

// alike returns the cells of the store of a URL, and of the same statement
// without it: the one that bare knows after spied was asked.
func (b *bench) alike(ctx context.Context, url string, spied store.Store, bare func() (load.Ask, error), end func()) (
	[]compare.Cell, error,
) {
	ask := gate.Ask(spied, always, b.one)
	for range 3 { // the first calls also prepare, and look at the server
		if _, err := ask(ctx, 0, rand.New(rand.NewPCG(1, 1))); err != nil {
			end()
			return nil, err
		}
	}
	again, err := bare()
	if err != nil {
		end()
		return nil, err
	}
	return []compare.Cell{
		ours{url: url, wrap: []gate.Wrap{gate.Front}, limit: always, keys: b.one, callers: 1, close: end}.cell(ctx),
		{Side: compare.Ceiling, Name: "the bare statement", Measure: compare.Callers(1, again)},
	}, nil
}

// pgSpy remembers the last query.
type pgSpy struct {
	last atomic.Pointer[pgx.TraceQueryStartData]
}

// TraceQueryStart implements pgx.QueryTracer.
func (s *pgSpy) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.last.Store(&d)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (s *pgSpy) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (b *bench) alonePostgres(ctx context.Context) ([]compare.Cell, error) {
	dsn, drop, err := b.postgres(ctx)
	if err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		drop()
		return nil, err
	}
	spy := &pgSpy{}
	cfg.ConnConfig.Tracer = spy
	spied, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		drop()
		return nil, err
	}
	plain, err := pool(ctx, dsn, 1, committed)
	if err != nil {
		spied.Close()
		drop()
		return nil, err
	}
	end := func() {
		plain.Close()
		spied.Close()
		drop()
	}
	s := hgpostgres.New(spied, &hgpostgres.Config{SkipArticles: true})
	if _, err := s.Migrate(ctx); err != nil {
		end()
		return nil, err
	}
	return b.alike(ctx, dsn, s, func() (load.Ask, error) {
		q := spy.last.Load()
		if q == nil {
			return nil, errUnseen
		}
		return func(ctx context.Context, _ int, _ *rand.Rand) (bool, error) {
			var answer []int64
			err := plain.QueryRow(ctx, q.SQL, q.Args...).Scan(&answer)
			return err == nil, err
		}, nil
	}, end)
}

// sqlSpy is a connector that remembers the last text.
type sqlSpy struct {
	driver.Connector
	last atomic.Pointer[string]
}

// Connect implements driver.Connector.
func (s *sqlSpy) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := s.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &sqlSpyConn{c.(mysqlConn), s}, nil
}

// mysqlConn is what the connections of go-sql-driver/mysql are.
type mysqlConn interface {
	driver.Conn
	driver.QueryerContext
	driver.ExecerContext
	driver.ConnBeginTx
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

type sqlSpyConn struct {
	mysqlConn
	spy *sqlSpy
}

// QueryContext implements driver.QueryerContext.
func (c *sqlSpyConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	c.spy.last.Store(&text)
	return c.mysqlConn.QueryContext(ctx, text, args)
}

func (b *bench) aloneMariaDB(ctx context.Context) ([]compare.Cell, error) {
	dsn, drop, err := b.mariadb(ctx)
	if err != nil {
		return nil, err
	}
	cfg, err := mariaConfig(dsn, "&multiStatements=true")
	if err != nil {
		drop()
		return nil, err
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		drop()
		return nil, err
	}
	spy := &sqlSpy{Connector: connector}
	spied, plain := sql.OpenDB(spy), sql.OpenDB(connector)
	plain.SetMaxOpenConns(1)
	end := func() {
		plain.Close()
		spied.Close()
		drop()
	}
	s := hgmysql.New(spied, &hgmysql.Config{SkipArticles: true})
	if _, err := s.Migrate(ctx); err != nil {
		end()
		return nil, err
	}
	return b.alike(ctx, dsn, s, func() (load.Ask, error) {
		text := spy.last.Load()
		if text == nil {
			return nil, errUnseen
		}
		return func(ctx context.Context, _ int, _ *rand.Rand) (bool, error) {
			rows, err := plain.QueryContext(ctx, *text)
			if err != nil {
				return false, err
			}
			defer rows.Close()
			for more := true; more; more = rows.NextResultSet() {
				for rows.Next() {
				}
			}
			return true, rows.Err()
		}, nil
	}, end)
}

// redisSpy remembers the last commands.
type redisSpy struct {
	rueidis.Client
	last atomic.Pointer[[]string]
}

// Do implements rueidis.Client.
func (s *redisSpy) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	s.see(cmd)
	return s.Client.Do(ctx, cmd)
}

// DoMulti implements rueidis.Client.
func (s *redisSpy) DoMulti(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	for _, cmd := range cmds {
		s.see(cmd)
	}
	return s.Client.DoMulti(ctx, cmds...)
}

func (s *redisSpy) see(cmd rueidis.Completed) {
	words := append([]string(nil), cmd.Commands()...) // rueidis reuses them
	s.last.Store(&words)
}

func (b *bench) aloneRedis(ctx context.Context) ([]compare.Cell, error) {
	url, err := b.redis(ctx)
	if err != nil {
		return nil, err
	}
	options, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	options.DisableRetry, options.DisableCache = true, true
	client, err := rueidis.NewClient(options)
	if err != nil {
		return nil, err
	}
	spy := &redisSpy{Client: client}
	s := hgredis.New(spy, nil)
	return b.alike(ctx, url, s, func() (load.Ask, error) {
		words := spy.last.Load()
		if words == nil || len(*words) == 0 {
			return nil, errUnseen
		}
		return func(ctx context.Context, _ int, _ *rand.Rand) (bool, error) {
			err := client.Do(ctx, client.B().Arbitrary((*words)[0]).Args((*words)[1:]...).Build()).Error()
			return err == nil, err
		}, nil
	}, client.Close)
}
