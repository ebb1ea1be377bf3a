package sim

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/testing/history"
)

// chaos starts faults. It runs in a goroutine of the world.
func (w *world) chaos() {
	start := func(is bool, often int64, do func()) {
		if !is {
			return
		}
		w.s.spawn(w.boss, func() {
			for {
				w.s.sleep(w.s.between(time.Millisecond, max(w.end/time.Duration(often), 2*time.Millisecond)))
				if w.s.now() >= w.end {
					return
				}
				do()
			}
		})
	}
	start(w.faults.kills, 4, w.killNode)
	start(w.faults.crashes && (w.db != nil || w.net != nil && w.memory == nil), 4, w.crash)
	start(w.faults.clocks, 4, w.moveClock)
	start(w.faults.clocks && w.keyed, 24, func() { w.setClock(w.clockMove()) })
	start(w.faults.full && w.db != nil, 4, w.fill)
	start(w.faults.forgets && w.db != nil, 3, w.failOver)
	start(w.faults.changes && w.net == nil && !w.keyed, 16, w.changeLimit)
	start(w.rushed, 200, func() {
		n := w.someNode()
		w.rush(n, (&caller{w, n}).charges(1), 2+w.s.rng.IntN(7))
	})
	start(w.keyed, 24, w.overrideKey)
}

// killNode ends a node with all that it holds, and starts it again some time later.
func (w *world) killNode() {
	n := w.someNode()
	if w.s.chance(500) && n.stop != nil { // it is stopped, and has time to give back what it holds
		w.rushAndStop(n)
	}
	w.rec.Fault(n.name, history.Fault{Kind: history.Kill})
	n.p.kill()
	w.s.sleep(w.s.between(1, time.Minute))
	p := newProcess(n.name)
	n.home.dead = true
	for _, l := range w.taken {
		l.current[p] = l.current[n.home]
	}
	n.home = p
	w.start(n, p)
}

func (w *world) crash() {
	if w.net != nil && w.s.chance(500) {
		w.rec.Fault("server", history.Fault{Kind: history.Kill})
		w.server.p.kill()
		w.s.sleep(w.s.between(1, 20*time.Second))
		w.restart()
		return
	}
	w.rec.Fault("db", history.Fault{Kind: history.Kill})
	w.db.crash()
}

func (w *world) clockMove() time.Duration {
	moves := []time.Duration{
		time.Second, -time.Second, 1500 * time.Millisecond, -1900 * time.Millisecond, -10 * time.Second,
		time.Minute, -time.Hour, time.Hour, 26 * time.Hour,
	}
	return moves[w.s.rng.IntN(len(moves))]
}

// setClock moves the clock of a node. No decision depends on it.
func (w *world) setClock(by time.Duration) { w.someNode().p.wall += by }

func (w *world) moveClock() {
	by := w.clockMove()
	if w.s.chance(400) {
		w.setClock(by)
		return
	}
	w.rec.Fault("store", history.Fault{Kind: history.Clock, By: by.Microseconds()})
	w.storeProcess().wall += by
}

// fill lets commits fail for a while, as on a full disk.
func (w *world) fill() {
	w.rec.Fault("db", history.Fault{Kind: history.Full})
	w.db.full = true
	w.s.sleep(w.s.between(1, time.Minute))
	w.db.full = false
}

// failOver lets a replica go on, which lacks the last moments.
func (w *world) failOver() {
	now := w.s.now()
	since := now - w.s.between(1, 2*time.Second)
	w.rec.Fault("db", history.Fault{Kind: history.Forget, Since: int64(max(0, since))})
	w.db.crash()
	w.db.forget(max(0, since))
}

// changeLimit gives one limit another version: at all nodes together, or at one after the
// other.
func (w *world) changeLimit() {
	l := w.taken[w.s.rng.IntN(len(w.taken))]
	v := l.change(w.s.rng, w.s.chance(250) || w.rollout && w.s.chance(600))
	ends := w.s.chance(400) && !w.rollout // all know when
	if ends {
		l.follow(w.storeTime().Add(w.s.between(time.Second, 20*time.Second)))
	}
	w.rec.Limit(l.versions[v].recorded)
	together := ends || w.s.chance(500) && !w.rollout
	busy := w.s.chance(500) // callers come just before and just after
	key := w.keys[w.s.rng.IntN(len(w.keys))]
	for i, n := range w.nodes {
		if busy = busy && i == 0; busy {
			w.rush(n, []charge{l.charge(n.home, key)}, 1+w.s.rng.IntN(5))
			w.s.sleep(w.s.between(20*time.Millisecond, time.Second))
		}
		l.current[n.home] = v
		if busy {
			w.rush(n, []charge{l.charge(n.home, key)}, 16)
		}
		if !together {
			w.s.sleep(w.s.between(1, 2*time.Minute))
		}
		if w.rollout {
			w.s.sleep(2 * time.Minute)
		}
	}
}

// rush lets callers of a node ask for the same within two milliseconds: so most
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

// rushAndStop lets callers call until tokens are fetched ahead, and then stops the node.
func (w *world) rushAndStop(n *node) {
	c := &caller{w, n}
	g := c.charges(1)
	for range 3 { // a limit that has a prefetch, if there is one
		if g[0].of.versions[g[0].version-1].recorded.Prefetch != "" {
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
