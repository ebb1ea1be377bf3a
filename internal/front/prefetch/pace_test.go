package prefetch

import (
	"testing"

	"github.com/headgate/headgate/law"
)

// TestFetchCountIncludesWaiters checks that a fetch includes the credits that others wait for, unless they have left.
func TestFetchCountIncludesWaiters(t *testing.T) {
	p := newProcess(t, perSecond)
	requestCount := func(cost int64) int64 {
		op := charge(perSecond, cost)
		_, _, count, _ := p.tokens.request(&op, p.now)
		return count
	}
	requestCount(10) // this caller fetches, and the next ones wait
	for _, cost := range []int64{20, 30, 40} {
		requestCount(cost)
	}
	p.tokens.failFetch(nil)                     // the fetcher leaves, so that the next caller fetches
	if count := requestCount(10); count != 10 { // 1 + 90/10
		t.Errorf("got %d charges of 10 with 90 credits that others wait for, want 10", count)
	}
	p.tokens.stopWaiting(30)
	p.tokens.failFetch(nil)
	if count := requestCount(10); count != 7 { // 1 + 60/10
		t.Errorf("got %d charges of 10 with 60 credits that others wait for, want 7", count)
	}
	p.tokens.stopWaiting(20)
	p.tokens.stopWaiting(40)
	p.tokens.failFetch(nil)
	if count := requestCount(10); count != 1 {
		t.Errorf("got %d charges of 10 without waiters, want 1", count)
	}
}

// TestFetchCountBounds checks the count of a fetch right after another one, which is the fastest pace.
func TestFetchCountBounds(t *testing.T) {
	shortLife, large := perSecond, perSecond
	shortLife.PrefetchLife = 3
	large.Capacity, large.Prefetch = law.Max, law.Max
	for name, c := range map[string]struct {
		p     law.Params
		cost  int64
		count int64
	}{
		"a life of 3 µs: three more": {shortLife, 10, 4},
		"two are more than law.Max":  {large, 1 << 52, 1},
		"one is law.Max":             {large, law.Max, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t, c.p)
			p.fetch(c.cost, 1)
			op := charge(c.p, c.cost)
			if _, _, count, _ := p.tokens.request(&op, p.now); count != c.count {
				t.Errorf("got %d charges of %d, want %d", count, c.cost, c.count)
			}
		})
	}
}
