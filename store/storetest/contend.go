package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// crowd runs n callers at once, each until it returns false.
func crowd(n int, ask func(caller int) bool) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for caller := range n {
		wg.Go(func() {
			<-start
			for ask(caller) {
			}
		})
	}
	close(start)
	wg.Wait()
}

// newKey lets many callers be the first on a key, again and again: never more
// than the capacity, and no error, for each law.
func newKey(t *testing.T, s store.Store) {
	const callers, capacity = 32, 10
	for _, p := range []law.Params{
		bucket(1, capacity),
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: capacity * 1000, Step: 3_600_000_000, Drain: law.Max},
		{Kind: law.Window, Unit: 1000, Capacity: capacity * 1000, Step: 3_600_000_000},
		slidingLog(capacity, 3_600_000_000),
	} {
		for key := range 5 {
			var admitted atomic.Int64
			crowd(callers, func(int) bool {
				op := take(fmt.Sprint("new ", p.Kind, p.Anchor), fmt.Sprint(key), p, 1, T0)
				outs := make([]law.Outcome, 1)
				if err := s.Apply(context.Background(), []law.Op{op}, outs); err != nil {
					t.Errorf("apply: %v", err)
				}
				admitted.Add(outs[0].Granted)
				return false
			})
			if got := admitted.Load(); got != capacity {
				t.Errorf("%+v: admitted %d of %d callers, want %d", p, got, callers, capacity)
			}
		}
	}
}

// oldKey hammers a key by the store's own clock and checks the promise: over
// any interval of decision times no more than burst and rate x time; and no
// less than the rate either, as refusals cost nothing.
func oldKey(t *testing.T, s store.Store) {
	const rate, burst, callers, asks = 500, 20, 16, 60
	p := bucket(rate, burst)
	var mu sync.Mutex
	var first, last, admitted int64
	left := make([]int, callers)
	crowd(callers, func(caller int) bool {
		outs := make([]law.Outcome, 1)
		if err := s.Apply(context.Background(), []law.Op{take("old", "k", p, 1, 0)}, outs); err != nil {
			t.Errorf("apply: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if first == 0 || outs[0].Clock < first {
			first = outs[0].Clock
		}
		last = max(last, outs[0].Clock)
		admitted += outs[0].Granted
		left[caller]++
		return left[caller] < asks
	})
	most := burst + (last-first)*rate/1_000_000
	if admitted > most {
		t.Errorf("admitted %d, at most %d may pass in %d us", admitted, most, last-first)
	}
	if asked := int64(callers * asks); admitted < min(asked, most)-callers {
		t.Errorf("admitted %d of %d asked, though %d may pass in %d us", admitted, asked, most, last-first)
	}
}

// groups takes from random sets of few keys in random order, at once: the
// sum of what was admitted is what the cells hold.
func groups(t *testing.T, s store.Store) {
	const callers, asks, keys = 8, 40, 5
	p := bucket(1, 1_000_000)
	var charged [keys]atomic.Int64
	left := make([]int, callers)
	crowd(callers, func(caller int) bool {
		var ops []law.Op
		for _, k := range rand.Perm(keys)[:2+rand.IntN(3)] {
			ops = append(ops, take("group", fmt.Sprint(k), p, 1, T0))
		}
		if rand.IntN(3) == 0 { // one that can never pass refuses them all
			ops = append(ops, take("group", "refuses", bucket(1, 1), 2, T0))
			ops[len(ops)-1].Cell.Limit = "small"
		}
		outs := make([]law.Outcome, len(ops))
		if err := s.Apply(context.Background(), ops, outs); err != nil {
			t.Errorf("apply: %v", err)
			return false
		}
		if ops[len(ops)-1].Cell.Limit == "group" {
			for i := range ops {
				var k int
				fmt.Sscan(ops[i].Cell.Key, &k)
				charged[k].Add(1)
			}
		}
		left[caller]++
		return left[caller] < asks
	})
	for k := range keys {
		op := take("group", fmt.Sprint(k), p, 1, T0)
		op.Verb = law.Check
		if got, want := one(t, s, op).State.Level, charged[k].Load()*p.Unit; got != want {
			t.Errorf("key %d: level %d, want %d", k, got, want)
		}
	}
}
