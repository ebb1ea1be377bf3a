package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// Figure is what became of a cell in all rounds.
type Figure struct {
	Side          Side
	Label         string
	Median        float64
	Least, Most   float64
	P50, P99      time.Duration // medians
	Asked, Failed int64         // sums
	FirstError    error
	Bytes, Allocs float64 // medians
	HasAllocs     bool
	Cost          Cost // medians
	HasCost       bool
	Exact         Exactness
	HasExact      bool
	Err           error // why there is no figure
}

// Result is what became of a comparison.
type Result struct {
	Comparison
	Figures []Figure
	Err     error // why there are none
}

// Plan says how often and how long to measure.
type Plan struct {
	Rounds   int
	Duration time.Duration // of a cell, in a round
	Progress func(text string)
}

// Run measures a comparison.
func Run(ctx context.Context, c Comparison, p Plan) Result {
	r := Result{Comparison: c}
	p.Progress(c.Name + ": getting ready")
	defer c.Shared.Done()
	cells, err := c.Cells(ctx)
	defer func() {
		for _, cell := range slices.Backward(cells) {
			if cell.Close != nil {
				cell.Close()
			}
		}
	}()
	if err != nil {
		r.Err = err
		return r
	}
	samples := make([][]Sample, len(cells))
	rounds := p.Rounds
	if c.Rounds > 0 {
		rounds = min(rounds, c.Rounds)
	}
	for round := range rounds {
		for i := range cells {
			if round%2 == 1 { // whom a cell comes after differs
				i = len(cells) - 1 - i
			}
			cell := &cells[i]
			if cell.Err != nil {
				continue
			}
			p.Progress(fmt.Sprintf("%s: round %d of %d, %s", c.Name, round+1, rounds, cell.Label()))
			s, err := measure(ctx, cell, max(p.Duration, c.Least))
			if err != nil {
				cell.Err = err
				continue
			}
			samples[i] = append(samples[i], s)
		}
	}
	for i := range cells {
		f := figure(&cells[i], samples[i])
		if cell := &cells[i]; cell.Err == nil && cell.Exact != nil {
			p.Progress(c.Name + ": counting, " + cell.Label())
			if f.Exact, err = cell.Exact(ctx, p.Duration); err != nil {
				f.Err = fmt.Errorf("counting: %w", err)
			} else {
				f.HasExact = f.Exact.Allowed > 0
			}
		}
		r.Figures = append(r.Figures, f)
	}
	return r
}

func measure(ctx context.Context, cell *Cell, d time.Duration) (Sample, error) {
	if err := ctx.Err(); err != nil {
		return Sample{}, err
	}
	before, client, known := readings(ctx, cell)
	s, err := cell.Measure(ctx, d)
	if after, now, still := readings(ctx, cell); err == nil && known && still && s.Decisions > 0 {
		s.Cost, s.HasCost = cost(before, after, now-client, s.Decisions), true
	}
	if err == nil && s.Value == 0 && s.Asked == s.Failed {
		err = errors.New("it has decided nothing")
		if s.FirstError != nil {
			err = fmt.Errorf("%w: %w", err, s.FirstError)
		}
	}
	return s, err
}

// readings returns what the servers and this process have spent so far.
func readings(ctx context.Context, cell *Cell) (r Reading, client time.Duration, ok bool) {
	if cell.Meter == nil {
		return r, 0, false
	}
	r, err := cell.Meter(ctx)
	return r, ownCPU(), err == nil
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func cost(before, after Reading, client time.Duration, decisions float64) Cost {
	c := Cost{Client: time.Duration(float64(client) / decisions), Server: -1, Log: -1, Calls: -1}
	if before.CPU >= 0 {
		c.Server = time.Duration(float64(after.CPU-before.CPU) / decisions)
	}
	if before.Log >= 0 {
		c.Log = float64(after.Log-before.Log) / decisions
	}
	if before.Calls >= 0 {
		c.Calls = float64(after.Calls-before.Calls) / decisions
	}
	return c
}

func figure(cell *Cell, samples []Sample) Figure {
	f := Figure{Side: cell.Side, Label: cell.Label(), Err: cell.Err}
	if cell.Err != nil || len(samples) == 0 {
		return f
	}
	f.Median = median(samples, func(s Sample) float64 { return s.Value })
	f.P50 = time.Duration(median(samples, func(s Sample) float64 { return float64(s.P50) }))
	f.P99 = time.Duration(median(samples, func(s Sample) float64 { return float64(s.P99) }))
	f.Bytes = median(samples, func(s Sample) float64 { return s.Bytes })
	f.Allocs = median(samples, func(s Sample) float64 { return s.Allocs })
	f.HasAllocs, f.HasCost = samples[0].HasAllocs, samples[0].HasCost
	f.Cost = Cost{
		Client: time.Duration(median(samples, func(s Sample) float64 { return float64(s.Cost.Client) })),
		Server: time.Duration(median(samples, func(s Sample) float64 { return float64(s.Cost.Server) })),
		Log:    median(samples, func(s Sample) float64 { return s.Cost.Log }),
		Calls:  median(samples, func(s Sample) float64 { return s.Cost.Calls }),
	}
	f.Least, f.Most = samples[0].Value, samples[0].Value
	for _, s := range samples {
		f.Least, f.Most = min(f.Least, s.Value), max(f.Most, s.Value)
		f.Asked += s.Asked
		f.Failed += s.Failed
		if f.FirstError == nil {
			f.FirstError = s.FirstError
		}
	}
	return f
}

func median(samples []Sample, of func(Sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// Best returns the best figure of a side, or nil.
func (r *Result) Best(side Side) *Figure {
	var best *Figure
	for i := range r.Figures {
		f := &r.Figures[i]
		if f.Side == side && f.Err == nil && (best == nil || r.better(f, best) > 1) {
			best = f
		}
	}
	return best
}

// Against returns the figure that Headgate's is held against: the best rival,
// or if there is none the best ceiling, or Headgate in another setting; or nil.
func (r *Result) Against() *Figure {
	for _, side := range []Side{Rival, Ceiling, Self} {
		if f := r.Best(side); f != nil {
			return f
		}
	}
	return nil
}

// Ratio returns how many times better Headgate is than what it is held
// against; 0 where one of them is missing.
func (r *Result) Ratio() float64 {
	ours, other := r.Best(Ours), r.Against()
	if ours == nil || other == nil {
		return 0
	}
	return r.better(ours, other)
}

// better returns how many times better a is than b.
func (r *Result) better(a, b *Figure) float64 {
	if r.Unit.Lower {
		a, b = b, a
	}
	if b.Median == 0 {
		return 0
	}
	return a.Median / b.Median
}
