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

// bench has what comparisons share.
type bench struct {
	servers
	baseline string // the program of another build, see task; empty: none is measured
}

func (b *bench) fields() []*field {
	return []*field{b.postgresField(), b.mariadbField(), b.redisField(), b.sqliteField()}
}

// groups returns the rows of the table, in its order.
func (b *bench) groups(ctx context.Context) (list []*group) {
	for _, f := range b.fields() {
		list = append(list, b.field(ctx, f))
	}
	return append(list, memoryGroup(ctx), b.fromPostgres(ctx), b.fromMariaDB(ctx), b.served())
}

// userKeys returns keys that share one string, so that a garbage collection has nothing to follow.
func userKeys(n int) []string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "user:%d ", i)
	}
	return strings.Fields(text.String())
}

var freshKeys atomic.Int64

// freshKey returns a key that was never used.
func freshKey() string {
	return fmt.Sprintf("fresh:%d:%d:%d", os.Getpid(), time.Now().UnixNano(), freshKeys.Add(1))
}

// count writes a number with its noun.
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
	keys        int
	id          bool
	shapes      []shape
}

const (
	// Neither binds.
	plain    = "token-bucket 1000000000/h"
	window   = "sliding-window 1000000/1m"
	velocity = "sliding-log 5/1m"                       // of article 001
	leaky    = "leaky-bucket 1000/365d capacity 100000" // of article 004: a unit takes nine hours to drain
)

var (
	fewCallers  = []shape{{1, 1}, {1, 8}, {8, 4}}
	manyCallers = []shape{{1, 1}, {1, 8}, {1, 32}, {1, 512}, {8, 4}, {16, 2}}
	oneProcess  = []shape{{1, 256}}
)

// workloads run on each database.
var workloads = []workload{
	{"hot", "one key", []string{plain}, 1, false, []shape{{1, 1}, {1, 8}, {1, 512}, {8, 4}}},
	{"plain", "100,000 keys", []string{plain}, 100_000, false, manyCallers},
	{"new", "new keys", []string{plain}, 0, false, []shape{{1, 8}, {1, 512}}},
	{"window", "sliding window, 20,000 keys", []string{window}, 20_000, false, fewCallers},
	{"log", "sliding log, 20,000 keys", []string{velocity}, 20_000, false, fewCallers},
	{"limits-3", "3 limits", slices.Repeat([]string{plain}, 3), 20_000, false, oneProcess},
	{"settled-3", "3 limits with an id, and then settled", slices.Repeat([]string{plain}, 3), 20_000, true, oneProcess},
	{"limits-6", "6 limits", slices.Repeat([]string{plain}, 6), 20_000, false, oneProcess},
	{"settled-6", "6 limits with an id, and then settled", slices.Repeat([]string{plain}, 6), 20_000, true, oneProcess},
}

// otherKeys is how many keys a workload has at most.
const otherKeys = 100_000

// field is a store with its rivals.
type field struct {
	name, title string
	workloads   []workload
	processes   bool // several can open it
	// url makes an empty database, for Headgate or for the others.
	url func(ctx context.Context) (url string, drop func(), err error)
	// prepareOthers makes in a database what the others have of the first otherKeys of userKeys; nil: nothing.
	prepareOthers func(ctx context.Context, url string) error
	// connectOthers connects a process to the others. The caller calls stop even after an error, unless it is nil.
	connectOthers func(ctx context.Context, url string) (others []other, stop func(), err error)
	// clients are the numbers of clients of the others beside many callers of Headgate: databases do more for few.
	clients []int
}

// decide reports whether a key, or keys, are admitted.
type decide[K any] = func(ctx context.Context, key K) (bool, error)

// other is a limiter to compare with. It cannot do a workload that is not in calls.
type other struct {
	side    side
	name    string
	clients int                             // however many callers Headgate has; 0: as many, or those of the field
	calls   map[string]decide[[]string]     // by name of the workload
	before  func(ctx context.Context) error // of each measurement; nil: nothing
}

// firstKey ignores all keys but the first.
func firstKey(do decide[string]) decide[[]string] {
	return func(ctx context.Context, keys []string) (bool, error) { return do(ctx, keys[0]) }
}

// arena is a field with its databases.
type arena struct {
	*field
	group
	bench  *bench
	urls   map[string]string // of Headgate's databases, by program
	filled map[string]bool   // the databases and workloads whose keys are there
	url    string            // of the database of the others
	others []other
}

// field returns the comparisons of a store.
func (b *bench) field(ctx context.Context, f *field) *group {
	a := &arena{field: f, bench: b, urls: map[string]string{}, filled: map[string]bool{}}
	a.group.open = sync.OnceValue(func() error { return a.open(ctx) })
	for _, w := range f.workloads {
		for _, s := range w.shapes {
			if s.processes > 1 && !f.processes {
				continue
			}
			a.rows = append(a.rows, comparison{
				name: rowName(f.name, w.name, s), title: fmt.Sprintf("%s, %s, %s", f.title, w.title, s),
				cells: func(ctx context.Context) ([]cell, error) { return a.cells(ctx, w, s) },
			})
		}
	}
	return &a.group
}

func rowName(field, work string, s shape) string {
	if s.processes == 1 {
		return fmt.Sprintf("%s-%s-%d", field, work, s.callers)
	}
	return fmt.Sprintf("%s-%s-%dx%d", field, work, s.processes, s.callers)
}

// cells returns the cells of a row.
func (a *arena) cells(ctx context.Context, w workload, s shape) (list []cell, err error) {
	list = append(list, a.headgate(ctx, cell{side: ours, name: "Headgate"}, w, s))
	if program := a.bench.baseline; program != "" {
		list = append(list, a.headgate(ctx, cell{side: earlier, name: "the build before", program: program}, w, s))
	}
	for i := range a.others {
		o := &a.others[i]
		if o.calls[w.name] == nil {
			continue
		}
		clients := []int{s.callers}
		if o.clients > 0 {
			clients = []int{o.clients}
		} else if s.callers >= 64 {
			clients = a.clients
		}
		for _, n := range clients {
			list = append(list, a.other(ctx, o, w, shape{s.processes, n}))
		}
	}
	return list, nil
}

// open prepares the others.
func (a *arena) open(ctx context.Context) (err error) {
	if a.url, err = a.database(ctx, a.field.url); err != nil {
		return err
	}
	if a.prepareOthers != nil {
		if err := a.prepareOthers(ctx, a.url); err != nil {
			return err
		}
	}
	var stop func()
	if a.others, stop, err = a.connectOthers(ctx, a.url); stop != nil {
		a.ends = append(a.ends, stop)
	}
	return err
}

// headgate starts the workers of a cell.
func (a *arena) headgate(ctx context.Context, c cell, w workload, s shape) cell {
	c.at = s.String()
	url := a.urls[c.program]
	if url == "" {
		if url, c.err = a.database(ctx, a.field.url); c.err != nil {
			return c
		}
		a.urls[c.program] = url
	}
	filled := url + w.name
	c = c.start(ctx, s.processes, task{
		URL: url, Name: w.name, Limits: w.limits, Keys: w.keys, ID: w.id, Callers: s.callers,
		Fill: w.keys > 0 && !a.filled[filled],
	})
	a.filled[filled] = a.filled[filled] || c.err == nil
	return c
}

// other starts the workers of a cell that calls something else.
func (a *arena) other(ctx context.Context, o *other, w workload, s shape) cell {
	c := cell{side: o.side, name: o.name, at: count(s.callers, "client")}
	if s.processes > 1 {
		c.at = s.String()
	}
	c = c.start(ctx, s.processes, task{
		Field: a.name, Other: o.name, URL: a.url, Name: w.name, Limits: w.limits, Keys: w.keys, Callers: s.callers,
	})
	if measure := c.measure; o.before != nil && c.err == nil {
		c.measure = func(ctx context.Context, d time.Duration) (sample, error) {
			if err := o.before(ctx); err != nil {
				return sample{}, err
			}
			return measure(ctx, d)
		}
	}
	return c
}
