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

// TestPrefetchKeepsTheBound lets four processes take random costs at random times from one store. They must not hand
// out more than they have taken, and in no interval more than burst + rate x (time + life).
func TestPrefetchKeepsTheBound(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testBound(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

// testBound runs the processes with one seed, and checks the bound for all intervals between two charges.
func testBound(t *testing.T, rng *rand.Rand) {
	inner := &countingStore{Store: memory.New(nil)}
	limit := headgate.MustParse("token-bucket 200/s burst 40 prefetch 30/300ms")
	type admission struct {
		at   time.Time
		cost int64
	}
	var mu sync.Mutex
	var admissions []admission
	var total int64
	var wg sync.WaitGroup
	for range 4 {
		s := prefetch.New(inner)
		l := headgate.New(s, nil)
		processRNG := rand.New(rand.NewPCG(rng.Uint64(), 0))
		for range 3 {
			wg.Go(func() {
				for range 200 {
					mu.Lock()
					pause, cost := time.Duration(processRNG.IntN(9))*time.Millisecond, 1+processRNG.Int64N(3)
					mu.Unlock()
					time.Sleep(pause)
					if d := take(t, l, limit, "k", fmt.Sprint(cost)); d.Allowed {
						mu.Lock()
						admissions = append(admissions, admission{time.Now(), cost})
						total += cost
						mu.Unlock()
					}
				}
			})
		}
	}
	wg.Wait()
	if total*limit.Params().Unit > inner.credits {
		t.Errorf("got %d tokens handed out, want %d at most", total, inner.credits/limit.Params().Unit)
	}
	if bound := limit.Bound().In(time.Second); bound.String() != "300" {
		t.Fatalf("got a bound of %v for a second, want 40 + 200 x (1 + 0.3)", bound)
	}
	// The excess at a time is what has passed until then, less what has drained. What passes in an interval, less what
	// drains in it, is the excess at its end less the excess before its start. So the least excess so far is enough.
	var sum int64
	minExcess := math.Inf(1)
	for _, p := range admissions {
		drained := 200 * p.at.Sub(admissions[0].at).Seconds()
		minExcess = min(minExcess, float64(sum)-drained)
		sum += p.cost
		if excess := float64(sum) - drained - minExcess; excess > 40+200*0.3+1e-6 {
			t.Fatalf("an interval up to %v has an excess of %v, want 100 at most", p.at.Sub(admissions[0].at), excess)
		}
	}
}
