package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/headgate/headgate/bench/articles"
	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/gate"
)

// onMariaDB compares with articles 001 and 003. The log is flushed at every
// commit.
func (b *bench) onMariaDB() []compare.Comparison {
	return []compare.Comparison{
		{
			Name: "mariadb-bucket-100k-512", Title: "MariaDB, 100,000 token buckets, 512 callers",
			Goals: []compare.Goal{compare.Times(6)},
			Why:   "13 to 16 us of the server's CPU for a charge, of which a bare update of many rows takes 6 to 10",
			Cells: b.article003(ours{limit: always, keys: b.many, callers: 512}, 8, 32),
		},
		{
			Name: "mariadb-log-100k-512", Title: "MariaDB, 100,000 sliding logs, 5 in 60 s, 512 callers",
			Goals: []compare.Goal{compare.Times(8)},
			Why: "40 us of the server's CPU for an entry that is granted and 30 for one that is refused: cell, " +
				"sum and entry; the article's procedure shares the cheap flush among its clients",
			Cells: b.article001(ours{limit: login, keys: b.many, callers: 512}, 8, 32),
		},
		{
			Name: "mariadb-hot-512", Title: "MariaDB, one hot token bucket, 512 callers",
			Goals: []compare.Goal{compare.Times(50)},
			Cells: b.article003(ours{limit: always, keys: b.one, callers: 512, exact: true}, 8, 32),
		},
	}
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

func (b *bench) article003(o ours, clients ...int) func(context.Context) ([]compare.Cell, error) {
	return func(ctx context.Context) ([]compare.Cell, error) {
		cells, dsn, err := b.inMariaDB(ctx, o)
		if err != nil {
			return cells, err
		}
		return inSessions(cells, dsn, clients, func(db *sql.DB, n int) (compare.Cell, error) {
			l := &articles.RequestToken{DB: db, Capacity: 1_000_000_000, RefillSeconds: 3600}
			if err := l.Fill(ctx, o.keys); err != nil {
				return compare.Cell{}, err
			}
			c := rival("article 003, request_token", n, l, o.keys)
			if o.exact {
				key := fresh()
				counts := &articles.RequestToken{DB: db, Capacity: 1000, RefillSeconds: 1}
				if err := counts.Fill(ctx, []string{key}); err != nil {
					return c, err
				}
				c.Exact = compare.Bucket(n, 1000, 1000, asked(counts, []string{key}))
			}
			return c, nil
		})
	}
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
