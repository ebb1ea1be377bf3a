package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// bench holds what comparisons share.
type bench struct {
	servers
	one, many []string // keys
	drawn     []int32  // numbers of many, by Zipf's law
}

func newBench() *bench {
	b := &bench{one: users(1), many: users(100_000)}
	// Key i, from 1 on, is drawn 1/i times as often as the first. Drawing beforehand costs nothing to speak of later.
	sums, sum := make([]float64, len(b.many)), 0.0
	for i := range sums {
		sum += 1 / float64(i+1)
		sums[i] = sum
	}
	b.drawn = make([]int32, 1<<20)
	for i := range b.drawn {
		b.drawn[i] = int32(min(sort.SearchFloat64s(sums, rand.Float64()*sum), len(sums)-1))
	}
	return b
}

// groups returns the rows of the table, in its order.
func (b *bench) groups() (list []*group) {
	for _, f := range []*field{
		b.postgresField(), b.leakyField(), b.mariadbField(), b.logField(), b.redisField(), b.sqliteField(),
		b.memoryField(),
	} {
		list = append(list, b.field(f)...)
	}
	return append(list, b.fromPostgres(), b.fromMariaDB(), b.served())
}

// users returns keys, cut out of one string so that a garbage collection has nothing to follow.
func users(n int) []string {
	var text strings.Builder
	ends := make([]int, n)
	for i := range n {
		fmt.Fprintf(&text, "user:%d", i)
		ends[i] = text.Len()
	}
	all, keys, begin := text.String(), make([]string, n), 0
	for i, end := range ends {
		keys[i], begin = all[begin:end], end
	}
	return keys
}

var freshKeys atomic.Int64

// fresh returns a key that nobody has used.
func fresh() string { return fmt.Sprintf("fresh:%d:%d", time.Now().UnixNano(), freshKeys.Add(1)) }

// count writes a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Neither limit binds. A unit of alive takes nine hours to drain, so that cells stay alive.
var (
	always = headgate.MustParse("token-bucket 1000000000/h")
	alive  = headgate.MustParse("leaky-bucket 1000/365d capacity 100000")
)

// field is a store that works are measured on.
type field struct {
	name, title string
	limit       headgate.Limit
	callers     []int // of 100,000 keys, where that is the only work; nil: all works
	inProcess   bool  // a decision takes less than a look at the clock
	// url returns that of an empty database, for Headgate.
	url func(ctx context.Context) (url string, drop func(), err error)
	// beside makes ready what Headgate is compared with, with some keys. What it returns is let go of even where it
	// returns an error.
	beside func(ctx context.Context, keys []string) (others []other, stop func(), err error)
	// clients says by how many clients the others are called where Headgate has that many callers; nil: see fewClients.
	clients func(callers int) []int
}

// about asks about a key, or keys: whether it is admitted.
type about[K any] = func(ctx context.Context, key K) (bool, error)

// other is what Headgate is compared with. It decides about one unit for a key that is there, for a key that may be
// new, and for several keys at once; what is nil it cannot.
type other struct {
	side       side
	name       string
	clients    int // whatever the callers; 0: see field
	allow, new about[string]
	several    about[[]string]
	before     func(ctx context.Context) error // of each measurement; nil: nothing
}

// fewClients is for databases, which do more for few clients than for many.
func fewClients(callers int) []int {
	if callers >= 32 {
		return []int{8, 32}
	}
	return []int{callers}
}

// matrix are the numbers of callers of the first works.
var matrix = []int{1, 8, 32, 128, 512}

// field returns the comparisons of a store, in a group for one key and a group for 100,000.
func (b *bench) field(f *field) []*group {
	even := func(rng *rand.Rand) int { return rng.IntN(len(b.many)) }
	one, many := &stand{field: f, keys: b.one}, &stand{field: f, keys: b.many}
	if f.callers != nil {
		for _, n := range f.callers {
			many.work("100k", "100,000 keys", n, even)
		}
		return []*group{&many.group}
	}
	for _, n := range matrix {
		one.work("hot", "one key", n, func(*rand.Rand) int { return 0 })
	}
	for _, n := range matrix {
		many.work("100k", "100,000 keys", n, even)
	}
	for _, n := range matrix {
		many.work("zipf", "100,000 keys by Zipf(1.0)", n, func(rng *rand.Rand) int {
			return int(b.drawn[rng.IntN(len(b.drawn))])
		})
	}
	many.add("limits-3", "3 limits in a request, 256 callers", func() []cell { return many.limits(256) })
	many.add("batch-128", "100,000 keys, 4 callers with 128 requests a batch",
		func() []cell { return many.batches(4, 128) })
	for _, n := range []int{8, 512} {
		many.add(fmt.Sprintf("new-%d", n), fmt.Sprintf("new keys, %d callers", n), func() []cell {
			return cells(many, n, 1, func(*rand.Rand) string { return fresh() }, many.allow(alive),
				func(o *other) about[string] { return o.new })
		})
	}
	return []*group{&one.group, &many.group}
}

// stand is a field with some keys in it.
type stand struct {
	*field
	group
	keys    []string
	opened  bool
	err     error
	store   store.Store
	limiter *headgate.Limiter
	others  []other
}

// add adds a row; the first of them to be measured makes the stand ready.
func (st *stand) add(name, title string, cells func() []cell) {
	st.rows = append(st.rows, comparison{
		name: st.name + "-" + name, title: st.title + ", " + title,
		cells: func(ctx context.Context) ([]cell, error) {
			if !st.opened {
				st.opened, st.err = true, st.open(ctx)
			}
			if st.err != nil {
				return nil, st.err
			}
			return cells(), nil
		},
	})
}

func (st *stand) open(ctx context.Context) error {
	url, drop, err := st.url(ctx)
	if err != nil {
		return err
	}
	st.ends = append(st.ends, drop)
	if st.store, err = openStore(ctx, url); err != nil {
		return err
	}
	st.ends = append(st.ends, func() { st.store.Close() })
	st.limiter = headgate.New(st.store, nil)
	if err := fill(ctx, st.limiter, st.limit, st.keys); err != nil {
		return err
	}
	others, stop, err := st.beside(ctx, st.keys)
	if stop != nil {
		st.ends = append(st.ends, stop)
	}
	st.others = others
	return err
}

// fill charges every key once, many in a batch.
func fill(ctx context.Context, limiter *headgate.Limiter, limit headgate.Limit, keys []string) error {
	for len(keys) > 0 {
		n := min(len(keys), 500)
		if _, err := batch(ctx, limiter, limit, keys[:n]); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// batch asks about many keys, one request for each. It is allowed if all of them are.
func batch(ctx context.Context, limiter *headgate.Limiter, limit headgate.Limit, keys []string) (bool, error) {
	list := make([]headgate.Request, len(keys))
	for i, key := range keys {
		list[i].Charges = []headgate.Charge{{Limit: limit, Key: key}}
	}
	answers, err := limiter.Batch(ctx, list)
	allowed := err == nil
	for _, a := range answers {
		allowed = allowed && a.Decision.Allowed
		err = errors.Join(err, a.Err)
	}
	return allowed, err
}

// allow asks Headgate about a key.
func (st *stand) allow(limit headgate.Limit) about[string] {
	return func(ctx context.Context, key string) (bool, error) {
		d, err := st.limiter.Allow(ctx, limit, key)
		return d.Allowed, err
	}
}

// loop measures n callers, each question of whom makes several decisions about what is picked.
func loop[K any](st *stand, n, decisions int, pick func(rng *rand.Rand) K, do about[K]) measuring {
	ask := func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) { return do(ctx, pick(rng)) }
	if st.inProcess && decisions == 1 {
		return inProcess(n, ask)
	}
	return callers(n, decisions, ask)
}

// cells returns Headgate's cell, and those of the others that can do the same, with each number of clients that comes
// into question. theirs is how one of them is asked; nil: it cannot.
func cells[K any](st *stand, n, decisions int, pick func(rng *rand.Rand) K, own about[K],
	theirs func(*other) about[K],
) []cell {
	list := []cell{st.own(n, loop(st, n, decisions, pick, own))}
	clients := st.clients
	if clients == nil {
		clients = fewClients
	}
	for i := range st.others {
		o, numbers := &st.others[i], clients(n)
		do := theirs(o)
		if do == nil {
			continue
		}
		if o.clients > 0 {
			numbers = []int{o.clients}
		}
		for _, n := range numbers {
			m := loop(st, n, decisions, pick, do)
			list = append(list, cell{
				side: o.side, name: o.name, at: count(n, "client"),
				measure: func(ctx context.Context, d time.Duration) (sample, error) {
					if o.before != nil {
						if err := o.before(ctx); err != nil {
							return sample{}, err
						}
					}
					return m(ctx, d)
				},
			})
		}
	}
	return list
}

// own returns Headgate's cell.
func (st *stand) own(n int, m measuring) cell {
	// Where the keys are one, one new key is counted under a limit that binds, else twenty.
	limit, rate, burst, keys := headgate.MustParse("token-bucket 100/s burst 100"), 100.0, 100.0, 1
	if len(st.keys) > 1 {
		limit, rate, burst, keys = headgate.MustParse("token-bucket 10/s burst 5"), 10.0, 5.0, 20
	}
	prefix := fresh()
	return cell{
		side: ours, name: "Headgate", at: count(n, "caller"), measure: m,
		audit: audit(n, keys, rate, burst, func(ctx context.Context, rng *rand.Rand) (int, error) {
			i := rng.IntN(keys)
			allowed, err := st.allow(limit)(ctx, fmt.Sprint(prefix, i))
			if !allowed {
				return -1, err
			}
			return i, err
		}),
	}
}

// work adds the row of a work with keys that are there, and how they are picked.
func (st *stand) work(name, title string, n int, pick func(rng *rand.Rand) int) {
	st.add(fmt.Sprintf("%s-%d", name, n), title+", "+count(n, "caller"), func() []cell {
		return cells(st, n, 1, func(rng *rand.Rand) string { return st.keys[pick(rng)] }, st.allow(st.limit),
			func(o *other) about[string] { return o.allow })
	})
}

// limits returns the cells of requests on three limits, admitted all or none: as of a user, of a team with ten
// users, and of an organisation with a thousand.
func (st *stand) limits(n int) []cell {
	var kinds [3]headgate.Limit
	for i, name := range []string{"user", "team", "organisation"} {
		kinds[i] = headgate.MustParseNamed(name, "token-bucket 1000000000/h")
	}
	return cells(st, n, 1, func(rng *rand.Rand) []string {
		keys := make([]string, 3)
		for i, most := range []int{len(st.keys), len(st.keys) / 10, len(st.keys) / 1000} {
			keys[i] = st.keys[rng.IntN(most)]
		}
		return keys
	}, func(ctx context.Context, keys []string) (bool, error) {
		charges := make([]headgate.Charge, len(kinds))
		for i, key := range keys {
			charges[i] = headgate.Charge{Limit: kinds[i], Key: key}
		}
		d, err := st.limiter.Take(ctx, charges...)
		return d.Allowed, err
	}, func(o *other) about[[]string] { return o.several })
}

// batches returns the cells of callers that ask about many keys in a call.
func (st *stand) batches(n, requests int) []cell {
	one := func(rng *rand.Rand) string { return st.keys[rng.IntN(len(st.keys))] }
	list := cells(st, n, requests, func(rng *rand.Rand) []string {
		keys := make([]string, requests)
		for i := range keys {
			keys[i] = one(rng)
		}
		return keys
	}, func(ctx context.Context, keys []string) (bool, error) {
		return batch(ctx, st.limiter, st.limit, keys)
	}, func(o *other) about[[]string] { return o.several })
	return append(list, cell{
		side: itself, name: "Headgate", at: "one a call",
		measure: callers(n, 1, func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
			return st.allow(st.limit)(ctx, one(rng))
		}),
	})
}
