package sim

import (
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/history/record"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

// world is a simulation: processes, a store, limits, and what goes wrong.
type world struct {
	s    *scheduler
	rec  *record.Recorder
	boss *process // whose goroutines are the world's own
	end  time.Duration

	db      *database     // nil: the store is in memory
	memory  *memory.Store // of memoryP; nil: it is a database
	memoryP *process
	net     *network // nil: nodes have a Limiter of their own
	server  *server
	nodes   []*node

	taken []*limit
	held  *limit // nil: none
	keys  []string
	ids   int

	limits *catalog.Catalog // through which the world changes limits; nil: the store has no catalog

	keyed       bool // keys get other definitions of limits, which callers know by name only
	operates    bool // callers reset and block keys
	manyCallers bool // many callers of one key
	rollout     bool // two processes disagree about one limit for long
	rushed      bool // now and then several callers ask for the same together
	cancels     int  // thousandths of the calls whose context ends early
	gap         time.Duration
	faults      faults
	broken      []string // promises that the checker cannot see
	waiting     map[*waiter]struct{}
}

type faults struct {
	kills, crashes, clocks, full, forgets, changes bool
}

type node struct {
	name    string
	stop    func()   // as a program does that ends
	home    *process // of the first incarnation, by which limits know its version
	p       *process
	ask     limiter
	callers int
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// newWorld makes the world of a seed. most is as of Run.
func newWorld(s *scheduler, most time.Duration) *world {
	w := &world{waiting: map[*waiter]struct{}{}, s: s, rec: record.New(s.now)}
	w.end = s.between(30*time.Minute, 4*time.Hour)
	if most > 0 {
		w.end = min(w.end, most)
	}
	w.chooseLimits()
	w.operates = s.chance(300)
	if s.chance(300) && !w.calm() {
		w.cancels = 30
	}
	if w.manyCallers && w.cancels > 0 {
		w.cancels = 20 + s.rng.IntN(300)
	}
	w.rec.UnknownFor = 30 * time.Second // no transaction takes longer
	if w.manyCallers || w.rushed {
		w.rec.UnknownFor = 5 * time.Second // nothing but an attempt that is repeated does
	}
	w.chooseFaults()
	return w
}

func (w *world) chooseLimits() {
	s := w.s
	w.gap = s.between(time.Second, 20*time.Second)
	limits, keys := 1+s.rng.IntN(3), 1+s.rng.IntN(3)
	switch style := s.rng.IntN(100); {
	case style < 24:
		w.manyCallers = true
		// Many callers of one key within milliseconds, of whom many leave early.
		limits, keys = 1, 1
		w.gap, w.end = s.between(time.Millisecond, 50*time.Millisecond), min(w.end, 25*time.Second)
	case style < 40:
		// Two processes that disagree about one limit for minutes.
		w.rollout = true
		limits, keys = 1, 1
		w.gap, w.end = s.between(50*time.Millisecond, 2*time.Second), min(w.end, 8*time.Minute)
	case style < 57:
		// Moments in which several ask for the same, between quiet minutes.
		w.rushed = true
		limits, keys = 1+s.rng.IntN(2), 1
		w.end = min(w.end, 5*time.Minute)
	case style < 67:
		// Single keys get other definitions of a limit for a time.
		w.keyed = true
		limits, keys = 1+s.rng.IntN(2), 1+s.rng.IntN(3)
		w.gap, w.end = s.between(20*time.Millisecond, 500*time.Millisecond), min(w.end, 2*time.Minute)
	}
	for i := range limits {
		name := "limit-" + strconv.Itoa(i+1)
		l := newLimit(name, randomLimit(s.rng))
		switch {
		case w.manyCallers:
			l.enlarge(s.rng)
		case w.rollout:
			l.shorten(s.rng)
		case w.rushed && s.chance(400):
			l.enlarge(s.rng)
		case w.rushed && s.chance(500):
			l.prefetchMuch(s.rng)
		case w.keyed:
			l.become(shortLimit(s.rng))
		}
		w.taken = append(w.taken, l)
		w.rec.Limit(l.versions[0].recorded)
	}
	if s.chance(400) {
		w.held = newLimit("jobs", history.Limit{
			Algorithm: history.Concurrency, Amount: strconv.Itoa(1 + s.rng.IntN(4)),
			TTL: (10 * time.Second).Microseconds(),
		})
		w.rec.Limit(w.held.versions[0].recorded)
	}
	for i := range keys {
		w.keys = append(w.keys, "key-"+strconv.Itoa(i+1))
	}
}

// calm reports whether what this world is for is hidden by calls of which nobody knows
// whether they were charged: then there are mostly none.
func (w *world) calm() bool { return (w.rollout || w.rushed || w.keyed) && w.s.chance(800) }

// chooseFaults decides what can go wrong. In a fifth of all simulations nothing does.
func (w *world) chooseFaults() {
	s := w.s
	if w.rollout {
		w.faults.changes = true
		return
	}
	if w.rushed && s.chance(600) {
		w.faults.kills = s.chance(700)
		return
	}
	if s.chance(200) || w.keyed && s.chance(300) {
		return
	}
	w.faults = faults{
		kills: s.chance(350), crashes: s.chance(350), clocks: s.chance(350), full: s.chance(350),
		forgets: s.chance(150), changes: s.chance(350),
	}
	if w.keyed && s.chance(400) { // ends are times of one clock, and nodes have others
		w.faults.clocks = true
	}
}

func (w *world) pause() time.Duration {
	switch n := w.s.rng.IntN(100); {
	case n < 30:
		return w.s.between(1, 5*time.Millisecond)
	case n < 97:
		return w.s.between(1, 2*w.gap)
	}
	return w.s.between(1, 100*w.gap)
}

// populate starts the processes. It runs in a goroutine of the world.
func (w *world) populate() {
	s := w.s
	// Nodes with a database, clients of a server with a database, or clients of a server with its memory.
	n := s.rng.IntN(10)
	if n < 8 || w.rollout {
		w.db = newDatabase(s)
		if w.imperfect(&w.db.link) {
			w.db.conflicts, w.db.hanging = s.rng.IntN(50), max(0, s.rng.IntN(6)-3)
		}
	} else {
		w.startMemory()
	}
	w.publish()
	if n >= 6 && !w.rollout {
		w.serve()
	}
	ppm := w.storeProcess().ppm
	// Callers that wait for a start sleep by their own clocks, which drift too.
	w.rec.Fault("store", history.Fault{Kind: history.Drift, By: max(ppm, -ppm) + maxDrift})
	nodes := 1 + s.rng.IntN(4)
	if w.rollout {
		nodes = max(nodes, 2)
	}
	for i := range nodes {
		n := &node{name: "node-" + strconv.Itoa(i+1), callers: 1 + s.rng.IntN(4)}
		if w.manyCallers {
			n.callers += 4
		}
		n.home = newProcess(n.name)
		w.nodes = append(w.nodes, n)
		w.start(n, n.home)
	}
}

// all returns the limits, what is held first.
func (w *world) all() []*limit {
	if w.held == nil {
		return w.taken
	}
	return slices.Concat([]*limit{w.held}, w.taken)
}

// store returns the store of the processes.
func (w *world) store() store.Store {
	if w.memory != nil {
		return w.memory
	}
	return w.db
}

func (w *world) someNode() *node { return w.nodes[w.s.rng.IntN(len(w.nodes))] }

func (w *world) storeProcess() *process {
	if w.db != nil {
		return w.db.p
	}
	return w.memoryP
}

func (w *world) storeTime() time.Time {
	if w.db != nil {
		return time.UnixMicro(w.db.clock())
	}
	return w.s.wallOf(w.memoryP)
}

// maxDrift is by how many millionths a clock may be too fast or too slow.
const maxDrift = 200

func drift(s *scheduler) int64 { return int64(s.rng.IntN(2*maxDrift+1)) - maxDrift }

// imperfect gives a connection its faults, and reports whether it has some.
func (w *world) imperfect(to *link) bool {
	s := w.s
	if !s.chance(500) || w.calm() {
		return false
	}
	to.refused, to.lostBefore, to.lostAfter = s.rng.IntN(10), s.rng.IntN(10), s.rng.IntN(10)
	return true
}

// startMemory makes a process whose memory is the store.
func (w *world) startMemory() {
	s, p := w.s, newProcess("server")
	p.wall = epoch.Sub(s.start) + s.between(0, 8*time.Hour)
	p.ppm = drift(s)
	c := &memory.Config{Clock: func() int64 { return s.wallOf(p).UnixMicro() }, Names: true}
	if s.chance(500) {
		c.MaxKeys = 1 + s.rng.IntN(3)
		for len(w.keys) < 6 && !w.manyCallers { // so that a limit can be full
			w.keys = append(w.keys, "key-"+strconv.Itoa(len(w.keys)+1))
		}
	}
	w.memory, w.memoryP = memory.New(c), p
}

func (w *world) start(n *node, p *process) {
	n.p = p
	p.wall = epoch.Sub(w.s.start) + w.s.between(-time.Second, time.Second)
	p.ppm = drift(w.s)
	w.s.spawn(p, func() {
		n.ask, n.stop = w.asker()
		for range n.callers {
			c := &caller{w, n}
			sched.Go(c.run)
		}
	})
}

// asker makes what the callers of the process that runs now ask,
// and how to stop it.
func (w *world) asker() (ask limiter, stop func()) {
	if w.net != nil {
		c, err := client.New("http://server", &client.Config{HTTPClient: &http.Client{Transport: w.net}})
		if err != nil {
			panic(err)
		}
		return c, c.Close
	}
	s := w.stack(w.store())
	if !w.keyed {
		return headgate.New(s, nil), func() { _ = s.Close() }
	}
	known := w.names(s)
	return headgate.New(s, &headgate.Config{Names: known}), func() {
		known.Close()
		_ = s.Close()
	}
}

func (w *world) stack(s store.Store) store.Store {
	return front.New(s, &front.Config{Logger: quiet, SweepEvery: time.Minute})
}

func (w *world) serve() {
	w.net = &network{link: link{s: w.s, latency: w.s.between(50*time.Microsecond, 20*time.Millisecond)}, w: w}
	w.imperfect(&w.net.link)
	w.restart()
}

// restart starts the server process, with its store where that is its memory.
func (w *world) restart() {
	p := newProcess("server")
	if w.memory != nil {
		p = w.memoryP
	} else {
		p.wall = epoch.Sub(w.s.start)
	}
	up := &server{p: p}
	w.server = up
	ready := make(chan struct{})
	w.s.spawn(p, func() {
		defer close(ready)
		c := &config.Config{}
		for _, l := range w.all() {
			c.Limits = append(c.Limits, catalog.Definition{Limit: l.of(nil).limit})
		}
		s := w.stack(w.store())
		known := catalog.Names(c)
		if w.keyed {
			known = w.names(s)
		}
		up.handler = rest.New(service.New(headgate.New(s, &headgate.Config{Names: known}), c, known), quiet, nil)
	})
	sched.Receive(ready)
}
