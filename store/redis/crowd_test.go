package redis

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// crowd lets callers of one store ask at once, but so that one command after
// another is carried out, in an order that is drawn, those of one call too.
type crowd struct {
	rueidis.Client
	come chan *caller
}

// caller is one of a crowd. What it sends is lost from a command on, as if the
// connection broke.
type caller struct {
	number int
	next   chan struct{} // it may go on
	left   int           // until the connection breaks; less than 0: it does not
	ended  bool
}

type callerKey struct{}

func (c *crowd) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	who := ctx.Value(callerKey{}).(*caller)
	results := make([]rueidis.RedisResult, len(multi))
	for n, command := range multi {
		c.come <- who
		<-who.next
		ctx := ctx
		if who.left == 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			cancel()
		} else {
			who.left--
		}
		results[n] = c.Do(ctx, command)
	}
	return results
}

// run runs callers until all have ended.
func (c *crowd) run(g *rand.Rand, callers int, do func(who *caller, g *rand.Rand)) {
	for n := range callers {
		who := &caller{number: n, next: make(chan struct{}), left: -1}
		own := rand.New(rand.NewPCG(g.Uint64(), 0))
		go func() {
			c.come <- who
			<-who.next
			do(who, own)
			who.ended = true
			c.come <- who
		}()
	}
	var waiting []*caller
	for callers > 0 {
		for len(waiting) < callers {
			if who := <-c.come; who.ended {
				callers--
			} else {
				waiting = append(waiting, who)
			}
		}
		slices.SortFunc(waiting, func(x, y *caller) int { return cmp.Compare(x.number, y.number) })
		if callers > 0 {
			n := g.IntN(callers)
			who := waiting[n]
			waiting = slices.Delete(waiting, n, n+1)
			who.next <- struct{}{}
		}
	}
}

// TestACrowdKeepsTheBound lets many take at once on cells of three slots and of several
// limits, with an ID or without, reserve in one slot, cancel, be cut off and ask again; in
// every other crowd cells are reset, and requests are decided by the clock of the server.
func TestACrowdKeepsTheBound(t *testing.T) {
	url := slotsURL(t)
	rounds := tier.Pick(2, 6, 6)
	if n, err := strconv.Atoi(os.Getenv("HEADGATE_TEST_CROWDS")); err == nil {
		rounds = n
	}
	var all counts
	seeds := rand.New(rand.NewPCG(newSeed(t), 0))
	for n := range rounds {
		c := newTown(t, url, seeds.Uint64(), n%2 == 1)
		c.run(c.g, 6, c.live)
		c.judge()
		t.Logf("%+v", c.counts)
		all.add(&c.counts)
	}
	if !all.enough(rounds) {
		t.Errorf("the requests drawn say little: %+v", all)
	}
}

type counts struct{ requests, several, later, cut, again, refused, cancelled, resets int }

func (c *counts) add(o *counts) {
	c.requests, c.several, c.later, c.cut = c.requests+o.requests, c.several+o.several, c.later+o.later, c.cut+o.cut
	c.again, c.refused, c.cancelled, c.resets = c.again+o.again, c.refused+o.refused, c.cancelled+o.cancelled,
		c.resets+o.resets
}

// enough reports whether every kind of request was drawn often enough to say something.
func (c *counts) enough(rounds int) bool {
	return c.several >= 100*rounds && c.later >= 10*rounds && c.again >= 5*rounds && c.refused >= 20*rounds &&
		c.resets >= rounds
}

// start is one that a request was told of, of a cell since it was reset so often.
type start struct{ at, credits int64 }

type since struct {
	cell   law.Cell
	resets int
}

// town is a crowd with the cells that it lives on, one caller at a time.
type town struct {
	crowd
	counts
	t      *testing.T
	s      *Store
	g      *rand.Rand
	seed   uint64
	reset  bool  // cells are, at times
	now    int64 // of the test; 0: requests are decided by the clock of the server
	slow   int64 // the buckets drain so many times slower
	cells  []law.Cell
	limits map[law.Cell]law.Params
	resets map[law.Cell]int
	starts map[since][]start
}

func newTown(t *testing.T, url string, seed uint64, reset bool) *town {
	t.Helper()
	s := openSlots(t, url)
	now, slow := testTime, int64(1)
	if reset {
		now, slow = 0, 1000 // so slowly that the speed of the machine does not matter
	}
	c := &town{
		crowd: crowd{s.client, make(chan *caller)}, t: t, s: s, g: rand.New(rand.NewPCG(seed, 1)), seed: seed,
		reset: reset, now: now, slow: slow,
		limits: map[law.Cell]law.Params{}, resets: map[law.Cell]int{}, starts: map[since][]start{},
	}
	s.client = &c.crowd
	for i, key := range keysApart(3) {
		for k, p := range []law.Params{
			{Kind: law.Bucket, Unit: 1_000_000, Capacity: 5_000_000, Step: slow, Drain: 500},
			{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1000 * slow, Drain: 500},
			{Kind: law.Bucket, Unit: 10, Capacity: 50, Step: 1000 * slow, Drain: 7},
		} {
			if (i+k)%3 > 0 {
				cell := law.Cell{Limit: fmt.Sprint(seed, k), Key: key}
				c.cells = append(c.cells, cell)
				c.limits[cell] = p
			}
		}
	}
	return c
}

// time returns that of a request: a millisecond or two after the last one.
func (c *town) time(g *rand.Rand) int64 {
	if c.now != 0 {
		c.now += g.Int64N(3000)
	}
	return c.now
}

// draw draws a request. One that may start later is of one key.
func (c *town) draw(g *rand.Rand) (ops []law.Op) {
	late, patience := g.IntN(3) == 0, g.Int64N(2)*g.Int64N(400_000*c.slow)
	id := ""
	if g.IntN(2) == 0 {
		id = fmt.Sprint(g.Uint64())
	}
	for len(ops) == 0 {
		key := c.cells[g.IntN(len(c.cells))].Key
		for _, i := range g.Perm(len(c.cells)) {
			if late && c.cells[i].Key != key {
				continue
			}
			for range g.IntN(3) * g.IntN(2) {
				p := c.limits[c.cells[i]]
				op := law.Op{Verb: law.Take, Cell: c.cells[i], Params: p, Cost: 1 + g.Int64N(2*p.Unit), Count: 1}
				if g.IntN(10) == 0 {
					op.Cost = p.Capacity - g.Int64N(2)
				}
				if late {
					op.Deferred, op.Ceiling = true, p.Ceiling(patience)
				}
				if ops = append(ops, op); id != "" {
					once60(id, ops...)
					break // it charges each cell once
				}
			}
		}
	}
	return ops
}

// ask asks, and again with an ID when it was cut off; nil if it was in the end.
func (c *town) ask(ctx context.Context, who *caller, g *rand.Rand, ops []law.Op) []law.Outcome {
	defer func() { who.left = -1 }()
	for range 4 {
		if who.left = -1; g.IntN(4) == 0 {
			who.left = g.IntN(7)
		}
		outs, now := make([]law.Outcome, len(ops)), c.time(g)
		for i := range ops {
			ops[i].Now = now
		}
		if err := c.s.Apply(ctx, ops, outs); err == nil && outs[0].Err == nil {
			return outs
		}
		c.cut++
		if ops[0].ID == "" {
			return nil // nobody will ever know
		}
		c.again++
	}
	return nil
}

// live runs one caller.
func (c *town) live(who *caller, g *rand.Rand) {
	ctx := context.WithValue(context.Background(), callerKey{}, who)
	surely := func(ops ...law.Op) {
		outs := make([]law.Outcome, len(ops))
		if err := c.s.Apply(ctx, ops, outs); err != nil || outs[0].Err != nil && !c.reset {
			c.t.Errorf("seed %d: %+v: %v, %v", c.seed, ops, err, outs[0].Err)
		}
	}
	for range 80 {
		if c.reset && g.IntN(20) == 0 {
			cell := c.cells[g.IntN(len(c.cells))]
			surely(law.Op{Verb: law.Reset, Cell: cell, Params: c.limits[cell], Cost: 1, Count: 1, Now: c.time(g)})
			c.resets[cell]++
			c.counts.resets++
			continue
		}
		ops := c.draw(g)
		slots, asked := map[uint16]bool{}, make([]since, len(ops))
		for i := range ops {
			slots[c.s.slotOf(ops[i].Cell)] = true
			asked[i] = since{ops[i].Cell, c.resets[ops[i].Cell]}
		}
		c.requests++
		if len(slots) > 1 {
			c.several++
		}
		outs := c.ask(ctx, who, g, ops)
		if outs == nil {
			continue
		}
		first, last, clock, refused := int64(law.Max), int64(0), int64(0), false
		for i, out := range outs {
			first, last, clock = min(first, out.StartAt), max(last, out.StartAt), max(clock, out.Clock)
			refused = refused || out.Granted != ops[i].Count
		}
		switch {
		case refused:
			c.refused++
			continue
		case first != last && last > clock:
			c.t.Errorf("seed %d: two starts of one request: %+v", c.seed, outs)
		case last > clock:
			c.later++
		}
		if ops[0].ID != "" && last > clock && g.IntN(4) == 0 {
			c.cancelled++
			now := c.time(g)
			for i := range ops {
				ops[i] = settling(ops[i], law.Cancelled)
				ops[i].Deferred, ops[i].Ceiling, ops[i].Now = false, 0, now
			}
			surely(ops...)
			continue
		}
		for i, out := range outs {
			at := out.StartAt
			if !ops[i].Deferred {
				if at = max(out.Clock, out.State.At); out.Replayed {
					continue // when it was charged cannot be told
				}
			}
			if c.resets[ops[i].Cell] == asked[i].resets {
				c.starts[asked[i]] = append(c.starts[asked[i]], start{at, ops[i].Cost})
			}
		}
	}
}

// judge looks whether more starts within any time than may.
func (c *town) judge() {
	for where, list := range c.starts {
		p := c.limits[where.cell]
		slices.SortFunc(list, func(x, y start) int { return cmp.Compare(x.at, y.at) })
		for i := range list {
			var sum int64
			for _, x := range list[i:] {
				d := x.at - list[i].at
				if sum += x.credits; sum > p.Capacity+(d+p.Step-1)/p.Step*p.Drain {
					c.t.Fatalf("seed %d, %v: %d credits start within %d us", c.seed, where, sum, d)
				}
			}
		}
	}
}
