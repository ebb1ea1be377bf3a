package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/dbtest"
)

// network returns the faults of the network between stacks and servers.
func (r *run) network() []Fault {
	if len(r.system.Hosts) == 0 {
		return nil
	}
	of := func(set func(*dbtest.Swallower, bool), most time.Duration) func(context.Context, *rand.Rand) error {
		return func(_ context.Context, rng *rand.Rand) error {
			some := r.some(rng)
			for _, p := range some {
				set(p, true)
			}
			Pause(rng, most)
			for _, p := range some {
				set(p, false)
			}
			return nil
		}
	}
	return []Fault{
		{Name: "cut", Weight: 2, Do: of((*dbtest.Swallower).Cut, 800*time.Millisecond)},
		{Name: "silent", Weight: 2, Do: of((*dbtest.Swallower).Silence, 1500*time.Millisecond)},
		{Name: "answers lost", Weight: 3, Do: of((*dbtest.Swallower).Lose, 300*time.Millisecond)},
	}
}

// some returns the proxies of one stack, of all stacks, or all of those before one host.
func (r *run) some(rng *rand.Rand) (list []*dbtest.Swallower) {
	stack, host := rng.IntN(stacks), rng.IntN(len(r.system.Hosts))
	kind := rng.IntN(6)
	for i, proxies := range r.proxies {
		for j, p := range proxies {
			if kind < 3 && i == stack || kind == 3 || kind > 3 && j == host {
				list = append(list, p)
			}
		}
	}
	return list
}
