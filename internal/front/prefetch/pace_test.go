package prefetch

import (
	"testing"

	"github.com/headgate/headgate/law"
)

// TestTheFetcherTakesForWaiters, and not for those that have left.
func TestTheFetcherTakesForWaiters(t *testing.T) {
	n := newNode(t, perSecond)
	ask := func(cost int64) int64 {
		op := charge(perSecond, cost)
		_, _, count, _ := n.h.request(&op, n.now)
		return count
	}
	ask(10) // goes
	for _, cost := range []int64{20, 30, 40} {
		ask(cost)
	}
	n.h.failFetch(nil)
	if count := ask(10); count != 10 {
		t.Errorf("%d charges of 10 with 90 credits that others wait for, want 10", count)
	}
	n.h.stopWaiting(30)
	n.h.failFetch(nil)
	if count := ask(10); count != 7 {
		t.Errorf("%d charges of 10 with 60 credits that others wait for, want 7", count)
	}
	n.h.stopWaiting(20)
	n.h.stopWaiting(40)
	n.h.failFetch(nil)
	if count := ask(10); count != 1 {
		t.Errorf("%d charges of 10 for one who is alone", count)
	}
}

// TestHowMuchGoesTogether at the bounds of what can be requested.
func TestHowMuchGoesTogether(t *testing.T) {
	brief, large := perSecond, perSecond
	brief.PrefetchLife = 3
	large.Capacity, large.Prefetch = law.Max, law.Max
	for name, c := range map[string]struct {
		p     law.Params
		cost  int64
		count int64
	}{
		"a pace is counted from a microsecond": {brief, 10, 4},
		"four times, but two are the most":     {large, 1 << 52, 1},
		"one is the most":                      {large, law.Max, 1},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, c.p)
			n.fetch(c.cost, 1)
			op := charge(c.p, c.cost)
			if _, _, count, _ := n.h.request(&op, n.now); count != c.count {
				t.Errorf("%d charges of %d, want %d", count, c.cost, c.count)
			}
		})
	}
}
