package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/gate"
	"github.com/headgate/headgate/bench/rivals"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/store"
)

// bench holds what comparisons share.
type bench struct {
	servers
	one, thousand, many, million []string // keys
	drawn                        []int32  // numbers of many, by Zipf's law
	forNew                       *stand   // of memory, for new keys
}

func newBench() *bench {
	return &bench{one: users(1), thousand: users(1000), many: users(100_000), million: users(1_000_000)}
}

// comparisons returns the rows of the table, in its order.
func (b *bench) comparisons() []compare.Comparison {
	var list []compare.Comparison
	for _, of := range [][]compare.Comparison{
		b.matrix(b.postgresField()), b.onPostgres(), b.fromPostgres(),
		b.matrix(b.mariadbField()), b.onMariaDB(), b.fromMariaDB(),
		b.matrix(b.redisField()), b.matrix(b.sqliteField()), b.matrix(b.memoryField()),
		b.swept(b.postgresField()), b.swept(b.mariadbField()), b.swept(b.sqliteField()), b.swept(b.memoryField()),
		b.refused(), b.inMemory(), b.leased(), b.served(), b.overHTTP(), b.overGRPC(),
	} {
		list = append(list, of...)
	}
	return list
}

// users returns keys, cut out of one string so that a garbage collection has
// nothing to follow.
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

// The limits of Headgate's side. The first three are rivals.Always, Once and
// Tight; alive and lasting never bind either, and a unit takes half a minute or
// nine hours to drain, so that cells stay alive; leasing is always, and nodes
// may take a million units up front.
var (
	always  = headgate.MustParse("token-bucket 1000000000/h")
	once    = headgate.MustParse("token-bucket 1/1d")
	tight   = headgate.MustParse("token-bucket 1000/s burst 1000")
	alive   = headgate.MustParse("leaky-bucket 1000000/365d capacity 1000000")
	lasting = headgate.MustParse("leaky-bucket 1000/365d capacity 100000")
	leasing = headgate.MustParse("token-bucket 1000000000/h prefetch 1000000")
	login   = headgate.MustParse("sliding-log 5/1m")
)

// ours is Headgate's cell in a comparison of stores.
type ours struct {
	url     string
	wrap    []gate.Wrap
	limit   headgate.Limit
	keys    []string
	callers int
	exact   bool // count it, with the limit tight
	at      string
	close   func() // after the store
}

// cell makes ready Headgate's cell: it opens the store and puts in the keys.
func (o ours) cell(ctx context.Context) compare.Cell {
	at := o.at
	if at == "" {
		at = fmt.Sprintf("%d callers", o.callers)
	}
	c := compare.Cell{Side: compare.Ours, Name: gate.Name, At: at, Close: o.close}
	s, err := gate.Open(ctx, o.url, o.wrap...)
	if err != nil {
		c.Err = err
		return c
	}
	c.Close = func() {
		s.Close()
		if o.close != nil {
			o.close()
		}
	}
	if c.Err = gate.Fill(ctx, s, o.limit, o.keys); c.Err != nil {
		return c
	}
	c.Measure = compare.Callers(o.callers, gate.Ask(s, o.limit, o.keys))
	if o.exact {
		c.Exact = compare.Bucket(o.callers, 1000, 1000, gate.Ask(s, tight, []string{fresh()}))
	}
	return c
}

// openFilled opens a store over a new database and puts in the keys. end closes the store and drops the database.
func openFilled(ctx context.Context, open func(context.Context) (string, func(), error), limit headgate.Limit,
	keys []string,
) (s store.Store, dsn string, end func(), err error) {
	dsn, drop, err := open(ctx)
	if err != nil {
		return nil, "", nil, err
	}
	if s, err = gate.Open(ctx, dsn, gate.Front); err != nil {
		drop()
		return nil, "", nil, err
	}
	end = func() {
		s.Close()
		drop()
	}
	if err = gate.Fill(ctx, s, limit, keys); err != nil {
		end()
		return nil, "", nil, err
	}
	return s, dsn, end, nil
}

// rival is another's cell in a comparison of stores.
func rival(name string, clients int, l rivals.Limiter, keys []string) compare.Cell {
	return compare.Cell{
		Side: compare.Rival, Name: name, At: fmt.Sprintf("%d clients", clients),
		Measure: compare.Callers(clients, asked(l, keys)),
	}
}

// counted adds to a cell what is counted with the quota rivals.Tight.
func counted(c compare.Cell, clients int, l rivals.Limiter) compare.Cell {
	c.Exact = compare.Bucket(clients, 1000, 1000, asked(l, []string{fresh()}))
	return c
}

// failed is the cell of one that cannot be measured.
func failed(side compare.Side, name string, err error) compare.Cell {
	return compare.Cell{Side: side, Name: name, Err: err}
}

// asked returns a question about one of some keys at random.
func asked(l rivals.Limiter, keys []string) load.Ask {
	return func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
		return l.Allow(ctx, keys[rng.IntN(len(keys))])
	}
}

var freshKeys atomic.Int64

// fresh returns a key that nobody has used.
func fresh() string { return fmt.Sprintf("fresh:%d:%d", time.Now().UnixNano(), freshKeys.Add(1)) }
