package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/gate"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// brief is a limit whose keys are dead a tenth of a second after they were asked about.
var brief = headgate.MustParse("token-bucket 10/s burst 1")

// sweptFor is how long new keys are made at least, so that several pauses of the sweeper are in it.
const sweptFor = 30 * time.Second

// flood is what came of callers that ask about new keys only, beside the sweeper.
type flood struct {
	made    compare.Sample // new keys a second, with the latency of other keys
	removed float64        // keys a second
	left    float64        // dead keys that were there in the end
	err     error
}

// swept returns the comparisons of a store in which new keys are made as fast as it takes them, and die soon. The three
// tell of one run.
func (b *bench) swept(f *field) []compare.Comparison {
	const callers = 512
	var run flood
	once := func(ctx context.Context, d time.Duration) flood {
		if run.made.Value == 0 && run.err == nil {
			run = b.flood(ctx, f, callers, max(d, sweptFor), nil)
		}
		return run
	}
	tell := func(side compare.Side, at string, what func(f flood) compare.Sample) compare.Cell {
		return compare.Cell{
			Side: side, Name: gate.Name, At: at,
			Measure: func(ctx context.Context, d time.Duration) (compare.Sample, error) {
				r := once(ctx, d)
				return what(r), r.err
			},
		}
	}
	made := func(f flood) compare.Sample { return f.made }
	row := func(name, title string, unit compare.Unit, goal compare.Goal, cells ...compare.Cell) compare.Comparison {
		return compare.Comparison{
			Name: f.name + "-swept-" + name, Title: f.title + ", " + title, Unit: unit, Goals: []compare.Goal{goal},
			Rounds: 1, Cells: func(context.Context) ([]compare.Cell, error) { return cells, nil },
		}
	}
	return []compare.Comparison{
		row("512", "new keys that die within 0.1 s, 512 callers", compare.PerSecond, compare.Beside(1.5),
			tell(compare.Ours, "with the sweeper; p99 of other keys", made),
			compare.Cell{
				Side: compare.Self, Name: gate.Name, At: "without",
				Measure: func(ctx context.Context, d time.Duration) (compare.Sample, error) {
					r := b.flood(ctx, f, callers, max(d, sweptFor), &front.Config{SweepEvery: -1})
					return r.made, r.err
				},
			}),
		row("rows", "keys that are removed meanwhile", compare.PerSecond, compare.TimesItself(0.85),
			tell(compare.Ours, "removed", func(f flood) compare.Sample { return compare.Sample{Value: f.removed} }),
			tell(compare.Self, "made", made)),
		row("left", "dead keys that are there in the end", compare.Rows, compare.Below(200_000, compare.Rows),
			tell(compare.Ours, "", func(f flood) compare.Sample { return compare.Sample{Value: f.left, Asked: 1} })),
	}
}

// flood makes new keys for some time, beside 100,000 live ones of which some are asked about.
func (b *bench) flood(ctx context.Context, f *field, callers int, d time.Duration, c *front.Config) (r flood) {
	url, drop, err := f.url(ctx, newKeysMax)
	if err != nil {
		return flood{err: err}
	}
	defer drop()
	s, err := gate.Open(ctx, url)
	if err != nil {
		return flood{err: err}
	}
	stack := front.New(s, c)
	defer stack.Close()
	if err := gate.Fill(ctx, stack, alive, b.many); err != nil {
		return flood{err: err}
	}
	limiter := headgate.New(stack, nil)
	var made atomic.Int64
	ask := func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
		answer, err := limiter.Allow(ctx, brief, fmt.Sprintf("%016x", rng.Uint64()))
		if err == nil {
			made.Add(1)
		}
		return answer.Allowed, err
	}
	var both sync.WaitGroup
	var others load.Result
	both.Go(func() { others = load.Run(ctx, load.Config{Clients: 8, Duration: d}, gate.Ask(stack, alive, b.many)) })
	all := load.Run(ctx, load.Config{Clients: callers, Duration: d}, ask)
	left, err := left(ctx, stack, made.Load(), int64(len(b.many)))
	both.Wait()
	return flood{
		made: compare.Sample{
			Value: all.PerSecond(), P50: others.Quantile(0.5), P99: others.Quantile(0.99),
			Asked: all.Allowed + all.Refused + all.Errors, Failed: all.Errors, FirstError: all.FirstError,
		},
		removed: float64(made.Load()-left) / all.Elapsed.Seconds(), left: float64(left),
		err: errors.Join(err, ctx.Err()),
	}
}

// left returns how many of the keys that were made are there. A store in memory, which counts its keys, live ones too,
// also removes dead ones when it makes room for others; elsewhere a sweep does.
func left(ctx context.Context, stack *front.Store, made, live int64) (int64, error) {
	if counter, ok := store.As[store.KeyCounter](stack); ok {
		counts, err := counter.KeyCounts(ctx)
		if err != nil {
			return 0, err
		}
		if len(counts) > 0 && counts[0].Limit == "" {
			return counts[0].Keys - live, nil
		}
	}
	return made - stack.Stats().Swept, nil
}
