package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/bench/articles"
	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/gate"
)

const committed = "read committed"

// postgresField is PostgreSQL beside article 000 and the bare statement. Every answer is on disk
// before it is given.
func (b *bench) postgresField() *field {
	return &field{
		name: "postgres", title: "PostgreSQL", meter: b.meterPostgres, empty: emptyHeadgate,
		url:    func(ctx context.Context, _ int) (string, func(), error) { return b.postgres(ctx) },
		sizes:  []size{{1_000_000, []int{8, 512}}, {10_000_000, []int{8, 512}}},
		beside: b.besidePostgres,
		goals: map[string][]compare.Goal{
			"postgres-hot-32":           {compare.Times(10), compare.P99(0.1)},
			"postgres-hot-512":          {compare.Times(100)},
			"postgres-100k-1":           {compare.Within(1 / 0.85)},
			"postgres-100k-8":           {compare.Times(1.5)},
			"postgres-100k-32":          {compare.Times(3)},
			"postgres-100k-512":         {compare.Times(10), compare.P99Below(20 * time.Millisecond)},
			"postgres-zipf-8":           {compare.Times(1.2)},
			"postgres-zipf-512":         {compare.Times(8)},
			"postgres-limits-3":         {compare.AtLeast(20_000), compare.P99Below(30 * time.Millisecond)},
			"postgres-limits-6-settled": {compare.AtLeast(5000), compare.P99Below(60 * time.Millisecond)},
		},
	}
}

func (b *bench) besidePostgres(ctx context.Context, keys []string) (others []other, stop func(), err error) {
	dsn, drop, err := b.postgres(ctx)
	if err != nil {
		return nil, nil, err
	}
	article, err := pool(ctx, dsn, 32, committed)
	if err != nil {
		return nil, drop, err
	}
	plain, err := barePool(ctx, dsn, 32)
	if err != nil {
		return nil, func() { article.Close(); drop() }, err
	}
	stop = func() {
		plain.Close()
		article.Close()
		drop()
	}
	// 1000 a second for an hour, as the article's own test has it.
	l := &articles.RateLimitingRequest{Pool: article, RefillPerSec: 1000, WindowSeconds: 3600}
	bare := barePostgres{plain}
	err = errors.Join(articles.InstallPostgres(ctx, article), l.Fill(ctx, keys), bare.fill(ctx, keys))
	return []other{
		{
			side: compare.Rival, name: "article 000", limiter: l, fresh: l,
			tight: &articles.RateLimitingRequest{Pool: article, RefillPerSec: 1000, WindowSeconds: 1},
			empty: func(ctx context.Context) error { return emptied(ctx, article, "rate_limiting_token_bucket") },
		},
		{
			side: compare.Ceiling, name: "a bare UPDATE", limiter: bare.by(bareUpdate), fresh: bare.by(bareUpsert),
			empty: bare.empty, many: bare.many, batch: bare.batch(keys),
		},
	}, stop, err
}

// onPostgres compares what the matrix has no place for.
func (b *bench) onPostgres() []compare.Comparison {
	return []compare.Comparison{
		{
			Name: "postgres-leaky-100k-512", Title: "PostgreSQL, 100,000 live leaky buckets, 512 callers",
			Goals: []compare.Goal{compare.Times(300)},
			Cells: b.article004(8, 32),
		},
		{
			Name: "postgres-sweep-1m", Title: "PostgreSQL, 1,000,000 keys, 512 callers, sweeping",
			Goals: []compare.Goal{compare.Beside(1.02)},
			Cells: b.sweeping,
		},
		{
			Name: "postgres-front-256", Title: "PostgreSQL, one key, 256 callers of README's program",
			Goals: []compare.Goal{compare.TimesItself(50)},
			Cells: b.documented,
		},
		b.locked("postgres", "PostgreSQL", compare.Beside(2), b.postgres, lockInPostgres),
	}
}

// inPostgres makes ready a database for Headgate and one for an article.
func (b *bench) inPostgres(ctx context.Context, o ours) (cells []compare.Cell, dsn string, err error) {
	mine, drop, err := b.postgres(ctx)
	if err != nil {
		return nil, "", err
	}
	o.url, o.close, o.wrap = mine, drop, []gate.Wrap{gate.Front}
	cells = []compare.Cell{o.cell(ctx)}
	dsn, drop, err = b.postgres(ctx)
	if err != nil {
		return cells, "", err
	}
	first := cells[0].Close
	cells[0].Close = func() {
		first()
		drop()
	}
	return cells, dsn, nil
}

// install makes what an article needs, once, and puts in the keys.
func install(ctx context.Context, p *pgxpool.Pool, first bool, make func(context.Context, *pgxpool.Pool) error,
	fill func(context.Context, []string) error, keys []string,
) error {
	if first {
		if err := make(ctx, p); err != nil {
			return err
		}
	}
	return fill(ctx, keys)
}

func (b *bench) article004(clients ...int) func(context.Context) ([]compare.Cell, error) {
	return func(ctx context.Context) ([]compare.Cell, error) {
		cells, dsn, err := b.inPostgres(ctx, ours{limit: alive, keys: b.many, callers: 512, exact: true})
		if err != nil {
			return cells, err
		}
		for i, n := range clients {
			p, err := pool(ctx, dsn, n, committed)
			if err != nil {
				return cells, err
			}
			l := &articles.LeakyBucket{Pool: p, Capacity: 1e6, LeakRate: 1e6 / (365 * 86400)}
			if err := install(ctx, p, i == 0, articles.InstallPostgres, l.Fill, b.many); err != nil {
				p.Close()
				return append(cells, failed(compare.Rival, "article 004, pruning", err)), nil
			}
			c := counted(rival("article 004, pruning", n, l, b.many), n,
				&articles.LeakyBucket{Pool: p, Capacity: 1000, LeakRate: 1000})
			c.Close = p.Close
			cells = append(cells, c)
		}
		return cells, nil
	}
}

// documented measures a Go program as README.md has it, with its sweeper, against
// one that gives the driver itself to the limiter.
func (b *bench) documented(ctx context.Context) ([]compare.Cell, error) {
	const callers = 256
	dsn, drop, err := b.postgres(ctx)
	if err != nil {
		return nil, err
	}
	alone := ours{url: dsn, limit: always, keys: b.one, callers: callers, at: "the driver alone", close: drop}.cell(ctx)
	alone.Side = compare.Self
	return []compare.Cell{
		alone,
		ours{
			url: dsn, wrap: []gate.Wrap{gate.Documented}, limit: always, keys: b.one, callers: callers,
			at: "store/front",
		}.cell(ctx),
	}, nil
}

// sweeping measures the same store with and without a sweeper, over live keys
// of which each lives for ten minutes: so many are dead in every second.
func (b *bench) sweeping(ctx context.Context) ([]compare.Cell, error) {
	s, _, end, err := openFilled(ctx, b.postgres, lasting, b.million)
	if err != nil {
		return nil, err
	}
	plain := compare.Callers(512, gate.Ask(s, lasting, b.million))
	if _, err := plain(ctx, 3*time.Second); err != nil { // what follows a fill is over
		end()
		return nil, err
	}
	swept := func(ctx context.Context, d time.Duration) (compare.Sample, error) {
		dead := make([]string, int(d.Seconds()*float64(len(b.million))/600))
		for i := range dead {
			dead[i] = fresh()
		}
		if err := gate.Fill(ctx, s, always, dead); err != nil {
			return compare.Sample{}, err
		}
		sweeping, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			var failed error
			for failed == nil && sweeping.Err() == nil {
				_, failed = s.Sweep(ctx, sweepMax)
				select {
				case <-sweeping.Done():
				case <-time.After(sweepPause):
				}
			}
			done <- failed
		}()
		sample, err := plain(ctx, d)
		stop()
		return sample, errors.Join(err, <-done)
	}
	return []compare.Cell{
		{Side: compare.Ours, Name: gate.Name, At: "with a sweeper", Measure: swept, Close: end},
		{Side: compare.Self, Name: gate.Name, At: "without", Measure: plain},
	}, nil
}

// How often, and how many rows at most, are swept. The server pauses for ten
// seconds on average.
const (
	sweepMax   = 5000
	sweepPause = time.Second
)
