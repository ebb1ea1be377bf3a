package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/headgate/headgate/bench/rivals"
)

// side is the kind of limiter that a cell measures.
type side int

const (
	headgateSide side = iota // Headgate: one cell of a comparison
	rivalSide                // another limiter; of several, the best counts
	ceilingSide              // a bare statement or arithmetic, without Headgate's code; the best of several counts
	baselineSide             // another build of Headgate
)

// comparison is a row of the table. Each round measures all cells of a comparison, so that other load on the machine
// affects all cells alike.
type comparison struct {
	name, title string
	cells       func(ctx context.Context) ([]cell, error)
}

// group is rows that share databases or other resources.
type group struct {
	rows    []comparison
	open    func() error // makes the resources, once; nil: there are none
	closers []func()     // free the resources, in reverse order
}

// database makes an empty database, which the group drops when it is closed.
func (g *group) database(ctx context.Context, create func(context.Context) (string, func(), error)) (string, error) {
	url, drop, err := create(ctx)
	if err == nil {
		g.closers = append(g.closers, drop)
	}
	return url, err
}

func (g *group) close() {
	for _, closer := range slices.Backward(g.closers) {
		closer()
	}
	g.closers = nil
}

// cell is one side of a comparison, at one setting.
type cell struct {
	side          side
	name, setting string // "redis_rate v10.0.1", "32 clients"
	program       string // the program of the workers; empty: this program
	measure       func(ctx context.Context, d time.Duration) (sample, error)
	audit         func(ctx context.Context, d time.Duration) (exactness, error) // nil: admissions are not counted
	close         func()                                                        // nil: there is nothing to free
	err           error                                                         // why the cell cannot be measured
}

// startWorkers returns the cell with workers that were started with a task, or with the error.
func (c cell) startWorkers(ctx context.Context, processes int, t task) cell {
	workers, err := startWorkers(ctx, c.program, processes, t)
	if c.err = err; err != nil {
		return c
	}
	c.measure, c.close = workers.measure, workers.close
	if c.side == headgateSide {
		c.audit = workers.audit
	}
	return c
}

func (c *cell) label() string {
	if c.setting == "" {
		return c.name
	}
	return c.name + ", " + c.setting
}

// sample is the result of a cell in a round.
type sample struct {
	value            float64       // decisions a second, without errors
	p50, p99         time.Duration // 0: not measured
	requests, errors int64
	firstError       error
	decisions        float64 // with the warm-up; 0: they were not counted, and their cost is not known

	// Microseconds of CPU for a decision: of worker processes, of all callers, and of the servers started here.
	workerCPU, clientCPU, serverCPU float64
}

// exactness compares the admitted cost with the cost that a limit allows.
type exactness struct {
	admitted, allowed float64
	over              float64 // the sum of the admissions of single keys above their bound
}

// figure is the result of a cell over all rounds: medians, but for requests and errors the sums.
type figure struct {
	sample
	side               side
	label              string
	minValue, maxValue float64
	exact              *exactness
	err                error // the reason why there is no figure
}

type result struct {
	comparison
	figures []figure
	err     error // the reason why there are no figures
}

// run opens the group, and measures a comparison in rounds and by audits.
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
			if round%2 == 1 { // the order of the cells alternates
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
		f := summarize(&cells[i], samples[i])
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

// measure measures a cell for a round, with the CPU that a decision costs.
func measure(ctx context.Context, c *cell, d time.Duration) (sample, error) {
	if err := ctx.Err(); err != nil {
		return sample{}, err
	}
	client, servers := ownCPU(), rivals.CPU()
	s, err := c.measure(ctx, d)
	if s.decisions > 0 {
		s.clientCPU = float64((ownCPU() - client).Nanoseconds()) / 1e3 / s.decisions
		s.serverCPU = max(0, float64((rivals.CPU()-servers).Nanoseconds())/1e3/s.decisions-s.workerCPU)
		if s.workerCPU > 0 {
			s.clientCPU = s.workerCPU
		}
	}
	if err == nil && s.requests == s.errors {
		err = errors.Join(errors.New("it has decided nothing"), s.firstError)
	}
	return s, err
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func summarize(c *cell, samples []sample) figure {
	f := figure{side: c.side, label: c.label(), err: c.err}
	if c.err != nil || len(samples) == 0 {
		return f
	}
	f.value = median(samples, func(s sample) float64 { return s.value })
	f.p50 = time.Duration(median(samples, func(s sample) float64 { return float64(s.p50) }))
	f.p99 = time.Duration(median(samples, func(s sample) float64 { return float64(s.p99) }))
	f.clientCPU = median(samples, func(s sample) float64 { return s.clientCPU })
	f.serverCPU = median(samples, func(s sample) float64 { return s.serverCPU })
	f.minValue, f.maxValue = samples[0].value, samples[0].value
	for _, s := range samples {
		f.minValue, f.maxValue = min(f.minValue, s.value), max(f.maxValue, s.value)
		f.requests += s.requests
		f.errors += s.errors
		f.firstError = cmp.Or(f.firstError, s.firstError)
	}
	return f
}

// median returns the median of a value of samples, of which there is at least one.
func median(samples []sample, value func(sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = value(s)
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// bestFigure returns the best figure of a side, or nil.
func (r *result) bestFigure(s side) *figure {
	var best *figure
	for i := range r.figures {
		if f := &r.figures[i]; f.side == s && f.err == nil && (best == nil || f.value > best.value) {
			best = f
		}
	}
	return best
}

// reference returns the figure to compare with: the best rival, or else the best ceiling, or nil.
func (r *result) reference() *figure {
	for _, s := range []side{rivalSide, ceilingSide} {
		if f := r.bestFigure(s); f != nil {
			return f
		}
	}
	return nil
}
