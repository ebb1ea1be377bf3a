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
	s          *scheduler
	rec        *record.Recorder
	controller *process // runs the goroutines of the world itself
	end        time.Duration

	db            *database     // nil: the store is in memory
	memory        *memory.Store // in the memory of memoryProcess; nil: the store is a database
	memoryProcess *process
	net           *network // nil: nodes have a Limiter of their own
	server        *server
	nodes         []*node

	rateLimits []*limit
	leaseLimit *limit // nil: callers acquire no leases
	keys       []string
	lastID     int

	catalog *catalog.Catalog // through which the world changes limits; nil: the store has no catalog

	overrides   bool          // keys get overrides of limits, and callers know limits by their names only
	operates    bool          // callers reset and block keys
	manyCallers bool          // many callers of one key
	rollout     bool          // two processes disagree about one limit for minutes
	rushes      bool          // now and then several callers make the same charge together
	cancels     int           // thousandths of the calls whose context ends early
	gap         time.Duration // most pauses of a caller last up to twice this
	faults      faults
	broken      []string // broken promises that the checker cannot see
	waiters     map[*waiter]struct{}
}

type faults struct {
	kills, crashes, clockMoves, fullDisks, lossyFailovers, limitChanges bool
}

// node is a process with callers. After it was killed, another process takes its place.
type node struct {
	name    string
	stop    func() // shuts the node down like a program that ends
	p       *process
	limiter limiter
	callers int
}

var discardLog = slog.New(slog.NewTextHandler(io.Discard, nil))

// newWorld makes the world of a seed, which ends after maxTime at the latest if that is above 0.
func newWorld(s *scheduler, maxTime time.Duration) *world {
	w := &world{waiters: map[*waiter]struct{}{}, s: s, rec: record.New(s.now)}
	w.end = s.between(30*time.Minute, 4*time.Hour)
	if maxTime > 0 {
		w.end = min(w.end, maxTime)
	}
	w.chooseLimits()
	w.operates = s.chance(300)
	if s.chance(300) && !w.avoidUnknown() {
		w.cancels = 30
	}
	if w.manyCallers && w.cancels > 0 {
		w.cancels = 20 + s.rng.IntN(300)
	}
	w.rec.UnknownFor = 30 * time.Second // no transaction takes longer
	if w.manyCallers || w.rushes {
		w.rec.UnknownFor = 5 * time.Second // only a repeated attempt takes longer
	}
	w.chooseFaults()
	return w
}

// chooseLimits chooses what the world tests, its limits and keys, and how long it lasts.
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
		w.rollout = true
		limits, keys = 1, 1
		w.gap, w.end = s.between(50*time.Millisecond, 2*time.Second), min(w.end, 8*time.Minute)
	case style < 57:
		w.rushes = true
		limits, keys = 1+s.rng.IntN(2), 1
		w.end = min(w.end, 5*time.Minute)
	case style < 67:
		w.overrides = true
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
			l.shortenPeriod(s.rng)
		case w.rushes && s.chance(400):
			l.enlarge(s.rng)
		case w.rushes && s.chance(500):
			l.prefetchMuch(s.rng)
		case w.overrides:
			l.replaceVersions(shortLimit(s.rng))
		}
		w.rateLimits = append(w.rateLimits, l)
		w.rec.Limit(l.versions[0].definition)
	}
	if s.chance(400) {
		w.leaseLimit = newLimit("jobs", history.Limit{
			Algorithm: history.Concurrency, Amount: strconv.Itoa(1 + s.rng.IntN(4)),
			TTL: (10 * time.Second).Microseconds(),
		})
		w.rec.Limit(w.leaseLimit.versions[0].definition)
	}
	for i := range keys {
		w.keys = append(w.keys, "key-"+strconv.Itoa(i+1))
	}
}

// avoidUnknown decides at random whether to leave out faults that cause unknown outcomes. Most worlds that test
// something which such outcomes would hide leave these faults out.
func (w *world) avoidUnknown() bool { return (w.rollout || w.rushes || w.overrides) && w.s.chance(800) }

// chooseFaults chooses the faults other than those of links. At least a fifth of all worlds without rollout have none.
func (w *world) chooseFaults() {
	s := w.s
	if w.rollout {
		w.faults.limitChanges = true
		return
	}
	if w.rushes && s.chance(600) {
		w.faults.kills = s.chance(700)
		return
	}
	if s.chance(200) || w.overrides && s.chance(300) {
		return
	}
	w.faults = faults{
		kills: s.chance(350), crashes: s.chance(350), clockMoves: s.chance(350), fullDisks: s.chance(350),
		lossyFailovers: s.chance(150), limitChanges: s.chance(350),
	}
	if w.overrides && s.chance(400) { // overrides end by the store's clock, and nodes have others
		w.faults.clockMoves = true
	}
}

// pause returns a random time between two calls of a caller.
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
		if w.addLinkFaults(&w.db.link) {
			w.db.conflicts, w.db.hangs = s.rng.IntN(50), max(0, s.rng.IntN(6)-3)
		}
	} else {
		w.startMemory()
	}
	w.publish()
	if n >= 6 && !w.rollout {
		w.addServer()
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
		w.nodes = append(w.nodes, n)
		w.startNode(n, newProcess(n.name))
	}
}

// allLimits returns all limits, the limit of leases first.
func (w *world) allLimits() []*limit {
	if w.leaseLimit == nil {
		return w.rateLimits
	}
	return slices.Concat([]*limit{w.leaseLimit}, w.rateLimits)
}

func (w *world) store() store.Store {
	if w.memory != nil {
		return w.memory
	}
	return w.db
}

func (w *world) randomNode() *node { return w.nodes[w.s.rng.IntN(len(w.nodes))] }

// storeProcess returns the process whose clock is the store's.
func (w *world) storeProcess() *process {
	if w.db != nil {
		return w.db.p
	}
	return w.memoryProcess
}

func (w *world) storeTime() time.Time {
	if w.db != nil {
		return time.UnixMicro(w.db.clock())
	}
	return w.s.wallOf(w.memoryProcess)
}

// maxDrift is the maximum by which a clock is too fast or too slow, in millionths.
const maxDrift = 200

func randomDrift(s *scheduler) int64 { return int64(s.rng.IntN(2*maxDrift+1)) - maxDrift }

// addLinkFaults gives a link random rates of faults, or none, and reports whether the link has faults.
func (w *world) addLinkFaults(l *link) bool {
	s := w.s
	if !s.chance(500) || w.avoidUnknown() {
		return false
	}
	l.refusals, l.lostRequests, l.lostAnswers = s.rng.IntN(10), s.rng.IntN(10), s.rng.IntN(10)
	return true
}

// startMemory makes a process whose memory is the store.
func (w *world) startMemory() {
	s, p := w.s, newProcess("server")
	p.wallOffset = epoch.Sub(s.start) + s.between(0, 8*time.Hour)
	p.ppm = randomDrift(s)
	c := &memory.Config{Clock: func() int64 { return s.wallOf(p).UnixMicro() }, Names: true}
	if s.chance(500) {
		c.MaxKeys = 1 + s.rng.IntN(3)
		for len(w.keys) < 6 && !w.manyCallers { // so that the store can be full
			w.keys = append(w.keys, "key-"+strconv.Itoa(len(w.keys)+1))
		}
	}
	w.memory, w.memoryProcess = memory.New(c), p
}

// startNode starts the callers of a node in a process.
func (w *world) startNode(n *node, p *process) {
	n.p = p
	p.wallOffset = epoch.Sub(w.s.start) + w.s.between(-time.Second, time.Second)
	p.ppm = randomDrift(w.s)
	w.s.spawn(p, func() {
		n.limiter, n.stop = w.newLimiter()
		for range n.callers {
			c := &caller{w, n}
			sched.Go(c.run)
		}
	})
}

// newLimiter makes the limiter of the running process, and a function that stops it.
func (w *world) newLimiter() (l limiter, stop func()) {
	if w.net != nil {
		c, err := client.New("http://server", &client.Config{HTTPClient: &http.Client{Transport: w.net}})
		if err != nil {
			panic(err)
		}
		return c, c.Close
	}
	s := w.wrap(w.store())
	if !w.overrides {
		return headgate.New(s, nil), func() { _ = s.Close() }
	}
	names := w.watchCatalog(s)
	return headgate.New(s, &headgate.Config{Names: names}), func() {
		names.Close()
		_ = s.Close()
	}
}

func (w *world) wrap(s store.Store) store.Store {
	return front.New(s, &front.Config{Logger: discardLog, SweepEvery: time.Minute})
}

// addServer puts a server between the nodes and the store.
func (w *world) addServer() {
	w.net = &network{w: w, link: link{
		scheduler: w.s, maxLatency: w.s.between(50*time.Microsecond, 20*time.Millisecond),
	}}
	w.addLinkFaults(&w.net.link)
	w.startServer()
}

// startServer starts a server process, at first and after one was killed, and waits until it is ready. A server whose
// memory is the store is killed only at the end of the run.
func (w *world) startServer() {
	p := newProcess("server")
	if w.memory != nil {
		p = w.memoryProcess
	} else {
		p.wallOffset = epoch.Sub(w.s.start)
	}
	srv := &server{p: p}
	w.server = srv
	ready := make(chan struct{})
	w.s.spawn(p, func() {
		defer close(ready)
		c := &config.Config{}
		for _, l := range w.allLimits() {
			c.Limits = append(c.Limits, catalog.Definition{Limit: l.versionFor(nil).limit})
		}
		s := w.wrap(w.store())
		names := catalog.Names(c)
		if w.overrides {
			names = w.watchCatalog(s)
		}
		limiter := headgate.New(s, &headgate.Config{Names: names})
		srv.handler = rest.New(service.New(limiter, c, names), discardLog, nil)
	})
	sched.Receive(ready)
}
