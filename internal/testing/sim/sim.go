// Package sim runs Headgate in a simulation: several processes with the Limiter, the wrappers, the client and the
// server as they are, over a store and a network that are models, in virtual time. One seed decides everything, so that
// a run can be repeated.
//
// What is real: the root package, law, store/front with deny, prefetch and coalesce, store/memory, catalog, client,
// internal/server/rest and internal/server/service. What is a model: the database (see database) and the network (see
// network). Package sched connects the two worlds.
//
// In most worlds callers have limits as values, and change them together or one after the other. In some, callers know
// only the names of limits: each process has a catalog, and single keys get overrides (see world.overrideKey).
//
// A run records a history (package history). Package check judges it, and knows nothing of the code that has run.
//
// `make sim` searches for a minute with new seeds; `make sim SIM='-seed N'` repeats a run.
package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/store"
)

type Result struct {
	History   *history.History
	Decisions int64    // calls that were admitted or refused
	Repeats   int64    // decisions that were refusals repeated without the store
	NodeHours float64  // virtual time of all nodes and the store
	Broken    []string // calls that were not answered, or not in their order or time
}

// Run runs the simulation of a seed. If maxTime is above 0, its callers stop after that virtual time at the latest. Run
// must be called in a bubble of testing/synctest, and by one goroutine at a time.
func Run(seed uint64, maxTime time.Duration) *Result {
	s := newScheduler(seed)
	sched.Simulate(s)
	defer sched.Simulate(nil)
	controller := newProcess("world")
	var w *world
	s.spawn(controller, func() {
		w = newWorld(s, maxTime)
		w.controller = controller
		w.populate()
		s.spawn(controller, w.chaos)
		s.sleep(w.end - s.now())
		w.finish()
	})
	s.run()
	r := &Result{History: w.rec.History(), Broken: w.broken, NodeHours: w.end.Hours() * float64(len(w.nodes)+1)}
	for _, e := range r.History.Events {
		if e.Return == nil || e.Return.Outcome != history.Admitted && e.Return.Outcome != history.Refused {
			continue
		}
		if r.Decisions++; e.Return.Via == history.ViaRepeat {
			r.Repeats++
		}
	}
	return r
}

// finish ends the faults, lets all calls end, records the state of every cell, and kills all processes.
func (w *world) finish() {
	if w.db != nil {
		w.db.diskFull = false
		w.db.refusals, w.db.lostRequests, w.db.lostAnswers, w.db.conflicts, w.db.hangs = 0, 0, 0, 0, 0
	}
	w.s.sleep(5 * time.Minute)
	for _, id := range w.rec.Unanswered() {
		w.broken = append(w.broken, fmt.Sprintf("call %d was never answered", id))
	}
	w.recordCells()
	for _, n := range w.nodes {
		n.p.kill()
	}
	if w.server != nil {
		w.server.p.kill()
	}
	if w.db != nil {
		w.db.p.kill()
	}
	w.controller.kill()
}

func (w *world) recordCells() {
	limiter := headgate.New(w.store(), nil)
	for _, l := range w.allLimits() {
		v := &l.versions[len(l.versions)-1]
		if !l.nameOnly.IsZero() { // the later ones are overrides
			v = &l.versions[0]
		}
		for _, key := range w.keys {
			st, err := limiter.Inspect(context.Background(), v.limit, key)
			if errors.Is(err, store.ErrSetup) {
				continue // the clock was set back, and the version is not in force yet
			}
			if err != nil {
				panic(err)
			}
			w.rec.State(v.definition, st)
		}
	}
}
