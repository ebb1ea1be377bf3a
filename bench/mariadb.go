package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/articles"
	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/gate"
)

// mariadbField is MariaDB beside article 003 and the bare statement. The log is flushed at every
// commit.
func (b *bench) mariadbField() *field {
	return &field{
		name: "mariadb", title: "MariaDB", meter: b.meterMariaDB,
		url:    func(ctx context.Context, _ int) (string, func(), error) { return b.mariadb(ctx) },
		beside: b.besideMariaDB,
		goals: map[string][]compare.Goal{
			"mariadb-100k-1":   {compare.Within(1 / 0.8)},
			"mariadb-100k-32":  {compare.Times(1.5)},
			"mariadb-100k-512": {compare.Times(6)},
			"mariadb-hot-512":  {compare.Times(50)},
		},
	}
}

func (b *bench) besideMariaDB(ctx context.Context, keys []string) (others []other, stop func(), err error) {
	dsn, drop, err := b.mariadb(ctx)
	if err != nil {
		return nil, nil, err
	}
	article, err := mariaPool(dsn, "", 32)
	if err != nil {
		return nil, drop, err
	}
	stop = func() {
		article.Close()
		drop()
	}
	l := &articles.RequestToken{DB: article, Capacity: 1_000_000_000, RefillSeconds: 3600}
	tight := &articles.RequestToken{DB: article, Capacity: 1000, RefillSeconds: 1}
	err = errors.Join(articles.InstallMariaDB(ctx, article), l.Fill(ctx, keys))
	if err != nil {
		return nil, stop, err
	}
	first := stop
	bare, end, err := newBareMariaDB(ctx, dsn, keys)
	if err != nil {
		return nil, stop, err
	}
	return []other{
		{side: compare.Rival, name: "article 003", limiter: l, tight: filling{tight, new(sync.Map)}},
		{
			side: compare.Ceiling, name: "a bare UPDATE", limiter: bare.by(bare.update), fresh: bare.by(bare.upsert),
			many: bare.many, batch: bare.batch(keys),
		},
	}, func() { end(); first() }, nil
}

// filling makes the bucket of a key before it is first asked.
type filling struct {
	*articles.RequestToken
	done *sync.Map
}

// Allow implements rivals.Limiter.
func (f filling) Allow(ctx context.Context, key string) (bool, error) {
	if _, ok := f.done.Load(key); !ok {
		if err := f.Fill(ctx, []string{key}); err != nil { // INSERT IGNORE: any number of times
			return false, err
		}
		f.done.Store(key, true)
	}
	return f.RequestToken.Allow(ctx, key)
}

// onMariaDB compares with article 001.
func (b *bench) onMariaDB() (list []compare.Comparison) {
	for _, callers := range []int{8, 32, 512} {
		list = append(list, compare.Comparison{
			Name:  fmt.Sprintf("mariadb-log-100k-%d", callers),
			Title: fmt.Sprintf("MariaDB, 100,000 sliding logs, 5 in 60 s, %d callers", callers),
			Goals: map[int][]compare.Goal{32: {compare.Times(1.5)}, 512: {compare.Times(8)}}[callers],
			Cells: b.article001(ours{limit: login, keys: b.many, callers: callers}, 8, 32),
		})
	}
	return append(list, b.locked("mariadb", "MariaDB", compare.Below(1200, compare.Millis), b.mariadb, lockInMariaDB))
}

// inMariaDB makes ready a database for Headgate and one for an article.
func (b *bench) inMariaDB(ctx context.Context, o ours) (cells []compare.Cell, dsn string, err error) {
	mine, drop, err := b.mariadb(ctx)
	if err != nil {
		return nil, "", err
	}
	o.url, o.close, o.wrap = mine, drop, []gate.Wrap{gate.Front}
	cells = []compare.Cell{o.cell(ctx)}
	dsn, drop, err = b.mariadb(ctx)
	if err != nil {
		return cells, "", err
	}
	first := cells[0].Close
	cells[0].Close = func() {
		first()
		drop()
	}
	db, err := mariaPool(dsn, "", 1)
	if err != nil {
		return cells, "", err
	}
	defer db.Close()
	return cells, dsn, articles.InstallMariaDB(ctx, db)
}

// inSessions makes ready an article's cell for each number of clients.
func inSessions(cells []compare.Cell, dsn string, clients []int, cell func(db *sql.DB, n int) (compare.Cell, error)) (
	[]compare.Cell, error,
) {
	for _, n := range clients {
		db, err := mariaPool(dsn, "", n)
		if err != nil {
			return cells, err
		}
		c, err := cell(db, n)
		if err != nil {
			db.Close()
			return cells, err
		}
		c.Close = func() { db.Close() }
		cells = append(cells, c)
	}
	return cells, nil
}

func (b *bench) article001(o ours, clients ...int) func(context.Context) ([]compare.Cell, error) {
	return func(ctx context.Context) ([]compare.Cell, error) {
		cells, dsn, err := b.inMariaDB(ctx, o)
		if err != nil {
			return cells, err
		}
		return inSessions(cells, dsn, clients, func(db *sql.DB, n int) (compare.Cell, error) {
			l := &articles.CheckVelocity{DB: db, Zone: articles.Login}
			if err := l.Fill(ctx, o.keys); err != nil {
				return compare.Cell{}, err
			}
			c := rival("article 001, check_velocity", n, l, o.keys)
			measure := c.Measure
			c.Measure = func(ctx context.Context, d time.Duration) (compare.Sample, error) {
				if err := l.Forget(ctx); err != nil {
					return compare.Sample{}, err
				}
				return measure(ctx, d)
			}
			counts := &articles.CheckVelocity{DB: db, Zone: articles.Counted}
			c.Exact = compare.Fixed(n, articles.Rate, asked(counts, []string{fresh()}))
			return c, nil
		})
	}
}
