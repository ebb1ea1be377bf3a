package prefetch_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/prefetch"
	"github.com/headgate/headgate/store/memory"
)

// TestNodesKeepTheBound lets several nodes take random costs at random times
// from one store. What they hand out is what they have paid for, and passes
// burst + rate x (time + life) in no interval.
func TestNodesKeepTheBound(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { nodes(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func nodes(t *testing.T, rng *rand.Rand) {
	c := &till{Store: memory.New(nil)}
	limit := headgate.MustParse("token-bucket 200/s burst 40 prefetch 30/300ms")
	type passed struct {
		at   time.Time
		cost int64
	}
	var mu sync.Mutex
	var all []passed
	var total int64
	var wg sync.WaitGroup
	for range 4 {
		s := prefetch.New(c)
		l := headgate.New(s, nil)
		node := rand.New(rand.NewPCG(rng.Uint64(), 0))
		for range 3 {
			wg.Go(func() {
				for range 200 {
					mu.Lock()
					pause, cost := time.Duration(node.IntN(9))*time.Millisecond, 1+node.Int64N(3)
					mu.Unlock()
					time.Sleep(pause)
					if d := take(t, l, limit, "k", fmt.Sprint(cost)); d.Allowed {
						mu.Lock()
						all = append(all, passed{time.Now(), cost})
						total += cost
						mu.Unlock()
					}
				}
			})
		}
	}
	wg.Wait()
	if total*limit.Params().Unit > c.taken {
		t.Errorf("%d tokens were handed out, %d paid for", total, c.taken/limit.Params().Unit)
	}
	if bound := limit.Bound().In(time.Second); bound.String() != "300" {
		t.Fatalf("the bound of a second is %v, not 40 + 200 x (1 + 0.3)", bound)
	}
	// What passed from i to j, less 200 a second between them, is what is above the drain at j less what was before i.
	var sum int64
	least := math.Inf(1)
	for _, p := range all {
		drained := 200 * p.at.Sub(all[0].at).Seconds()
		least = min(least, float64(sum)-drained)
		sum += p.cost
		if above := float64(sum) - drained - least; above > 40+200*0.3+1e-6 {
			t.Fatalf("%v passed in some interval up to %v, beyond what flows in it", above, p.at.Sub(all[0].at))
		}
	}
}
