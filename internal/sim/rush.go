package sim

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/sched"
)

// rushSometime lets callers of some node rush to some key.
func (w *world) rushSometime() {
	n := w.nodes[w.s.rng.IntN(len(w.nodes))]
	c := &caller{w, n}
	w.rush(n, c.charges(1), 2+w.s.rng.IntN(7))
}

// rush lets so many callers of a node ask for the same within two milliseconds: so most
// of them share a batch, and often an op. In a rushed world one or two of them leave.
func (w *world) rush(n *node, g []charge, callers int) {
	leavers := 0
	if w.rushed && w.s.chance(700) {
		leavers = min(callers-1, 1+w.s.rng.IntN(2))
	}
	for range callers {
		within := 20 * time.Second
		if leavers > 0 {
			leavers--
			within = w.s.between(1, 8*time.Millisecond)
		}
		w.s.spawn(n.p, func() {
			w.s.sleep(w.s.between(1, 2*time.Millisecond))
			if n.ask == nil {
				return // the node has not started yet
			}
			ctx, cancel := sched.WithTimeout(context.Background(), within)
			defer cancel()
			(&caller{w, n}).take(ctx, g)
		})
	}
}

// rushAndStop lets callers ask until tokens are fetched ahead, and then stops the node.
func (w *world) rushAndStop(n *node) {
	c := &caller{w, n}
	g := c.charges(1)
	for range 3 { // a limit that has a prefetch, if there is one
		if g[0].of.versions[g[0].version-1].told.Prefetch != "" {
			break
		}
		g = c.charges(1)
	}
	for range w.s.rng.IntN(4) {
		w.rush(n, g, 1+w.s.rng.IntN(2))
		w.s.sleep(w.s.between(10*time.Millisecond, 150*time.Millisecond))
	}
	w.s.spawn(n.p, n.stop)
	w.s.sleep(10 * time.Second)
}
