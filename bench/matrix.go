package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/gate"
	"github.com/headgate/headgate/bench/rivals"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/store"
)

// field is a store that the works of the matrix are measured on.
type field struct {
	name, title string
	inProcess   bool // a decision takes less than a look at the clock
	// url returns that of an empty database, for Headgate.
	url func(ctx context.Context, keys int) (url string, drop func(), err error)
	// meter is nil where there is no server.
	meter func(ctx context.Context) (meter, func(), error)
	// beside makes ready what Headgate is compared with, with some keys. What it returns is
	// let go of even where it returns an error.
	beside func(ctx context.Context, keys []string) (others []other, stop func(), err error)
	// clients says by how many clients the others are called where Headgate has so many
	// callers; nil: by as many, but at most by 8 and by 32.
	clients func(callers int) []int
	goals   map[string][]compare.Goal // by the name of a comparison
	sizes   []size
	// empty removes Headgate's rows, and the room that they took; nil where that changes nothing.
	empty func(ctx context.Context, url string) error
}

// other is what Headgate is compared with.
type other struct {
	side    compare.Side
	name    string
	clients int            // whatever the callers; 0: see field
	limiter rivals.Limiter // with keys that are there
	tight   rivals.Limiter // with the quota rivals.Tight, to be counted; nil: it is not
	fresh   rivals.Limiter // with keys that may be new; nil: it cannot
	empty   func(ctx context.Context) error
	many    func(keys [][]string, ids bool) load.Ask // nil, or its answer: it cannot
	batch   func(n int) load.Ask                     // nil: it cannot
}

// matrixCallers are the numbers of callers of the first three works.
var matrixCallers = []int{1, 8, 32, 128, 512}

// work is what is asked in the first rows of the matrix.
type work struct {
	name, title string
	keys        func(b *bench) []string
	zipf        bool
}

var works = []work{
	{"hot", "one key", func(b *bench) []string { return b.one }, false},
	{"100k", "100,000 keys", func(b *bench) []string { return b.many }, false},
	{"zipf", "100,000 keys by Zipf(1.0)", func(b *bench) []string { return b.many }, true},
}

// matrix returns the comparisons of a store.
func (b *bench) matrix(f *field) []compare.Comparison {
	var list []compare.Comparison
	stands := map[int]*stand{}
	at := func(keys []string) *stand {
		if stands[len(keys)] == nil {
			stands[len(keys)] = newStand(f, keys)
		}
		return stands[len(keys)]
	}
	add := func(st *stand, c compare.Comparison, cells func(ctx context.Context, st *stand) []compare.Cell) {
		c.Goals, c.Shared = f.goals[c.Name], &st.shared
		c.Cells = func(ctx context.Context) ([]compare.Cell, error) {
			if err := st.open(ctx); err != nil {
				return nil, err
			}
			return cells(ctx, st), nil
		}
		list = append(list, c)
	}
	for _, w := range works {
		for _, callers := range matrixCallers {
			pick := b.pick(w)
			add(at(w.keys(b)), compare.Comparison{
				Name:  fmt.Sprintf("%s-%s-%d", f.name, w.name, callers),
				Title: fmt.Sprintf("%s, %s, %s", f.title, w.title, count(callers, "caller")),
				Curve: &compare.Point{Picture: "curve-" + f.name, Title: f.title, Panel: w.title, Callers: callers},
			}, func(_ context.Context, st *stand) []compare.Cell { return st.row(pick, callers) })
		}
	}
	for _, callers := range []int{8, 512} {
		add(b.roomy(f, at), compare.Comparison{
			Name:  fmt.Sprintf("%s-new-%d", f.name, callers),
			Title: fmt.Sprintf("%s, new keys, %d callers", f.title, callers),
		}, func(_ context.Context, st *stand) []compare.Cell { return st.newKeys(callers) })
	}
	for _, limits := range []int{3, 6} {
		for _, ids := range []bool{false, true} {
			name := fmt.Sprintf("%s-limits-%d", f.name, limits)
			title := fmt.Sprintf("%s, %d limits in a request", f.title, limits)
			least := time.Duration(0)
			if ids { // a request takes two answers of up to 0.3 s
				name, title, least = name+"-settled", title+", with an id and then settled", 2*time.Second
			}
			add(at(b.many), compare.Comparison{Name: name, Title: title + ", 256 callers", Least: least},
				func(_ context.Context, st *stand) []compare.Cell { return st.many(limits, ids, 256) })
		}
	}
	for _, n := range []int{128, 512} {
		add(at(b.many), compare.Comparison{
			Name:  fmt.Sprintf("%s-batch-%d", f.name, n),
			Title: fmt.Sprintf("%s, 100,000 keys, 4 callers with %d requests a batch", f.title, n),
		}, func(_ context.Context, st *stand) []compare.Cell { return st.batches(n) })
	}
	if f.empty != nil { // the last of its stand: it leaves few rows
		for _, callers := range []int{8, 512} {
			add(at(b.many), compare.Comparison{
				Name:  fmt.Sprintf("%s-emptied-%d", f.name, callers),
				Title: fmt.Sprintf("%s, 100,000 keys after all rows were removed, %d callers", f.title, callers),
			}, func(_ context.Context, st *stand) []compare.Cell { return st.emptied(callers) })
		}
	}
	return append(list, b.sized(f)...)
}

// count writes a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// pick returns how a work draws its keys. Those of Zipf's law, where key i, from 1 on, is drawn
// 1/i times as often as the first, are drawn beforehand, so that drawing costs nothing to speak of.
func (b *bench) pick(w work) gate.Pick {
	n := len(w.keys(b))
	if !w.zipf {
		return func(rng *rand.Rand) int { return rng.IntN(n) }
	}
	if b.drawn == nil {
		sums, sum := make([]float64, n), 0.0
		for i := range sums {
			sum += 1 / float64(i+1)
			sums[i] = sum
		}
		b.drawn = make([]int32, 1<<20)
		for i := range b.drawn {
			x := rand.Float64() * sum
			b.drawn[i] = int32(min(sort.SearchFloat64s(sums, x), n-1))
		}
	}
	drawn := b.drawn
	return func(rng *rand.Rand) int { return int(drawn[rng.IntN(len(drawn))]) }
}

// stand is a field with some keys in it.
type stand struct {
	*field
	keys   []string
	shared compare.Shared
	opened bool
	at     string // the URL of Headgate's database
	err    error
	store  store.Store
	others []other
	read   meter
	ends   []func()
}

func newStand(f *field, keys []string) *stand {
	st := &stand{field: f, keys: keys}
	st.shared.Close = func() {
		for i := len(st.ends) - 1; i >= 0; i-- {
			st.ends[i]()
		}
	}
	return st
}

// open makes the stand ready, once.
func (st *stand) open(ctx context.Context) error {
	if !st.opened {
		st.opened = true
		st.err = st.make(ctx)
	}
	return st.err
}

func (st *stand) make(ctx context.Context) error {
	url, drop, err := st.url(ctx, len(st.keys))
	if err != nil {
		return err
	}
	st.at = url
	st.ends = append(st.ends, drop)
	if st.store, err = gate.Open(ctx, url, gate.Front); err != nil {
		return err
	}
	st.ends = append(st.ends, func() { st.store.Close() })
	if err := gate.Fill(ctx, st.store, always, st.keys); err != nil {
		return err
	}
	others, stop, err := st.beside(ctx, st.keys)
	st.others = others
	if stop != nil {
		st.ends = append(st.ends, stop)
	}
	if err != nil {
		return err
	}
	st.read = meterNone
	if st.meter != nil {
		read, stop, err := st.meter(ctx)
		if err != nil {
			return err
		}
		st.read = read
		st.ends = append(st.ends, stop)
	}
	return nil
}

// loop returns how callers of this store are measured.
func (st *stand) loop(callers int, ask load.Ask) func(context.Context, time.Duration) (compare.Sample, error) {
	if st.inProcess {
		return compare.InProcess(callers, ask)
	}
	return compare.Callers(callers, ask)
}

// ours returns Headgate's cell.
func (st *stand) ours(callers int, ask load.Ask) compare.Cell {
	return compare.Cell{
		Side: compare.Ours, Name: gate.Name, At: count(callers, "caller"), Meter: st.read,
		Measure: st.loop(callers, ask), Exact: st.audit(callers),
	}
}

// audit counts what callers get of new keys under a limit that binds: of one where the keys are
// one, else of twenty.
func (st *stand) audit(callers int) func(context.Context, time.Duration) (compare.Exactness, error) {
	limit, refill, burst, n := headgate.MustParse("token-bucket 100/s burst 100"), 100.0, 100.0, 1
	if len(st.keys) > 1 {
		limit, refill, burst, n = headgate.MustParse("token-bucket 10/s burst 5"), 10.0, 5.0, 20
	}
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fresh()
	}
	limiter := headgate.New(st.store, nil)
	return compare.Audit(callers, n, refill, burst, func(ctx context.Context, _ int, rng *rand.Rand) ([]int, error) {
		i := rng.IntN(n)
		d, err := limiter.Allow(ctx, limit, keys[i])
		if err != nil || !d.Allowed {
			return nil, err
		}
		return []int{i}, nil
	})
}

// against returns the cells of the others, with each number of clients that comes into question.
func (st *stand) against(callers int, cell func(o *other, clients int) (load.Ask, bool)) (cells []compare.Cell) {
	for i := range st.others {
		o := &st.others[i]
		list := []int{o.clients}
		switch {
		case o.clients > 0:
		case st.clients != nil:
			list = st.clients(callers)
		case callers >= 32:
			list = []int{8, 32}
		default:
			list = []int{callers}
		}
		for _, n := range list {
			if ask, ok := cell(o, n); ok {
				cells = append(cells, compare.Cell{
					Side: o.side, Name: o.name, At: count(n, "client"), Measure: st.loop(n, ask), Meter: st.read,
				})
			}
		}
	}
	return cells
}

// row returns the cells of a work with keys that are there.
func (st *stand) row(pick gate.Pick, callers int) []compare.Cell {
	cells := []compare.Cell{st.ours(callers, gate.AskPicked(st.store, always, st.keys, pick))}
	for _, c := range st.against(callers, func(o *other, _ int) (load.Ask, bool) {
		return func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
			return o.limiter.Allow(ctx, st.keys[pick(rng)])
		}, true
	}) {
		for i := range st.others {
			if o := &st.others[i]; o.name == c.Name && o.tight != nil && len(st.keys) == 1 && callers == 512 {
				c.Exact = compare.Bucket(32, 1000, 1000, asked(o.tight, []string{fresh()}))
			}
		}
		cells = append(cells, c)
	}
	return cells
}

// newKeys returns the cells of questions of which each is about a key that nobody has used.
func (st *stand) newKeys(callers int) []compare.Cell {
	limiter := headgate.New(st.store, nil)
	ours := st.ours(callers, func(ctx context.Context, _ int, _ *rand.Rand) (bool, error) {
		d, err := limiter.Allow(ctx, alive, fresh())
		return d.Allowed, err
	})
	return append([]compare.Cell{ours}, st.against(callers, func(o *other, _ int) (load.Ask, bool) {
		return func(ctx context.Context, _ int, _ *rand.Rand) (bool, error) {
			return o.fresh.Allow(ctx, fresh())
		}, o.fresh != nil
	})...)
}

// emptied returns the cells of keys whose rows are removed before each measurement.
func (st *stand) emptied(callers int) []compare.Cell {
	pick := func(rng *rand.Rand) int { return rng.IntN(len(st.keys)) }
	before := func(c compare.Cell, empty func(ctx context.Context) error) compare.Cell {
		measure := c.Measure
		c.Measure = func(ctx context.Context, d time.Duration) (compare.Sample, error) {
			if err := empty(ctx); err != nil {
				return compare.Sample{}, err
			}
			return measure(ctx, d)
		}
		c.Meter = nil // removing is not what is measured
		return c
	}
	cells := []compare.Cell{before(st.ours(callers, gate.AskPicked(st.store, alive, st.keys, pick)),
		func(ctx context.Context) error { return st.empty(ctx, st.at) })}
	for i := range st.others {
		o := &st.others[i]
		if o.empty == nil {
			continue
		}
		for _, c := range st.against(callers, func(x *other, _ int) (load.Ask, bool) {
			return func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
				return o.fresh.Allow(ctx, st.keys[pick(rng)])
			}, x == o
		}) {
			cells = append(cells, before(c, o.empty))
		}
	}
	return cells
}
