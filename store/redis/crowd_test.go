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

// interleaver is the client of concurrent callers. It executes their commands one by one in a random order. Commands of
// other callers may come between those of one DoMulti.
type interleaver struct {
	rueidis.Client
	ready chan *caller // gets a caller at its start, before each of its commands, and when it has ended
}

// caller is a caller of an interleaver. Once commandsLeft is 0, DoMulti loses commands, as if the connection broke.
type caller struct {
	number       int
	proceed      chan struct{} // receives when the caller may execute its next command
	commandsLeft int           // how many commands the connection lasts; below 0: it does not break
	ended        bool
}

type callerKey struct{}

func (c *interleaver) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	current := ctx.Value(callerKey{}).(*caller)
	results := make([]rueidis.RedisResult, len(multi))
	for n, command := range multi {
		c.ready <- current
		<-current.proceed
		ctx := ctx
		if current.commandsLeft == 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			cancel()
		} else {
			current.commandsLeft--
		}
		results[n] = c.Do(ctx, command)
	}
	return results
}

// run runs callers until all have ended.
func (c *interleaver) run(g *rand.Rand, callers int, do func(current *caller, g *rand.Rand)) {
	for n := range callers {
		current := &caller{number: n, proceed: make(chan struct{}), commandsLeft: -1}
		callerRand := rand.New(rand.NewPCG(g.Uint64(), 0))
		go func() {
			c.ready <- current
			<-current.proceed
			do(current, callerRand)
			current.ended = true
			c.ready <- current
		}()
	}
	var waiting []*caller
	for callers > 0 {
		for len(waiting) < callers {
			if current := <-c.ready; current.ended {
				callers--
			} else {
				waiting = append(waiting, current)
			}
		}
		slices.SortFunc(waiting, func(x, y *caller) int { return cmp.Compare(x.number, y.number) })
		if callers > 0 {
			n := g.IntN(callers)
			current := waiting[n]
			waiting = slices.Delete(waiting, n, n+1)
			current.proceed <- struct{}{}
		}
	}
}

// TestConcurrentCallersKeepTheBound checks that no interval admits more than its bound. Six callers take over three
// slots, with an ID or without, reserve in one slot, cancel, lose the connection and retry. In every other round they
// also reset cells, and the server's clock decides.
func TestConcurrentCallersKeepTheBound(t *testing.T) {
	url := slotsURL(t)
	rounds := tier.Pick(2, 6, 6)
	if n, err := strconv.Atoi(os.Getenv("HEADGATE_TEST_CROWDS")); err == nil {
		rounds = n
	}
	var total counts
	seeds := rand.New(rand.NewPCG(newSeed(t), 0))
	for n := range rounds {
		c := newWorkload(t, url, seeds.Uint64(), n%2 == 1)
		c.run(c.g, 6, c.runCaller)
		c.checkBound()
		t.Logf("%+v", c.counts)
		total.add(&c.counts)
	}
	if !total.areEnough(rounds) {
		t.Errorf("got %+v: too few requests of a kind to prove anything", total)
	}
}

// counts are the numbers of requests and other calls of a workload.
type counts struct{ requests, multiSlot, delayed, lost, retries, refusals, cancellations, resets int }

func (c *counts) add(o *counts) {
	c.requests, c.multiSlot, c.delayed = c.requests+o.requests, c.multiSlot+o.multiSlot, c.delayed+o.delayed
	c.lost, c.retries, c.refusals = c.lost+o.lost, c.retries+o.retries, c.refusals+o.refusals
	c.cancellations, c.resets = c.cancellations+o.cancellations, c.resets+o.resets
}

// areEnough reports whether the kinds of requests that matter most were drawn often enough to prove something.
func (c *counts) areEnough(rounds int) bool {
	return c.multiSlot >= 100*rounds && c.delayed >= 10*rounds && c.retries >= 5*rounds && c.refusals >= 20*rounds &&
		c.resets >= rounds
}

// chargeStart is the start of an admitted charge.
type chargeStart struct{ at, credits int64 }

// cellEra is a cell between two resets.
type cellEra struct {
	cell   law.Cell
	resets int // before this era
}

// workload has the cells that concurrent callers use, and the starts of their charges. One caller runs at a time.
type workload struct {
	interleaver
	counts
	t        *testing.T
	s        *Store
	g        *rand.Rand
	seed     uint64
	doResets bool  // callers also reset cells
	now      int64 // the time of the test; 0: the server's clock decides
	slowdown int64 // the factor by which the buckets drain more slowly
	cells    []law.Cell
	limits   map[law.Cell]law.Params
	resets   map[law.Cell]int
	starts   map[cellEra][]chargeStart
}

func newWorkload(t *testing.T, url string, seed uint64, doResets bool) *workload {
	t.Helper()
	s := openSlots(t, url)
	now, slowdown := testTime, int64(1)
	if doResets {
		now, slowdown = 0, 1000 // so slowly that the speed of the machine does not matter
	}
	c := &workload{
		interleaver: interleaver{s.client, make(chan *caller)}, t: t, s: s, g: rand.New(rand.NewPCG(seed, 1)),
		seed: seed, doResets: doResets, now: now, slowdown: slowdown,
		limits: map[law.Cell]law.Params{}, resets: map[law.Cell]int{}, starts: map[cellEra][]chargeStart{},
	}
	s.client = &c.interleaver
	for i, key := range keysApart(3) {
		for k, p := range []law.Params{
			{Kind: law.Bucket, Unit: 1_000_000, Capacity: 5_000_000, Step: slowdown, Drain: 500},
			{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1000 * slowdown, Drain: 500},
			{Kind: law.Bucket, Unit: 10, Capacity: 50, Step: 1000 * slowdown, Drain: 7},
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

// nextTime returns the Now of a request: up to 3 ms after the last one, or 0 if the server's clock decides.
func (c *workload) nextTime(g *rand.Rand) int64 {
	if c.now != 0 {
		c.now += g.Int64N(3000)
	}
	return c.now
}

// randomRequest returns a random request. A request that may start later has one key.
func (c *workload) randomRequest(g *rand.Rand) (ops []law.Op) {
	isDeferred, maxWait := g.IntN(3) == 0, g.Int64N(2)*g.Int64N(400_000*c.slowdown)
	id := ""
	if g.IntN(2) == 0 {
		id = fmt.Sprint(g.Uint64())
	}
	for len(ops) == 0 {
		key := c.cells[g.IntN(len(c.cells))].Key
		for _, i := range g.Perm(len(c.cells)) {
			if isDeferred && c.cells[i].Key != key {
				continue
			}
			for range g.IntN(3) * g.IntN(2) {
				p := c.limits[c.cells[i]]
				op := law.Op{Verb: law.Take, Cell: c.cells[i], Params: p, Cost: 1 + g.Int64N(2*p.Unit), Count: 1}
				if g.IntN(10) == 0 {
					op.Cost = p.Capacity - g.Int64N(2)
				}
				if isDeferred {
					op.Deferred, op.Ceiling = true, p.Ceiling(maxWait)
				}
				if ops = append(ops, op); id != "" {
					withID(id, ops...)
					break // a request with an ID charges each cell once
				}
			}
		}
	}
	return ops
}

// send applies a request, and retries it up to three times if it has an ID and the connection broke. It returns nil if
// no attempt was answered.
func (c *workload) send(ctx context.Context, current *caller, g *rand.Rand, ops []law.Op) []law.Outcome {
	defer func() { current.commandsLeft = -1 }()
	for range 4 {
		if current.commandsLeft = -1; g.IntN(4) == 0 {
			current.commandsLeft = g.IntN(7)
		}
		outs, now := make([]law.Outcome, len(ops)), c.nextTime(g)
		for i := range ops {
			ops[i].Now = now
		}
		if err := c.s.Apply(ctx, ops, outs); err == nil && outs[0].Err == nil {
			return outs
		}
		c.lost++
		if ops[0].ID == "" {
			return nil // the outcome stays unknown
		}
		c.retries++
	}
	return nil
}

// runCaller makes the requests of one caller.
func (c *workload) runCaller(current *caller, g *rand.Rand) {
	ctx := context.WithValue(context.Background(), callerKey{}, current)
	mustApply := func(ops ...law.Op) { // with resets, a cancellation may find the ID forgotten
		outs := make([]law.Outcome, len(ops))
		if err := c.s.Apply(ctx, ops, outs); err != nil || outs[0].Err != nil && !c.doResets {
			c.t.Errorf("seed %d: %+v: %v, %v", c.seed, ops, err, outs[0].Err)
		}
	}
	for range 80 {
		if c.doResets && g.IntN(20) == 0 {
			cell := c.cells[g.IntN(len(c.cells))]
			op := law.Op{Verb: law.Reset, Cell: cell, Params: c.limits[cell], Cost: 1, Count: 1, Now: c.nextTime(g)}
			mustApply(op)
			c.resets[cell]++
			c.counts.resets++
			continue
		}
		ops := c.randomRequest(g)
		slots, eras := map[uint16]bool{}, make([]cellEra, len(ops))
		for i := range ops {
			slots[c.s.slotOf(ops[i].Cell)] = true
			eras[i] = cellEra{ops[i].Cell, c.resets[ops[i].Cell]}
		}
		c.requests++
		if len(slots) > 1 {
			c.multiSlot++
		}
		outs := c.send(ctx, current, g, ops)
		if outs == nil {
			continue
		}
		firstStart, lastStart, clock, isRefused := int64(law.Max), int64(0), int64(0), false
		for i, out := range outs {
			firstStart, lastStart = min(firstStart, out.StartAt), max(lastStart, out.StartAt)
			clock, isRefused = max(clock, out.Clock), isRefused || out.Granted != ops[i].Count
		}
		switch {
		case isRefused:
			c.refusals++
			continue
		case firstStart != lastStart && lastStart > clock:
			c.t.Errorf("seed %d: got two starts of one request, want one: %+v", c.seed, outs)
		case lastStart > clock:
			c.delayed++
		}
		if ops[0].ID != "" && lastStart > clock && g.IntN(4) == 0 {
			c.cancellations++
			now := c.nextTime(g)
			for i := range ops {
				ops[i] = settleOp(ops[i], law.Cancelled)
				ops[i].Deferred, ops[i].Ceiling, ops[i].Now = false, 0, now
			}
			mustApply(ops...)
			continue
		}
		for i, out := range outs {
			at := out.StartAt
			if !ops[i].Deferred {
				if at = max(out.Clock, out.State.At); out.Replayed {
					continue // the time of the charge is unknown
				}
			}
			if c.resets[ops[i].Cell] == eras[i].resets {
				c.starts[eras[i]] = append(c.starts[eras[i]], chargeStart{at, ops[i].Cost})
			}
		}
	}
}

// checkBound checks that the charges which start in an interval are no more than its bound.
func (c *workload) checkBound() {
	for era, list := range c.starts {
		p := c.limits[era.cell]
		slices.SortFunc(list, func(x, y chargeStart) int { return cmp.Compare(x.at, y.at) })
		for i := range list {
			var sum int64
			for _, start := range list[i:] {
				d := start.at - list[i].at
				if sum += start.credits; sum > p.Capacity+(d+p.Step-1)/p.Step*p.Drain {
					c.t.Fatalf("seed %d, %v: got %d credits within %d us, above the bound", c.seed, era, sum, d)
				}
			}
		}
	}
}
