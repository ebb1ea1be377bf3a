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

const (
	committed    = "read committed"
	serializable = "serializable"
)

// onPostgres compares with articles 000 and 004. Every answer is on disk
// before it is given.
func (b *bench) onPostgres() []compare.Comparison {
	x8, x32, x32s := session{8, committed}, session{32, committed}, session{32, serializable}
	return []compare.Comparison{
		{
			Name: "postgres-hot-512", Title: "PostgreSQL, one hot key, 512 callers",
			Goals: []compare.Goal{compare.Times(100)},
			Cells: b.article000(512, b.one, true, x32, x32s),
		},
		{
			Name: "postgres-hot-32", Title: "PostgreSQL, one hot key, 32 callers",
			Goals: []compare.Goal{compare.Times(10), compare.P99(0.1)},
			Cells: b.article000(32, b.one, false, x32),
		},
		{
			Name: "postgres-100k-512", Title: "PostgreSQL, 100,000 keys, 512 callers",
			Goals: []compare.Goal{compare.Times(10)},
			Why: "15 us of the server's CPU and 5 us of the driver's, of two cores, for a charge: an index " +
				"descent, an update in place and its log; the article's function has the disk's flush cheap here (0.12 ms) and group commit",
			Cells: b.article000(512, b.many, false, x8, x32),
		},
		{
			Name: "postgres-leaky-100k-512", Title: "PostgreSQL, 100,000 live leaky buckets, 512 callers",
			Goals: []compare.Goal{compare.Times(300)},
			Cells: b.article004(8, 32),
		},
		{
			Name: "postgres-batch-128", Title: "PostgreSQL, 100,000 keys, 4 connections: 128 requests a batch",
			Cells: b.batches,
		},
		{
			Name: "postgres-sweep-1m", Title: "PostgreSQL, 1,000,000 keys, 512 callers, sweeping",
			Goals: []compare.Goal{compare.Within(1.02)},
			Why:   "a sweep each second looks at 10,000 rows; headgate serve sweeps every ten seconds",
			Cells: b.sweeping,
		},
		{
			Name: "postgres-front-256", Title: "PostgreSQL, one key, 256 callers of README's program",
			Goals: []compare.Goal{compare.Times(50)},
			Cells: b.documented,
		},
	}
}

// session is how the articles' functions are called: by so many clients, each
// with a connection, at a level of isolation.
type session struct {
	clients   int
	isolation string
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

func (b *bench) article000(callers int, keys []string, exact bool, sessions ...session) func(context.Context) (
	[]compare.Cell, error) {
	return func(ctx context.Context) ([]compare.Cell, error) {
		cells, dsn, err := b.inPostgres(ctx, ours{limit: always, keys: keys, callers: callers, exact: exact})
		if err != nil {
			return cells, err
		}
		for i, s := range sessions {
			p, err := pool(ctx, dsn, s.clients, s.isolation)
			if err != nil {
				return cells, err
			}
			name := "article 000, " + s.isolation
			// 1000 a second for an hour, as the article's own test has it.
			l := &articles.RateLimitingRequest{Pool: p, RefillPerSec: 1000, WindowSeconds: 3600}
			if err := install(ctx, p, i == 0, articles.InstallPostgres, l.Fill, keys); err != nil {
				p.Close()
				return append(cells, failed(compare.Rival, name, err)), nil
			}
			c := rival(name, s.clients, l, keys)
			if exact {
				c = counted(c, s.clients, &articles.RateLimitingRequest{Pool: p, RefillPerSec: 1000, WindowSeconds: 1})
			}
			c.Close = p.Close
			cells = append(cells, c)
		}
		return cells, nil
	}
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
	alone.Side = compare.Rival
	return []compare.Cell{
		alone,
		ours{
			url: dsn, wrap: []gate.Wrap{gate.Documented}, limit: always, keys: b.one, callers: callers,
			at: "store/front",
		}.cell(ctx),
	}, nil
}

// batches measures Limiter.Batch against one call for each request, both
// without a wrapper.
func (b *bench) batches(ctx context.Context) ([]compare.Cell, error) {
	const clients, requests = 4, 128
	dsn, drop, err := b.postgres(ctx)
	if err != nil {
		return nil, err
	}
	single := ours{url: dsn, limit: always, keys: b.many, callers: clients, at: "one a call", close: drop}.cell(ctx)
	single.Side = compare.Rival
	s, err := gate.Open(ctx, dsn)
	if err != nil {
		return []compare.Cell{single}, err
	}
	return []compare.Cell{single, {
		Side: compare.Ours, Name: gate.Name, At: "128 a call", Close: func() { s.Close() },
		Measure: compare.Weighted(clients, requests, gate.AskMany(s, always, b.many, requests)),
	}}, nil
}

// sweeping measures the same store with and without a sweeper, over live keys
// of which each lives for ten minutes: so many are dead in every second.
func (b *bench) sweeping(ctx context.Context) ([]compare.Cell, error) {
	dsn, drop, err := b.postgres(ctx)
	if err != nil {
		return nil, err
	}
	s, err := gate.Open(ctx, dsn, gate.Front)
	if err != nil {
		drop()
		return nil, err
	}
	end := func() {
		s.Close()
		drop()
	}
	if err := gate.Fill(ctx, s, lasting, b.million); err != nil {
		end()
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
		{Side: compare.Ceiling, Name: gate.Name, At: "without", Measure: plain},
	}, nil
}

// How often, and how many rows at most, are swept. The server pauses for ten
// seconds on average.
const (
	sweepMax   = 5000
	sweepPause = time.Second
)
