package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/gate"
	"github.com/headgate/headgate/bench/rivals"
	"github.com/headgate/headgate/store/memory"
)

// inMemory compares within this process: through a string key, but for those
// at hand.
func (b *bench) inMemory() []compare.Comparison {
	var list []compare.Comparison
	for _, n := range []struct {
		name, title string
		keys        []string
	}{{"1", "1 key", b.one}, {"1k", "1,000 keys", b.thousand}, {"1m", "1,000,000 keys", b.million}} {
		for _, refuse := range []bool{false, true} {
			name, title := "memory-"+n.name+"-allow", "In memory, "+n.title+", allowed"
			if refuse {
				name, title = "memory-"+n.name+"-refuse", "In memory, "+n.title+", refused"
			}
			list = append(list, compare.Comparison{
				Name: name, Title: title, Unit: compare.Nanosecond,
				Goals: []compare.Goal{compare.Times(1), compare.Within(1.5)},
				Cells: inProcess(n.keys, refuse),
			})
		}
	}
	return append(list,
		compare.Comparison{
			Name: "memory-bytes-1m", Title: "In memory, 1,000,000 keys: bytes a key", Unit: compare.Bytes,
			Goals: []compare.Goal{compare.Below(56, compare.Bytes)},
			Cells: b.held(func(h held) float64 { return h.bytes }), Rounds: 1,
		},
		compare.Comparison{
			Name: "memory-gc-1m", Title: "In memory, 1,000,000 keys: a full garbage collection", Unit: compare.Millis,
			Goals: []compare.Goal{compare.Below(15, compare.Millis)},
			Cells: b.held(func(h held) float64 { return float64(h.gc) / 1e6 }), Rounds: 3,
		})
}

// local returns a limiter over Headgate's memory, as one of the others.
func local(q rivals.Quota, _ int) (rivals.Limiter, func(), error) {
	s, err := gate.Open(context.Background(), "memory:")
	if err != nil {
		return nil, nil, err
	}
	limit := always
	switch q {
	case rivals.Once:
		limit = once
	case rivals.Tight:
		limit = tight
	}
	return gated{headgate.New(s, nil), limit}, func() { s.Close() }, nil
}

// gated is a limiter and a limit.
type gated struct {
	limiter *headgate.Limiter
	limit   headgate.Limit
}

// Allow implements rivals.Limiter.
func (g gated) Allow(ctx context.Context, key string) (bool, error) {
	d, err := g.limiter.Allow(ctx, g.limit, key)
	return d.Allowed, err
}

// locals returns everybody who keeps keys in this process.
func locals() (list []rivals.Local, sides []compare.Side) {
	list = append([]rivals.Local{{Name: gate.Name, New: local}}, append(rivals.Locals(), rivals.Ceilings()...)...)
	sides = make([]compare.Side, len(list))
	for i := range sides {
		switch {
		case i == 0:
		case i <= len(rivals.Locals()):
			sides[i] = compare.Rival
		default:
			sides[i] = compare.Ceiling
		}
	}
	return list, sides
}

// inProcess makes a new table for each cell and round, so that nobody is
// measured while the tables of others are in memory.
func inProcess(keys []string, refuse bool) func(context.Context) ([]compare.Cell, error) {
	return func(context.Context) ([]compare.Cell, error) {
		list, sides := locals()
		cells := make([]compare.Cell, len(list))
		for i, l := range list {
			cells[i] = compare.Cell{
				Side: sides[i], Name: l.Name,
				Measure: func(ctx context.Context, d time.Duration) (compare.Sample, error) {
					quota := rivals.Always
					if refuse {
						quota = rivals.Once
					}
					limiter, stop, err := filled(ctx, l, quota, keys)
					if err != nil {
						return compare.Sample{}, err
					}
					defer stop()
					return compare.Parallel(ctx, d, keys, func(key string) bool {
						allowed, err := limiter.Allow(ctx, key)
						return err == nil && allowed != refuse
					})
				},
			}
			if len(keys) == 1 && !refuse {
				cells[i].Exact = func(ctx context.Context, d time.Duration) (compare.Exactness, error) {
					limiter, stop, err := l.New(rivals.Tight, 1)
					if err != nil {
						return compare.Exactness{}, err
					}
					defer stop()
					return compare.Bucket(runtime.GOMAXPROCS(0), 1000, 1000, asked(limiter, keys))(ctx, d)
				}
			}
		}
		return cells, nil
	}
}

// filled returns a limiter that has allowed every key once.
func filled(ctx context.Context, l rivals.Local, q rivals.Quota, keys []string) (rivals.Limiter, func(), error) {
	limiter, stop, err := l.New(q, len(keys))
	if err != nil {
		return nil, nil, err
	}
	for _, key := range keys {
		allowed, err := limiter.Allow(ctx, key)
		if err == nil && !allowed {
			err = errors.New("a new key was refused")
		}
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("fill: %w", err)
		}
	}
	return limiter, stop, nil
}

// held is what a limiter holds.
type held struct {
	bytes float64       // of the heap, a key
	gc    time.Duration // a full collection
}

func (b *bench) held(tell func(held) float64) func(context.Context) ([]compare.Cell, error) {
	return func(context.Context) ([]compare.Cell, error) {
		list, sides := locals()
		cells := make([]compare.Cell, len(list))
		for i, l := range list {
			cells[i] = compare.Cell{
				Side: sides[i], Name: l.Name,
				Measure: func(ctx context.Context, _ time.Duration) (compare.Sample, error) {
					h, err := weigh(ctx, l, len(b.million))
					return compare.Sample{Value: tell(h)}, err
				},
			}
		}
		return cells, nil
	}
}

// weigh fills a limiter. Its keys are cut out of one string, which is not
// counted; what a limiter copies of it is.
func weigh(ctx context.Context, l rivals.Local, n int) (held, error) {
	keys := users(n)
	before := heap()
	limiter, stop, err := filled(ctx, l, rivals.Always, keys)
	if err != nil {
		return held{}, err
	}
	defer stop()
	after := heap()
	h := held{bytes: float64(after-before) / float64(n), gc: time.Hour}
	for range 3 {
		begin := time.Now()
		runtime.GC()
		h.gc = min(h.gc, time.Since(begin))
	}
	runtime.KeepAlive(keys)
	runtime.KeepAlive(limiter)
	return h, nil
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// memoryField is memory, as headgate serve opens it, beside the three limiters of this kind that
// were the quickest, and beside bare arithmetic. All tables are in memory at once.
func (b *bench) memoryField() *field {
	return &field{
		name: "memory", title: "In memory", inProcess: true,
		url: func(_ context.Context, keys int) (string, func(), error) {
			if keys > memory.DefaultMaxKeys {
				return fmt.Sprintf("memory:%d", keys), func() {}, nil
			}
			return "memory:", func() {}, nil
		},
		beside:  besideMemory,
		clients: func(callers int) []int { return []int{callers} },
		sizes:   []size{{10_000, []int{8}}, {1_000_000, []int{8}}, {10_000_000, []int{8}}},
	}
}

func besideMemory(ctx context.Context, keys []string) (others []other, stop func(), err error) {
	var ends []func()
	stop = func() {
		for _, end := range ends {
			end()
		}
	}
	list, sides := locals()
	for i, l := range list {
		if !quickest[strings.Split(l.Name, " ")[0]] && l.Name != "bare GCRA, flat table" {
			continue
		}
		limiter, end, err := filled(ctx, l, rivals.Always, keys)
		if err != nil {
			return nil, stop, err
		}
		o := other{side: sides[i], name: l.Name, limiter: limiter, fresh: limiter}
		if sides[i] == compare.Ceiling {
			o.fresh = nil // its table does not grow
		} else if tight, endTight, err := l.New(rivals.Tight, 1); err == nil {
			o.tight = tight
			ends = append(ends, endTight)
		}
		others, ends = append(others, o), append(ends, end)
	}
	return others, stop, nil
}

// quickest are the limiters in memory that are compared in all rows of the matrix.
var quickest = map[string]bool{"go-limiter": true, "failsafe-go": true, "x/time/rate": true}
