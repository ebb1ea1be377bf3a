package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/headgate/headgate/bench/rivals"
)

// side says whose a cell is.
type side int

const (
	ours    side = iota // Headgate: one cell of a comparison
	rival               // of several, the best counts
	ceiling             // the bare statement or arithmetic, without Headgate's code; of several, the best counts
	earlier             // Headgate, as another build
)

// comparison is a row of the table. All its cells are measured in a round, then in the next round, so that what
// else the machine does meets all of them alike.
type comparison struct {
	name, title string
	cells       func(ctx context.Context) ([]cell, error)
}

// group is rows that share what is made for the first of them, and let go of after the last.
type group struct {
	rows []comparison
	open func() error // makes it once; nil: there is nothing
	ends []func()
}

// database makes an empty database, which is dropped in the end.
func (g *group) database(ctx context.Context, empty func(context.Context) (string, func(), error)) (string, error) {
	url, drop, err := empty(ctx)
	if err == nil {
		g.ends = append(g.ends, drop)
	}
	return url, err
}

func (g *group) close() {
	for _, end := range slices.Backward(g.ends) {
		end()
	}
	g.ends = nil
}

// cell is one side of a comparison, at one setting.
type cell struct {
	side     side
	name, at string // "redis_rate v10.0.1", "32 clients"
	program  string // of the workers; empty: it is called in this process
	measure  func(ctx context.Context, d time.Duration) (sample, error)
	audit    func(ctx context.Context, d time.Duration) (exactness, error) // nil: it is not counted
	close    func()                                                        // nil: there is nothing to let go of
	err      error                                                         // why it cannot be measured
}

// start starts the workers of a cell, each at a task.
func (c cell) start(ctx context.Context, processes int, t task) cell {
	workers, err := startWorkers(ctx, c.program, processes, t)
	if c.err = err; err != nil {
		return c
	}
	c.measure, c.close = workers.measure, workers.close
	if c.side == ours {
		c.audit = workers.audit
	}
	return c
}

func (c *cell) label() string {
	if c.at == "" {
		return c.name
	}
	return c.name + ", " + c.at
}

// sample is what a cell showed in a round.
type sample struct {
	value           float64       // decisions a second
	p50, p99        time.Duration // 0: not measured
	asked, failed   int64
	firstError      error
	decisions       float64 // with those of the warm-up; 0: they are not counted, and their cost is not known
	workers         float64 // microseconds of CPU for a decision: of the processes that call in the place of this one,
	client, servers float64 // of all that call, and of the servers that this process started
}

// exactness is what was admitted, against what a limit allows.
type exactness struct {
	admitted, allowed float64
	over              float64 // what single keys got above their bound, summed up
}

// figure is what became of a cell in all rounds: the medians, and of what was asked and has failed the sums.
type figure struct {
	sample
	side        side
	label       string
	least, most float64 // values
	exact       *exactness
	err         error // why there is no figure
}

// result is what became of a comparison.
type result struct {
	comparison
	figures []figure
	err     error // why there are none
}

// run measures a comparison of the group.
func (g *group) run(ctx context.Context, c comparison, rounds int, d time.Duration) result {
	r := result{comparison: c}
	if g.open != nil {
		if r.err = g.open(); r.err != nil {
			return r
		}
	}
	cells, err := c.cells(ctx)
	defer func() {
		for _, cell := range slices.Backward(cells) {
			if cell.close != nil {
				cell.close()
			}
		}
	}()
	if err != nil {
		r.err = err
		return r
	}
	samples := make([][]sample, len(cells))
	for round := range rounds {
		for i := range cells {
			if round%2 == 1 { // whom a cell comes after differs
				i = len(cells) - 1 - i
			}
			if cells[i].err != nil {
				continue
			}
			s, err := measure(ctx, &cells[i], d)
			if err != nil {
				cells[i].err = err
				continue
			}
			samples[i] = append(samples[i], s)
		}
	}
	for i := range cells {
		f := summary(&cells[i], samples[i])
		if cells[i].audit != nil && f.err == nil {
			e, err := cells[i].audit(ctx, d)
			if err != nil {
				f.err = fmt.Errorf("counting: %w", err)
			}
			f.exact = &e
		}
		r.figures = append(r.figures, f)
	}
	return r
}

func measure(ctx context.Context, c *cell, d time.Duration) (sample, error) {
	if err := ctx.Err(); err != nil {
		return sample{}, err
	}
	client, servers := ownCPU(), rivals.CPU()
	s, err := c.measure(ctx, d)
	if s.decisions > 0 {
		s.client = float64((ownCPU() - client).Nanoseconds()) / 1e3 / s.decisions
		s.servers = max(0, float64((rivals.CPU()-servers).Nanoseconds())/1e3/s.decisions-s.workers)
		if s.workers > 0 {
			s.client = s.workers
		}
	}
	if err == nil && s.asked == s.failed {
		err = errors.Join(errors.New("it has decided nothing"), s.firstError)
	}
	return s, err
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func summary(c *cell, samples []sample) figure {
	f := figure{side: c.side, label: c.label(), err: c.err}
	if c.err != nil || len(samples) == 0 {
		return f
	}
	f.value = median(samples, func(s sample) float64 { return s.value })
	f.p50 = time.Duration(median(samples, func(s sample) float64 { return float64(s.p50) }))
	f.p99 = time.Duration(median(samples, func(s sample) float64 { return float64(s.p99) }))
	f.client = median(samples, func(s sample) float64 { return s.client })
	f.servers = median(samples, func(s sample) float64 { return s.servers })
	f.least, f.most = samples[0].value, samples[0].value
	for _, s := range samples {
		f.least, f.most = min(f.least, s.value), max(f.most, s.value)
		f.asked += s.asked
		f.failed += s.failed
		if f.firstError == nil {
			f.firstError = s.firstError
		}
	}
	return f
}

func median(samples []sample, of func(sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// best returns the best figure of a side, or nil.
func (r *result) best(of side) *figure {
	var best *figure
	for i := range r.figures {
		if f := &r.figures[i]; f.side == of && f.err == nil && (best == nil || f.value > best.value) {
			best = f
		}
	}
	return best
}

// against returns the figure to compare with: of the best rival, or if there is none of the best ceiling; or nil.
func (r *result) against() *figure {
	for _, of := range []side{rival, ceiling} {
		if f := r.best(of); f != nil {
			return f
		}
	}
	return nil
}
