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

// workload says what each call of a bench charges: one key of each limit.
type workload struct {
	limits []keyedLimit
	cost   headgate.Cost  // cost of each charge
	ids    bool           // each call has an id
	settle *headgate.Cost // actual cost of each charge; nil: calls are not settled
}

type keyedLimit struct {
	limit headgate.Limit
	keys  int
}

// bench calls a limiter and counts what it admitted. Of its memory, clients write only the tallies and the errors
// together, so that they hardly slow each other down.
type bench struct {
	*workload
	limiter *headgate.Limiter
	prefix  string
	start   time.Time     // by the store's clock
	draws   []keyDraw     // one for each limit
	keys    [][]string    // keys of each limit
	tallies [][]keyTally  // tallies of the keys of each limit
	refused []paddedCount // refused calls of each client
	lastID  []paddedCount // last id of each client

	errors    atomic.Int64
	firstOnce sync.Once // sets firstErr
	firstErr  error     // first of the errors
}

// keyTally counts the admitted calls of a key and how many of them were settled. from and to are the times of the first
// and the last admission, in microseconds of the store's clock. An error lowers from to the start of the bench.
type keyTally struct{ admitted, settled, from, to atomic.Int64 }

// paddedCount is a count with a cache line of its own: two of 64 bytes, since processors fetch pairs.
type paddedCount struct {
	n int64
	_ [120]byte
}

// newBench returns a bench after one call that checks the workload and the store.
func newBench(ctx context.Context, l *headgate.Limiter, work *workload, prefix string, exponent float64, clients int) (
	*bench, error,
) {
	b := &bench{
		workload: work, limiter: l, prefix: prefix,
		refused: make([]paddedCount, clients), lastID: make([]paddedCount, clients),
	}
	var charges []headgate.Charge
	for _, c := range work.limits {
		keys, tallies := make([]string, c.keys), make([]keyTally, c.keys)
		for i := range keys {
			keys[i] = prefix + strconv.Itoa(i)
			tallies[i].from.Store(math.MaxInt64)
		}
		b.keys, b.tallies = append(b.keys, keys), append(b.tallies, tallies)
		b.draws = append(b.draws, newKeyDraw(c.keys, exponent))
		charges = append(charges, headgate.Charge{Limit: c.limit, Key: keys[len(keys)-1], Cost: work.cost})
	}
	d, err := l.Check(ctx, charges...)
	if err != nil {
		return nil, err
	}
	b.start = d.At
	for _, c := range work.limits {
		atOnce, err := c.limit.Within(d.At, d.At, work.cost)
		if err == nil && atOnce == 0 {
			err = fmt.Errorf("--cost: %s is more than %s ever lets pass at once", work.cost, c.limit)
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

// ask implements load.Call.
func (b *bench) ask(ctx context.Context, client int, rng *rand.Rand) (bool, error) {
	charges, tallies := make([]headgate.Charge, len(b.limits)), make([]*keyTally, len(b.limits))
	for i := range charges {
		n := b.draws[i].next(rng)
		charges[i] = headgate.Charge{Limit: b.limits[i].limit, Key: b.keys[i][n], Cost: b.cost}
		tallies[i] = &b.tallies[i][n]
	}
	d, settled, err := b.take(ctx, client, charges)
	switch {
	case err != nil:
		// The call may have been charged all the same, at an unknown time after the start.
		for _, k := range tallies {
			lowerTo(&k.from, b.start.UnixMicro())
		}
		if ctx.Err() == nil {
			b.errors.Add(1)
			b.firstOnce.Do(func() { b.firstErr = err })
		}
	case d.Allowed:
		at := d.At.UnixMicro()
		for _, k := range tallies {
			k.admitted.Add(1)
			if settled {
				k.settled.Add(1)
			}
			lowerTo(&k.from, at)
			raiseTo(&k.to, at)
		}
	default:
		b.refused[client].n++
	}
	return d.Allowed, err
}

// take charges once, and settles the charges if they were admitted and the workload says so.
func (b *bench) take(ctx context.Context, client int, charges []headgate.Charge) (
	d headgate.Decision, settled bool, err error,
) {
	if !b.ids {
		d, err = b.limiter.Take(ctx, charges...)
		return d, false, err
	}
	b.lastID[client].n++
	once := b.limiter.Once(b.prefix+strconv.Itoa(client)+"/"+strconv.FormatInt(b.lastID[client].n, 10), time.Minute)
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

func lowerTo(a *atomic.Int64, v int64) {
	for current := a.Load(); v < current && !a.CompareAndSwap(current, v); current = a.Load() {
	}
}

func raiseTo(a *atomic.Int64, v int64) {
	for current := a.Load(); v > current && !a.CompareAndSwap(current, v); current = a.Load() {
	}
}

// keyDraw draws keys by Zipf's law: key i, from 0 on, is drawn (i+1)^-exponent times as often as key 0. rand.Zipf does
// not accept an exponent of 1.
type keyDraw struct {
	keys int
	sums []float64 // sum of the weights up to each key; nil: all keys have the same weight
}

func newKeyDraw(keys int, exponent float64) keyDraw {
	d := keyDraw{keys: keys}
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

func (d *keyDraw) next(rng *rand.Rand) int {
	if d.sums == nil {
		return rng.IntN(d.keys)
	}
	x := rng.Float64() * d.sums[d.keys-1]
	return min(sort.Search(d.keys, func(i int) bool { return d.sums[i] > x }), d.keys-1)
}
