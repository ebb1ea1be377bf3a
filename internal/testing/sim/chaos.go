package sim

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/testing/history"
)

// chaos starts the faults, rushes and overrides of the world. It runs in a goroutine of the world.
func (w *world) chaos() {
	start := func(enabled bool, perRun int64, action func()) { // on average twice perRun times, if the action is short
		if !enabled {
			return
		}
		w.s.spawn(w.controller, func() {
			for {
				w.s.sleep(w.s.between(time.Millisecond, max(w.end/time.Duration(perRun), 2*time.Millisecond)))
				if w.s.now() >= w.end {
					return
				}
				action()
			}
		})
	}
	start(w.faults.kills, 4, w.killNode)
	start(w.faults.crashes && (w.db != nil || w.net != nil && w.memory == nil), 4, w.crash)
	start(w.faults.clockMoves, 4, w.moveClock)
	start(w.faults.clockMoves && w.overrides, 24, func() { w.moveNodeClock(w.randomClockMove()) })
	start(w.faults.fullDisks && w.db != nil, 4, w.fillDisk)
	start(w.faults.lossyFailovers && w.db != nil, 3, w.failOver)
	start(w.faults.limitChanges && w.net == nil && !w.overrides, 16, w.changeLimit)
	start(w.rushes, 200, func() {
		n := w.randomNode()
		w.rush(n, (&caller{w, n}).randomCharges(1), 2+w.s.rng.IntN(7))
	})
	start(w.overrides, 24, w.overrideKey)
}

// killNode kills a node, and starts another process in its place some time later.
func (w *world) killNode() {
	n := w.randomNode()
	if w.s.chance(500) && n.stop != nil { // the node is stopped first, and has time to give back its prefetched tokens
		w.rushAndStop(n)
	}
	w.rec.Fault(n.name, history.Fault{Kind: history.Kill})
	n.p.kill()
	w.s.sleep(w.s.between(1, time.Minute))
	p := newProcess(n.name)
	for _, l := range w.rateLimits {
		l.versionIndexes[p] = l.versionIndexes[n.p]
	}
	w.startNode(n, p)
}

// crash kills the Headgate server or the database, and starts it again.
func (w *world) crash() {
	if w.net != nil && w.s.chance(500) {
		w.rec.Fault("server", history.Fault{Kind: history.Kill})
		w.server.p.kill()
		w.s.sleep(w.s.between(1, 20*time.Second))
		w.startServer()
		return
	}
	w.rec.Fault("db", history.Fault{Kind: history.Kill})
	w.db.crash()
}

func (w *world) randomClockMove() time.Duration {
	moves := []time.Duration{
		time.Second, -time.Second, 1500 * time.Millisecond, -1900 * time.Millisecond, -10 * time.Second,
		time.Minute, -time.Hour, time.Hour, 26 * time.Hour,
	}
	return moves[w.s.rng.IntN(len(moves))]
}

// moveNodeClock moves the wall clock of a node. No decision may depend on it.
func (w *world) moveNodeClock(by time.Duration) { w.randomNode().p.wallOffset += by }

// moveClock moves the clock of the store, or else of a node.
func (w *world) moveClock() {
	by := w.randomClockMove()
	if w.s.chance(400) {
		w.moveNodeClock(by)
		return
	}
	w.rec.Fault("store", history.Fault{Kind: history.Clock, By: by.Microseconds()})
	w.storeProcess().wallOffset += by
}

// fillDisk lets commits fail for a while, as on a full disk.
func (w *world) fillDisk() {
	w.rec.Fault("db", history.Fault{Kind: history.Full})
	w.db.diskFull = true
	w.s.sleep(w.s.between(1, time.Minute))
	w.db.diskFull = false
}

// failOver crashes the database and loses its last commits, as when a replica that lacks them takes over.
func (w *world) failOver() {
	since := max(0, w.s.now()-w.s.between(1, 2*time.Second))
	w.rec.Fault("db", history.Fault{Kind: history.Forget, Since: int64(since)})
	w.db.crash()
	w.db.forget(since)
}

// changeLimit gives one limit another version, at all nodes together or at one after the other.
func (w *world) changeLimit() {
	l := w.rateLimits[w.s.rng.IntN(len(w.rateLimits))]
	v := l.change(w.s.rng, w.s.chance(250) || w.rollout && w.s.chance(600))
	scheduled := w.s.chance(400) && !w.rollout // the version has a time from which it is in force
	if scheduled {
		l.schedule(w.storeTime().Add(w.s.between(time.Second, 20*time.Second)))
	}
	w.rec.Limit(l.versions[v].definition)
	atOnce := scheduled || w.s.chance(500) && !w.rollout
	busy := w.s.chance(500) // callers come just before and just after the change
	key := w.keys[w.s.rng.IntN(len(w.keys))]
	for i, n := range w.nodes {
		if busy = busy && i == 0; busy {
			w.rush(n, []charge{l.charge(n.p, key)}, 1+w.s.rng.IntN(5))
			w.s.sleep(w.s.between(20*time.Millisecond, time.Second))
		}
		l.versionIndexes[n.p] = v
		if busy {
			w.rush(n, []charge{l.charge(n.p, key)}, 16)
		}
		if !atOnce {
			w.s.sleep(w.s.between(1, 2*time.Minute))
		}
		if w.rollout {
			w.s.sleep(2 * time.Minute)
		}
	}
}

// rush lets callers of a node take the same charges within two milliseconds: so most callers share a batch, and often
// an op. In a world with rushes, one or two callers may leave early.
func (w *world) rush(n *node, charges []charge, callers int) {
	leaverCount := 0
	if w.rushes && w.s.chance(700) {
		leaverCount = min(callers-1, 1+w.s.rng.IntN(2))
	}
	for range callers {
		timeout := 20 * time.Second
		if leaverCount > 0 {
			leaverCount--
			timeout = w.s.between(1, 8*time.Millisecond)
		}
		w.s.spawn(n.p, func() {
			w.s.sleep(w.s.between(1, 2*time.Millisecond))
			if n.limiter == nil {
				return // the node has not started yet
			}
			ctx, cancel := sched.WithTimeout(context.Background(), timeout)
			defer cancel()
			(&caller{w, n}).take(ctx, charges)
		})
	}
}

// rushAndStop lets callers take a few times, from a limit with a prefetch if it finds one, and then stops the node.
func (w *world) rushAndStop(n *node) {
	c := &caller{w, n}
	charges := c.randomCharges(1)
	for range 3 { // tries to find a limit with a prefetch
		if charges[0].limit.versions[charges[0].version-1].definition.Prefetch != "" {
			break
		}
		charges = c.randomCharges(1)
	}
	for range w.s.rng.IntN(4) {
		w.rush(n, charges, 1+w.s.rng.IntN(2))
		w.s.sleep(w.s.between(10*time.Millisecond, 150*time.Millisecond))
	}
	w.s.spawn(n.p, n.stop)
	w.s.sleep(10 * time.Second)
}
