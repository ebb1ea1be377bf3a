package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// bench has the servers and settings that comparisons share.
type bench struct {
	servers
	baseline string // the program of another build to measure too, see task; empty: none
}

func (b *bench) stores() []*storeBench {
	return []*storeBench{b.postgresBench(), b.mariadbBench(), b.redisBench(), b.sqliteBench()}
}

// groups returns the groups of comparisons in the order of the table.
func (b *bench) groups(ctx context.Context) (list []*group) {
	for _, f := range b.stores() {
		list = append(list, b.storeGroup(ctx, f))
	}
	return append(list, memoryGroup(ctx), b.postgresSQLGroup(ctx), b.mariadbSQLGroup(ctx), b.serverGroup())
}

// userKeys returns keys that share one string, so that the garbage collector has one object to follow.
func userKeys(n int) []string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "user:%d ", i)
	}
	return strings.Fields(text.String())
}

var freshKeys atomic.Int64

func freshKey() string {
	return fmt.Sprintf("fresh:%d:%d:%d", os.Getpid(), time.Now().UnixNano(), freshKeys.Add(1))
}

// count returns a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// shape is a number of processes that call a store, and of callers in each.
type shape struct{ processes, callers int }

func (s shape) String() string {
	if s.processes == 1 {
		return count(s.callers, "caller")
	}
	return fmt.Sprintf("%d processes x %d callers", s.processes, s.callers)
}

// workload is a kind of request.
type workload struct {
	name, title string
	limits      []string
	keys        int  // see task.Keys
	id          bool // see task.ID
	shapes      []shape
}

const (
	// Limits of workloads. Only logLimit refuses.
	plainLimit  = "token-bucket 1000000000/h"
	windowLimit = "sliding-window 1000000/1m"
	logLimit    = "sliding-log 5/1m"                       // the limit of article 001
	leakyLimit  = "leaky-bucket 1000/365d capacity 100000" // the limit of article 004: a unit takes nine hours to drain
)

var (
	fewCallers  = []shape{{1, 1}, {1, 8}, {8, 4}}
	manyCallers = []shape{{1, 1}, {1, 8}, {1, 32}, {1, 512}, {8, 4}, {16, 2}}
	oneShape    = []shape{{1, 256}}
)

var workloads = []workload{
	{"hot", "one key", []string{plainLimit}, 1, false, []shape{{1, 1}, {1, 8}, {1, 512}, {8, 4}}},
	{"plain", "100,000 keys", []string{plainLimit}, 100_000, false, manyCallers},
	{"new", "new keys", []string{plainLimit}, 0, false, []shape{{1, 8}, {1, 512}}},
	{"window", "sliding window, 20,000 keys", []string{windowLimit}, 20_000, false, fewCallers},
	{"log", "sliding log, 20,000 keys", []string{logLimit}, 20_000, false, fewCallers},
	{"limits-3", "3 limits", slices.Repeat([]string{plainLimit}, 3), 20_000, false, oneShape},
	{"settled-3", "3 limits with an id, and then settled", slices.Repeat([]string{plainLimit}, 3), 20_000, true, oneShape},
	{"limits-6", "6 limits", slices.Repeat([]string{plainLimit}, 6), 20_000, false, oneShape},
	{"settled-6", "6 limits with an id, and then settled", slices.Repeat([]string{plainLimit}, 6), 20_000, true, oneShape},
}

// maxKeys is how many keys a workload has at most. The opponents' tables have them all.
const maxKeys = 100_000

// storeBench is a store with its opponents and workloads.
type storeBench struct {
	name, title string
	workloads   []workload
	processes   bool // several processes can open the store
	// url makes an empty database, for Headgate or for the opponents.
	url func(ctx context.Context) (url string, drop func(), err error)
	// prepareOpponents makes the tables of the opponents in a database, with maxKeys of userKeys; nil: none.
	prepareOpponents func(ctx context.Context, url string) error
	// connectOpponents connects a process to the opponents. stop, if not nil, disconnects it, also after an error.
	connectOpponents func(ctx context.Context, url string) (opponents []opponent, stop func(), err error)
	// clients are the numbers of clients of an opponent when Headgate has 64 callers or more: databases prefer few.
	clients []int
}

// allowFunc reports whether a key, or keys, are admitted.
type allowFunc[K any] = func(ctx context.Context, key K) (bool, error)

// opponent is a limiter or a bare statement to compare with. It runs only the workloads in calls.
type opponent struct {
	side    side
	name    string
	clients int                             // 0: as many as Headgate has callers, or storeBench.clients
	calls   map[string]allowFunc[[]string]  // by the name of the workload
	reset   func(ctx context.Context) error // runs before each measurement; nil: nothing to do
}

// firstKey adapts a function of one key to calls with several, of which it uses the first.
func firstKey(allow allowFunc[string]) allowFunc[[]string] {
	return func(ctx context.Context, keys []string) (bool, error) { return allow(ctx, keys[0]) }
}

// storeRun is a storeBench with its databases.
type storeRun struct {
	*storeBench
	group
	bench       *bench
	urls        map[string]string // the URLs of Headgate's databases, by program
	isFilled    map[string]bool   // whether the keys were filled, by database and workload
	opponentURL string            // the URL of the opponents' database
	opponents   []opponent
}

func (b *bench) storeGroup(ctx context.Context, f *storeBench) *group {
	r := &storeRun{storeBench: f, bench: b, urls: map[string]string{}, isFilled: map[string]bool{}}
	r.open = sync.OnceValue(func() error { return r.openOpponents(ctx) })
	for _, w := range f.workloads {
		for _, s := range w.shapes {
			if s.processes > 1 && !f.processes {
				continue
			}
			r.rows = append(r.rows, comparison{
				name: rowName(f.name, w.name, s), title: fmt.Sprintf("%s, %s, %s", f.title, w.title, s),
				cells: func(ctx context.Context) ([]cell, error) { return r.cells(ctx, w, s) },
			})
		}
	}
	return &r.group
}

func rowName(store, work string, s shape) string {
	if s.processes == 1 {
		return fmt.Sprintf("%s-%s-%d", store, work, s.callers)
	}
	return fmt.Sprintf("%s-%s-%dx%d", store, work, s.processes, s.callers)
}

func (r *storeRun) cells(ctx context.Context, w workload, s shape) (list []cell, err error) {
	list = append(list, r.headgateCell(ctx, cell{side: headgateSide, name: "Headgate"}, w, s))
	if program := r.bench.baseline; program != "" {
		before := cell{side: baselineSide, name: "the build before", program: program}
		list = append(list, r.headgateCell(ctx, before, w, s))
	}
	for i := range r.opponents {
		o := &r.opponents[i]
		if o.calls[w.name] == nil {
			continue
		}
		clients := []int{s.callers}
		if o.clients > 0 {
			clients = []int{o.clients}
		} else if s.callers >= 64 {
			clients = r.clients
		}
		for _, n := range clients {
			list = append(list, r.opponentCell(ctx, o, w, shape{s.processes, n}))
		}
	}
	return list, nil
}

// openOpponents makes the opponents' database, and connects this process to them.
func (r *storeRun) openOpponents(ctx context.Context) (err error) {
	if r.opponentURL, err = r.database(ctx, r.url); err != nil {
		return err
	}
	if r.prepareOpponents != nil {
		if err := r.prepareOpponents(ctx, r.opponentURL); err != nil {
			return err
		}
	}
	var stop func()
	if r.opponents, stop, err = r.connectOpponents(ctx, r.opponentURL); stop != nil {
		r.closers = append(r.closers, stop)
	}
	return err
}

// headgateCell starts the workers of a cell that calls Headgate.
func (r *storeRun) headgateCell(ctx context.Context, c cell, w workload, s shape) cell {
	c.setting = s.String()
	url := r.urls[c.program]
	if url == "" {
		if url, c.err = r.database(ctx, r.url); c.err != nil {
			return c
		}
		r.urls[c.program] = url
	}
	fillKey := url + w.name
	c = c.startWorkers(ctx, s.processes, task{
		URL: url, Name: w.name, Limits: w.limits, Keys: w.keys, ID: w.id, Callers: s.callers,
		Fill: w.keys > 0 && !r.isFilled[fillKey],
	})
	r.isFilled[fillKey] = r.isFilled[fillKey] || c.err == nil
	return c
}

// opponentCell starts the workers of a cell that calls an opponent.
func (r *storeRun) opponentCell(ctx context.Context, o *opponent, w workload, s shape) cell {
	c := cell{side: o.side, name: o.name, setting: count(s.callers, "client")}
	if s.processes > 1 {
		c.setting = s.String()
	}
	c = c.startWorkers(ctx, s.processes, task{
		Store: r.name, Opponent: o.name, URL: r.opponentURL, Name: w.name, Limits: w.limits, Keys: w.keys,
		Callers: s.callers,
	})
	if measure := c.measure; o.reset != nil && c.err == nil {
		c.measure = func(ctx context.Context, d time.Duration) (sample, error) {
			if err := o.reset(ctx); err != nil {
				return sample{}, err
			}
			return measure(ctx, d)
		}
	}
	return c
}
