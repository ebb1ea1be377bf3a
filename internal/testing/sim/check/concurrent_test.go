package check_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/history/record"
	"github.com/headgate/headgate/internal/testing/sim/check"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

// lockedStore decides under a lock, as databases do. Without it, the order of decisions in memory can differ by
// microseconds from the order of their times.
type lockedStore struct {
	store.Store
	mu sync.Mutex
}

func (s *lockedStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.Apply(ctx, ops, outs)
}

// TestHistoriesOfConcurrentNodesAreAccepted checks that the history of two nodes breaks no rule: they share a store,
// repeat refusals, and prefetch tokens. It runs on the time of a bubble, where a clock that is read for many callers
// never lags by more than it may.
func TestHistoriesOfConcurrentNodesAreAccepted(t *testing.T) { synctest.Test(t, checkConcurrentNodes) }

func checkConcurrentNodes(t *testing.T) {
	recordedLimits := []history.Limit{
		{Name: "rate", Algorithm: history.TokenBucket, Version: 1, Amount: "1000", Period: second, Burst: "20"},
		{
			Name: "ahead", Algorithm: history.TokenBucket, Version: 1, Amount: "1000", Period: second, Burst: "100",
			Prefetch: "50", PrefetchLife: 100_000,
		},
		{Name: "log", Algorithm: history.SlidingLog, Version: 1, Amount: "20", Period: 50_000},
		{Name: "window", Algorithm: history.FixedWindow, Version: 1, Amount: "20", Period: 50_000},
		{Name: "held", Algorithm: history.Concurrency, Version: 1, Amount: "2", TTL: 60 * second}, // no pause is so long
	}
	limitTexts := []string{
		"token-bucket 1000/s burst 20", "token-bucket 1000/s burst 100 prefetch 50/100ms", "sliding-log 20/50ms",
		"fixed-window 20/50ms", "concurrency 2 ttl 1m",
	}
	rec := record.New(nil)
	var limits []headgate.Limit
	for i := range recordedLimits {
		limit, err := headgate.ParseNamed(recordedLimits[i].Name, limitTexts[i])
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, limit)
		rec.Limit(recordedLimits[i])
	}
	s := &lockedStore{Store: memory.New(nil)}
	nodes := []*front.Store{front.New(s, nil), front.New(s, nil)}
	begin := time.Now()
	var callers sync.WaitGroup
	for n := range 6 {
		node := fmt.Sprint("node", n%2)
		l := headgate.New(nodes[n%2], &headgate.Config{Timeout: time.Minute}) // no pause is so long
		rnd := rand.New(rand.NewPCG(1, uint64(n)))
		callers.Go(func() {
			for time.Since(begin) < 300*time.Millisecond {
				takeOrLease(t, rec, l, node, limits, rnd)
				if rnd.IntN(4) == 0 {
					time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
				}
			}
		})
	}
	callers.Wait()
	for _, n := range nodes {
		n.Close()
	}
	time.Sleep(time.Second) // until the goroutines of unused clocks have ended
	h := rec.History()
	found := check.Check(h)
	for _, v := range found[:min(len(found), 5)] {
		t.Error(v)
	}
	counts := map[string]int{}
	for _, e := range h.Events {
		if e.Return != nil {
			counts[e.Return.Via+" "+e.Return.Outcome]++
		}
	}
	t.Log(len(h.Events), "events", counts)
}

// takeOrLease takes from a random limit, or acquires a lease and releases it.
func takeOrLease(t *testing.T, rec *record.Recorder, l *headgate.Limiter, node string, limits []headgate.Limit,
	rnd *rand.Rand,
) {
	i := rnd.IntN(len(limits))
	ctx := context.Background()
	cost := []string{"1", "2"}[rnd.IntN(2)]
	c := history.Call{Verb: history.Take, Charges: []history.Charge{{
		Limit: limits[i].Name(), Version: 1, Key: "k", Cost: cost,
	}}}
	charge := headgate.Charge{Limit: limits[i], Key: "k", Cost: headgate.MustCost(cost)}
	if i < len(limits)-1 {
		id := rec.Call(node, c)
		d, err := l.Take(ctx, charge)
		rec.Decision(node, id, d, err)
		return
	}
	c.Verb = history.Acquire
	id := rec.Call(node, c)
	lease, err := l.Acquire(ctx, charge)
	if err != nil {
		t.Error(err)
		return
	}
	rec.Decision(node, id, lease.Decision, nil)
	if !lease.Decision.Allowed {
		return
	}
	time.Sleep(time.Duration(rnd.IntN(2)) * time.Millisecond)
	release := rec.Call(node, history.Call{Verb: history.Release, Of: id})
	rec.Return(node, release, record.Answer{Err: lease.Release(ctx)})
}
