package check_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/internal/sim/check"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

// remote is a store that nodes ask as they ask one that is far away. It decides under a lock, as
// databases do: of decisions that memory makes without one, the order can differ from that of their
// times by microseconds.
type remote struct {
	store.Store
	mu sync.Mutex
}

func (r *remote) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Store.Apply(ctx, ops, outs)
}

// recorder writes down what callers do at the same time.
type recorder struct {
	mu    sync.Mutex
	h     history.History
	begin time.Time
	last  int
}

func (r *recorder) add(e history.Event) {
	e.T = time.Since(r.begin).Nanoseconds()
	r.h.Events = append(r.h.Events, e)
}

func (r *recorder) call(node string, c *history.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	c.ID = r.last
	r.add(history.Event{Kind: history.KindCall, Node: node, Call: c})
}

func (r *recorder) answer(node string, c *history.Call, d headgate.Decision, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &history.Return{ID: c.ID, Outcome: history.Refused, At: d.At.UnixMicro(), Via: history.ViaStore}
	switch d.Via {
	case headgate.ViaPrefetch:
		out.Via = history.ViaPrefetch
	case headgate.ViaLocal:
		out.Via = history.ViaRepeat
	}
	if d.Allowed {
		out.Outcome = history.Admitted
	}
	retry := d.RetryAfter.Microseconds()
	if d.RetryAfter == headgate.Never {
		retry = -1
	}
	out.Each = []history.Figures{{Remaining: d.Remaining, Capacity: d.Capacity, RetryAfter: retry}}
	if err != nil {
		*out = history.Return{ID: c.ID, Outcome: history.Unknown, Error: err.Error()}
	}
	r.add(history.Event{Kind: history.KindReturn, Node: node, Return: out})
}

// TestConcurrent checks that what several nodes do at the same time is accepted: they share
// a store, repeat refusals, and take tokens up front.
func TestConcurrent(t *testing.T) {
	limits := []history.Limit{
		{Name: "rate", Algorithm: history.TokenBucket, Version: 1, Amount: "1000", Period: second, Burst: "20"},
		{
			Name: "ahead", Algorithm: history.TokenBucket, Version: 1, Amount: "1000", Period: second, Burst: "100",
			Prefetch: "50", PrefetchLife: 100_000,
		},
		{Name: "log", Algorithm: history.SlidingLog, Version: 1, Amount: "20", Period: 50_000},
		{Name: "window", Algorithm: history.FixedWindow, Version: 1, Amount: "20", Period: 50_000},
		{Name: "held", Algorithm: history.Concurrency, Version: 1, Amount: "2", TTL: 60 * second}, // no pause is so long
	}
	texts := []string{
		"token-bucket 1000/s burst 20", "token-bucket 1000/s burst 100 prefetch 50/100ms", "sliding-log 20/50ms",
		"fixed-window 20/50ms", "concurrency 2 ttl 1m",
	}
	rec := &recorder{begin: time.Now()}
	var named []headgate.Limit
	for i := range limits {
		limit, err := headgate.ParseNamed(limits[i].Name, texts[i])
		if err != nil {
			t.Fatal(err)
		}
		named = append(named, limit)
		rec.add(history.Event{Kind: history.KindLimit, Limit: &limits[i]})
	}
	s := &remote{Store: memory.New(nil)}
	nodes := []*front.Store{front.New(s, nil), front.New(s, nil)}
	var callers sync.WaitGroup
	for n := range 6 {
		node := fmt.Sprint("node", n%2)
		l := headgate.New(nodes[n%2], nil)
		rnd := rand.New(rand.NewPCG(1, uint64(n)))
		callers.Go(func() {
			for time.Since(rec.begin) < 300*time.Millisecond {
				one(t, rec, l, node, named, rnd)
				if rnd.IntN(4) == 0 {
					time.Sleep(time.Duration(rnd.IntN(400)) * time.Microsecond)
				}
			}
		})
	}
	callers.Wait()
	for _, n := range nodes {
		n.Close()
	}
	found := check.Check(&rec.h)
	for _, v := range found[:min(len(found), 5)] {
		t.Error(v)
	}
	vias := map[string]int{}
	for _, e := range rec.h.Events {
		if e.Return != nil {
			vias[e.Return.Via+" "+e.Return.Outcome]++
		}
	}
	t.Log(len(rec.h.Events), "events", vias)
}

// one asks for one thing.
func one(t *testing.T, rec *recorder, l *headgate.Limiter, node string, named []headgate.Limit, rnd *rand.Rand) {
	i := rnd.IntN(len(named))
	ctx := context.Background()
	cost := []string{"1", "2"}[rnd.IntN(2)]
	c := &history.Call{Verb: history.Take, Charges: []history.Charge{{
		Limit: named[i].Name(), Version: 1, Key: "k", Cost: cost,
	}}}
	charge := headgate.Charge{Limit: named[i], Key: "k", Cost: headgate.MustCost(cost)}
	if i < len(named)-1 {
		rec.call(node, c)
		d, err := l.Take(ctx, charge)
		rec.answer(node, c, d, err)
		return
	}
	c.Verb = history.Acquire
	rec.call(node, c)
	lease, err := l.Acquire(ctx, charge)
	if err != nil {
		t.Error(err)
		return
	}
	rec.answer(node, c, lease.Decision, err)
	if !lease.Decision.Allowed {
		return
	}
	time.Sleep(time.Duration(rnd.IntN(2)) * time.Millisecond)
	release := &history.Call{Verb: history.Release, Of: c.ID}
	rec.call(node, release)
	err = lease.Release(ctx)
	rec.mu.Lock()
	defer rec.mu.Unlock()
	out := &history.Return{ID: release.ID, Outcome: history.Done}
	if errors.Is(err, headgate.ErrLeaseLost) {
		out.Outcome = history.Refused
	} else if err != nil {
		out.Outcome = history.Unknown
	}
	rec.add(history.Event{Kind: history.KindReturn, Node: node, Return: out})
}
