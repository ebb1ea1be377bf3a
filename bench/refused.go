package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/gate"
	"github.com/headgate/headgate/bench/rivals"
)

// refused measures what a client costs that keeps asking though it is refused:
// a refusal is known to hold until it ends, whatever others do.
func (b *bench) refused() []compare.Comparison {
	return []compare.Comparison{
		{
			Name: "refused-ns", Title: "PostgreSQL, a refusal that is known to hold", Unit: compare.Nanosecond,
			Goals: []compare.Goal{compare.Beside(2), compare.Below(60, compare.Nanosecond)},
			Cells: b.refusal,
		},
		{
			Name: "refused-statements", Title: "PostgreSQL, statements of a client that hammers 10/s",
			Unit:  compare.Statements,
			Goals: []compare.Goal{compare.Below(11, compare.Statements)},
			Cells: b.hammered,
		},
	}
}

// remote opens Headgate on a database of its own. Wrappers that are named stand between
// the store and the recommended stack.
func (b *bench) remote(ctx context.Context, limit headgate.Limit, behind ...gate.Wrap) (limiter rivals.Limiter,
	stop func(), err error,
) {
	dsn, drop, err := b.postgres(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, err := gate.Open(ctx, dsn, append(behind, gate.Front)...)
	if err != nil {
		drop()
		return nil, nil, err
	}
	return gated{headgate.New(s, nil), limit}, func() {
		s.Close()
		drop()
	}, nil
}

func (b *bench) refusal(ctx context.Context) ([]compare.Cell, error) {
	l, stop, err := b.remote(ctx, once)
	if err != nil {
		return nil, err
	}
	cells := []compare.Cell{repeated(compare.Ours, gate.Name+", PostgreSQL", l, b.one[0], false, stop)}
	if l, stop, err = local(rivals.Once, 1); err != nil {
		return cells, err
	}
	return append(cells, repeated(compare.Self, gate.Name+", memory", l, b.one[0], false, stop)), nil
}

// repeated asks about one key again and again, and expects to be allowed or
// not, after the first time.
func repeated(side compare.Side, name string, l rivals.Limiter, key string, allowed bool, stop func()) compare.Cell {
	c := compare.Cell{Side: side, Name: name, Close: stop}
	if _, c.Err = l.Allow(context.Background(), key); c.Err != nil {
		return c
	}
	c.Measure = func(ctx context.Context, d time.Duration) (compare.Sample, error) {
		return compare.Parallel(ctx, d, []string{key}, func(key string) bool {
			got, err := l.Allow(ctx, key)
			return err == nil && got == allowed
		})
	}
	return c
}

// hammered counts the statements of a client that nothing holds back.
func (b *bench) hammered(ctx context.Context) ([]compare.Cell, error) {
	var calls atomic.Int64
	count := gate.Count(func() { calls.Add(1) })
	l, stop, err := b.remote(ctx, headgate.MustParse("token-bucket 10/s burst 1"), count)
	if err != nil {
		return nil, err
	}
	c := compare.Cell{Side: compare.Ours, Name: gate.Name, Close: stop}
	c.Measure = func(ctx context.Context, d time.Duration) (compare.Sample, error) {
		d = max(d, time.Second)
		before := calls.Load()
		begin := time.Now()
		sample, err := compare.Parallel(ctx, d, b.one, func(key string) bool {
			_, err := l.Allow(ctx, key)
			return err == nil
		})
		sample.Value = float64(calls.Load()-before) / time.Since(begin).Seconds()
		return sample, err
	}
	return []compare.Cell{c}, nil
}

// leased measures what is allowed out of units that were taken up front.
func (b *bench) leased() []compare.Comparison {
	return []compare.Comparison{{
		Name: "leased-ns", Title: "PostgreSQL, allowed out of a lease", Unit: compare.Nanosecond,
		Goals: []compare.Goal{compare.Beside(3)},
		Cells: func(ctx context.Context) ([]compare.Cell, error) {
			l, stop, err := b.remote(ctx, leasing)
			if err != nil {
				return nil, err
			}
			cells := []compare.Cell{repeated(compare.Ours, gate.Name+", PostgreSQL with a lease", l, b.one[0],
				true, stop)}
			if l, stop, err = local(rivals.Always, 1); err != nil {
				return cells, err
			}
			return append(cells, repeated(compare.Self, gate.Name+", memory", l, b.one[0], true, stop)), nil
		},
	}}
}
