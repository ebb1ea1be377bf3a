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

	"github.com/headgate/headgate/internal/dbtest"
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
	next  chan struct{} // it may go on
	left  int           // until the connection breaks; less than 0: it does not
	ended bool
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
	for range callers {
		who := &caller{next: make(chan struct{}), left: -1}
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
		if callers > 0 {
			n := g.IntN(callers)
			who := waiting[n]
			waiting = slices.Delete(waiting, n, n+1)
			who.next <- struct{}{}
		}
	}
}

// TestACrowdKeepsTheBound lets many reserve, take and cancel at once, on cells of
// two slots and of several limits, with an ID or without, be cut off and ask again.
func TestACrowdKeepsTheBound(t *testing.T) {
	url := dbtest.RedisCluster(t)
	rounds := 5
	if n, err := strconv.Atoi(os.Getenv("HEADGATE_TEST_CROWDS")); err == nil {
		rounds = n
	} else if testing.Short() {
		rounds = 1
	}
	var counts counted
	for range rounds {
		seed := rand.Uint64()
		if s := os.Getenv("HEADGATE_TEST_SEED"); s != "" {
			seed, _ = strconv.ParseUint(s, 10, 64)
		}
		crowdOf(t, url, seed, &counts)
	}
	t.Logf("%+v", counts)
	if counts.together < 20*rounds || counts.again < 5*rounds || counts.refused < 20*rounds {
		t.Error("the requests drawn say little")
	}
}

// start is one that a request was told of.
type start struct{ at, credits int64 }

type counted struct{ requests, several, together, cut, again, refused, cancelled int }

func crowdOf(t *testing.T, url string, seed uint64, counts *counted) {
	t.Helper()
	s := openTest(t, url, nil)
	apply(t, s, takeOne("warm", "up", perSecond, 0)) // it knows the servers now
	c := &crowd{s.client, make(chan *caller)}
	s.client = c
	a, b := apart(t)
	const rate, burst = 500, 5
	p := law.Params{Kind: law.Bucket, Unit: 1_000_000, Capacity: burst * 1_000_000, Step: 1, Drain: rate}
	var cells []law.Cell
	for i, key := range []string{a, a, b, b} {
		cells = append(cells, law.Cell{Limit: fmt.Sprint(seed, i%2), Key: key})
	}
	starts := map[law.Cell][]start{}
	c.run(rand.New(rand.NewPCG(seed, 1)), 6, func(who *caller, g *rand.Rand) {
		ctx := context.WithValue(context.Background(), callerKey{}, who)
		for n := range 80 {
			ops := make([]law.Op, 0, 4)
			late, patience := g.IntN(5) > 0, g.Int64N(2)*g.Int64N(400_000)
			id := ""
			if g.IntN(2) == 0 {
				id = fmt.Sprint(g.Uint64())
			}
			for len(ops) == 0 {
				for _, i := range g.Perm(len(cells)) {
					for range g.IntN(3) * g.IntN(2) {
						op := law.Op{Verb: law.Take, Group: uint32(n), Cell: cells[i], Params: p, Cost: 1 + g.Int64N(2*p.Unit), Count: 1}
						if late {
							op.Late, op.Ceiling = true, p.Ceiling(patience)
						}
						if ops = append(ops, op); id != "" {
							once60(id, ops...)
							break
						}
					}
				}
			}
			slots := map[uint16]bool{}
			for i := range ops {
				slots[slotOf(ops[i].Cell)] = true
			}
			counts.requests++
			if len(slots) > 1 {
				counts.several++
			}
			var outs []law.Outcome
			for range 4 {
				if who.left = -1; g.IntN(4) == 0 {
					who.left = g.IntN(5)
				}
				outs = make([]law.Outcome, len(ops))
				if s.Apply(ctx, ops, outs) == nil && outs[0].Err == nil {
					break
				}
				counts.cut++
				if outs = nil; id == "" {
					break // nobody will ever know
				}
				counts.again++
			}
			who.left = -1
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
				counts.refused++
				continue
			case late && first != last && last > clock:
				t.Errorf("seed %d: two starts of one request: %+v", seed, outs)
			case late && last > clock && len(slots) > 1:
				counts.together++
			}
			if id != "" && last > clock && g.IntN(4) == 0 {
				counts.cancelled++
				for i := range ops {
					ops[i] = settling(ops[i], 0)
					ops[i].Late, ops[i].Ceiling = false, 0
				}
				if err := s.Apply(ctx, ops, outs); err != nil || outs[0].Err != nil {
					t.Errorf("seed %d: to cancel: %v, %v", seed, err, outs[0].Err)
				}
				continue
			}
			for i, out := range outs {
				at := out.StartAt
				if !late {
					at = out.State.At // of one that is replayed, the clock is of now
				}
				starts[ops[i].Cell] = append(starts[ops[i].Cell], start{at, ops[i].Cost})
			}
		}
	})
	for cell, list := range starts {
		slices.SortFunc(list, func(x, y start) int { return cmp.Compare(x.at, y.at) })
		for i := range list {
			var sum int64
			for _, x := range list[i:] {
				if sum += x.credits; sum > p.Capacity+rate*(x.at-list[i].at) {
					t.Fatalf("seed %d, %v: %d credits start within %d us", seed, cell, sum, x.at-list[i].at)
				}
			}
		}
	}
}
