package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// bench holds what comparisons share.
type bench struct {
	servers
	before string // the program of another build, see task; empty: none is measured
}

func (b *bench) fields() []*field {
	return []*field{b.postgresField(), b.mariadbField(), b.redisField(), b.sqliteField()}
}

// groups returns the rows of the table, in its order.
func (b *bench) groups() (list []*group) {
	for _, f := range b.fields() {
		list = append(list, b.field(f))
	}
	return append(append(list, memoryGroups()...), b.fromPostgres(), b.fromMariaDB(), b.served())
}

// users returns keys, cut out of one string so that a garbage collection has nothing to follow.
func users(n int) []string {
	var text strings.Builder
	ends := make([]int, n)
	for i := range n {
		fmt.Fprintf(&text, "user:%d", i)
		ends[i] = text.Len()
	}
	all, keys, begin := text.String(), make([]string, n), 0
	for i, end := range ends {
		keys[i], begin = all[begin:end], end
	}
	return keys
}

var freshKeys atomic.Int64

// fresh returns a key that nobody has used.
func fresh() string {
	return fmt.Sprintf("fresh:%d:%d:%d", os.Getpid(), time.Now().UnixNano(), freshKeys.Add(1))
}

// count writes a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// shape is by how many processes a store is asked, and by how many callers in each.
type shape struct{ processes, callers int }

func (s shape) String() string {
	if s.processes == 1 {
		return count(s.callers, "caller")
	}
	return fmt.Sprintf("%d processes x %d callers", s.processes, s.callers)
}

func (s shape) all() int { return s.processes * s.callers }

// work is what is asked of a store.
type work struct {
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
	few  = []shape{{1, 1}, {1, 8}, {8, 4}}
	many = []shape{{1, 1}, {1, 8}, {1, 32}, {1, 512}, {8, 4}, {16, 2}}
	one  = []shape{{1, 256}}
)

// works are those of each database.
var works = []work{
	{"hot", "one key", []string{plain}, 1, false, []shape{{1, 1}, {1, 8}, {1, 512}, {8, 4}}},
	{"plain", "100,000 keys", []string{plain}, 100_000, false, many},
	{"new", "new keys", []string{plain}, 0, false, []shape{{1, 8}, {1, 512}}},
	{"window", "sliding window, 20,000 keys", []string{window}, 20_000, false, few},
	{"log", "sliding log, 20,000 keys", []string{velocity}, 20_000, false, few},
	{"limits-3", "3 limits", slices.Repeat([]string{plain}, 3), 20_000, false, one},
	{"settled-3", "3 limits with an id, and then settled", slices.Repeat([]string{plain}, 3), 20_000, true, one},
	{"limits-6", "6 limits", slices.Repeat([]string{plain}, 6), 20_000, false, one},
	{"settled-6", "6 limits with an id, and then settled", slices.Repeat([]string{plain}, 6), 20_000, true, one},
}

// field is a store that works are measured on.
type field struct {
	name, title string
	works       []work
	processes   bool // several can open it
	// url returns that of an empty database, for Headgate.
	url func(ctx context.Context) (url string, drop func(), err error)
	// ready makes ready what Headgate is compared with, with some keys, and returns the URL or the folder of it. What
	// it returns is let go of even where it returns an error, as what beside returns.
	ready func(ctx context.Context, keys []string) (at string, stop func(), err error)
	// beside connects a process to what is ready.
	beside func(ctx context.Context, at string) (others []other, stop func(), err error)
	// clients says by how many clients the others are called where Headgate has that many callers; nil: see fewClients.
	clients func(callers int) []int
}

// about asks about a key, or keys: whether it is admitted.
type about[K any] = func(ctx context.Context, key K) (bool, error)

// other is what Headgate is compared with. A work that is not in calls it cannot do.
type other struct {
	side    side
	name    string
	clients int                             // whatever the callers; 0: see field
	calls   map[string]about[[]string]      // by name of the work
	before  func(ctx context.Context) error // of each measurement; nil: nothing
}

// single makes a call about one key one about the first of several.
func single(do about[string]) about[[]string] {
	return func(ctx context.Context, keys []string) (bool, error) { return do(ctx, keys[0]) }
}

// fewClients is for databases, which do more for few clients than for many.
func fewClients(callers int) []int {
	if callers >= 64 {
		return []int{8, 32}
	}
	return []int{callers}
}

// stand is a field that has been made ready.
type stand struct {
	*field
	group
	bench  *bench
	opened bool
	err    error
	urls   map[string]string // of Headgate's databases, by program
	filled map[string]bool   // the databases and works whose keys are there
	at     string            // of the others
	others []other
}

// field returns the comparisons of a store.
func (b *bench) field(f *field) *group {
	st := &stand{field: f, bench: b, urls: map[string]string{}, filled: map[string]bool{}}
	for _, w := range f.works {
		for _, s := range w.shapes {
			if s.processes > 1 && !f.processes {
				continue
			}
			st.rows = append(st.rows, comparison{
				name: rowName(f.name, w.name, s), title: fmt.Sprintf("%s, %s, %s", f.title, w.title, s),
				cells: func(ctx context.Context) ([]cell, error) { return st.cells(ctx, w, s) },
			})
		}
	}
	return &st.group
}

func rowName(field, work string, s shape) string {
	if s.processes == 1 {
		return fmt.Sprintf("%s-%s-%d", field, work, s.callers)
	}
	return fmt.Sprintf("%s-%s-%dx%d", field, work, s.processes, s.callers)
}

// cells returns those of a row; the first row makes the stand ready.
func (st *stand) cells(ctx context.Context, w work, s shape) (list []cell, err error) {
	if !st.opened {
		st.opened, st.err = true, st.open(ctx)
	}
	if st.err != nil {
		return nil, st.err
	}
	list = append(list, st.headgate(ctx, cell{side: ours, name: "Headgate"}, w, s))
	if program := st.bench.before; program != "" {
		list = append(list, st.headgate(ctx, cell{side: earlier, name: "the build before", program: program}, w, s))
	}
	clients := st.clients
	if clients == nil {
		clients = fewClients
	}
	for i := range st.others {
		o := &st.others[i]
		if o.calls[w.name] == nil {
			continue
		}
		shapes := []shape{s}
		if s.processes == 1 {
			numbers := clients(s.callers)
			if o.clients > 0 {
				numbers = []int{o.clients}
			}
			shapes = shapes[:0]
			for _, n := range numbers {
				shapes = append(shapes, shape{1, n})
			}
		}
		for _, s := range shapes {
			list = append(list, st.other(ctx, o, w, s))
		}
	}
	return list, nil
}

// open makes ready what Headgate is compared with.
func (st *stand) open(ctx context.Context) (err error) {
	var stop func()
	if st.at, stop, err = st.ready(ctx, users(100_000)); stop != nil {
		st.ends = append(st.ends, stop)
	}
	if err != nil {
		return err
	}
	if st.others, stop, err = st.beside(ctx, st.at); stop != nil {
		st.ends = append(st.ends, stop)
	}
	return err
}

// headgate starts the workers of a cell.
func (st *stand) headgate(ctx context.Context, c cell, w work, s shape) cell {
	c.at = s.String()
	url := st.urls[c.program]
	if url == "" {
		var drop func()
		if url, drop, c.err = st.url(ctx); c.err != nil {
			return c
		}
		st.ends = append(st.ends, drop)
		st.urls[c.program] = url
	}
	filled := url + w.name
	group, err := startWorkers(ctx, c.program, s.processes, task{
		URL: url, Name: w.name, Limits: w.limits, Keys: w.keys, ID: w.id, Callers: s.callers,
		Fill: w.keys > 0 && !st.filled[filled],
	})
	if c.err = err; err != nil {
		return c
	}
	st.filled[filled] = true
	c.measure, c.close = group.measure, group.close
	if c.side == ours {
		c.audit = group.audit
	}
	return c
}

// other starts the workers of a cell that calls something else.
func (st *stand) other(ctx context.Context, o *other, w work, s shape) cell {
	c := cell{side: o.side, name: o.name, at: count(s.callers, "client")}
	if s.processes > 1 {
		c.at = s.String()
	}
	group, err := startWorkers(ctx, "", s.processes, task{
		Field: st.name, Other: o.name, URL: st.at, Name: w.name, Limits: w.limits, Keys: w.keys, Callers: s.callers,
	})
	if c.err = err; err != nil {
		return c
	}
	c.close = group.close
	c.measure = func(ctx context.Context, d time.Duration) (sample, error) {
		if o.before != nil {
			if err := o.before(ctx); err != nil {
				return sample{}, err
			}
		}
		return group.measure(ctx, d)
	}
	return c
}
