package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// question has the charges of each call without keys.
type question struct {
	limits []limited
	cost   headgate.Cost  // of each charge
	ids    bool           // each question has an id
	settle *headgate.Cost // of each charge in the end; nil: it is not settled
}

// limited is a limit with the number of its keys.
type limited struct {
	limit headgate.Limit
	keys  int
}

// bench calls a limiter and keeps books of what it admitted. Its clients share
// nothing but the books of a key that several of them charge at a time.
type bench struct {
	*question
	limiter *headgate.Limiter
	prefix  string
	start   time.Time   // of the store's clock
	draw    []draw      // of each limit
	keys    [][]string  // of each limit
	books   [][]book    // of each key
	refused []onlyCount // by each client
	asked   []onlyCount // by each client: its ids

	errors atomic.Int64
	once   sync.Once
	first  error // of those
}

// book has the counts of a key: how often it was admitted, how many of those were
// settled, and from when to when it was admitted, in microseconds of the store's clock.
type book struct{ admitted, settled, from, to atomic.Int64 }

// onlyCount has a cache line of its own.
type onlyCount struct {
	n int64
	_ [120]byte
}

// newBench makes a call to check the question and the store.
func newBench(ctx context.Context, l *headgate.Limiter, q *question, prefix string, exponent float64, clients int) (
	*bench, error,
) {
	b := &bench{
		question: q, limiter: l, prefix: prefix,
		refused: make([]onlyCount, clients), asked: make([]onlyCount, clients),
	}
	var charges []headgate.Charge
	for _, c := range q.limits {
		keys, books := make([]string, c.keys), make([]book, c.keys)
		for i := range keys {
			keys[i] = prefix + strconv.Itoa(i)
			books[i].from.Store(math.MaxInt64)
		}
		b.keys, b.books = append(b.keys, keys), append(b.books, books)
		b.draw = append(b.draw, newDraw(c.keys, exponent))
		charges = append(charges, headgate.Charge{Limit: c.limit, Key: keys[len(keys)-1], Cost: q.cost})
	}
	d, err := l.Check(ctx, charges...)
	if err != nil {
		return nil, err
	}
	b.start = d.At
	for _, c := range q.limits {
		atOnce, err := c.limit.Within(d.At, d.At, q.cost)
		if err == nil && atOnce == 0 {
			err = fmt.Errorf("--cost: %s is more than %s ever lets pass at once", q.cost, c.limit)
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

// ask implements load.Ask.
func (b *bench) ask(ctx context.Context, client int, rng *rand.Rand) (bool, error) {
	charges, books := make([]headgate.Charge, len(b.limits)), make([]*book, len(b.limits))
	for i := range charges {
		n := b.draw[i].next(rng)
		charges[i] = headgate.Charge{Limit: b.limits[i].limit, Key: b.keys[i][n], Cost: b.cost}
		books[i] = &b.books[i][n]
	}
	d, settled, err := b.take(ctx, client, charges)
	switch {
	case err != nil:
		// It may have been charged all the same: then the keys are in use
		// since some time that is not known.
		for _, k := range books {
			lower(&k.from, b.start.UnixMicro())
		}
		if ctx.Err() == nil {
			b.errors.Add(1)
			b.once.Do(func() { b.first = err })
		}
	case d.Allowed:
		at := d.At.UnixMicro()
		for _, k := range books {
			k.admitted.Add(1)
			if settled {
				k.settled.Add(1)
			}
			lower(&k.from, at)
			raise(&k.to, at)
		}
	default:
		b.refused[client].n++
	}
	return d.Allowed, err
}

// take charges, and settles what was admitted.
func (b *bench) take(ctx context.Context, client int, charges []headgate.Charge) (
	d headgate.Decision, settled bool, err error,
) {
	if !b.ids {
		d, err = b.limiter.Take(ctx, charges...)
		return d, false, err
	}
	b.asked[client].n++
	once := b.limiter.Once(b.prefix+strconv.Itoa(client)+"/"+strconv.FormatInt(b.asked[client].n, 10), time.Minute)
	if d, err = once.Take(ctx, charges...); err != nil || !d.Allowed || b.settle == nil {
		return d, false, err
	}
	actual := make([]headgate.Charge, len(charges))
	for i := range actual {
		actual[i] = charges[i]
		actual[i].Cost = *b.settle
	}
	_, err = once.Settle(ctx, actual...)
	return d, err == nil, err
}

func lower(a *atomic.Int64, v int64) {
	for old := a.Load(); v < old && !a.CompareAndSwap(old, v); old = a.Load() {
	}
}

func raise(a *atomic.Int64, v int64) {
	for old := a.Load(); v > old && !a.CompareAndSwap(old, v); old = a.Load() {
	}
}

// draw draws keys by Zipf's law: key i, from 0 on, is drawn (i+1)^-exponent times as often
// as the first. rand.Zipf has no exponent of 1.
type draw struct {
	keys int
	sums []float64 // of the weights up to each key; nil: all keys are alike
}

func newDraw(keys int, exponent float64) draw {
	d := draw{keys: keys}
	if exponent == 0 {
		return d
	}
	d.sums = make([]float64, keys)
	sum := 0.0
	for i := range d.sums {
		sum += math.Pow(float64(i+1), -exponent)
		d.sums[i] = sum
	}
	return d
}

func (d *draw) next(rng *rand.Rand) int {
	if d.sums == nil {
		return rng.IntN(d.keys)
	}
	x := rng.Float64() * d.sums[d.keys-1]
	return min(sort.Search(d.keys, func(i int) bool { return d.sums[i] > x }), d.keys-1)
}
