package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/load"
)

// task has the calls of a worker. A worker is a process of its own, since most fleets are many processes with few
// callers each. Its parent writes JSON to its standard input, first a task and then orders, and reads a report for
// each. Another build that does the same can be measured in the same rounds: see the flag -before.
type task struct {
	Store    string   `json:"Field"` // name of the storeBench with Opponent
	Opponent string   `json:"Other"` // the opponent to call; empty: Headgate
	URL      string   // of the store, or of the opponents' database
	Name     string   // of the workload: the names of the limits begin with it
	Limits   []string // a request has a charge of each
	Keys     int      // how many users there are; 0: each request has a new key
	ID       bool     // each request has an id, and is settled at its cost afterwards; not for an opponent
	Callers  int
	Fill     bool // charge each key once, before the first order
}

// order is one run of a worker.
type order struct {
	For   time.Duration
	Audit string // if not empty: the first limit is auditLimit, and its keys have this prefix
}

// report is the answer to an order, or an empty one to a task.
type report struct {
	PerSecond, Decisions float64 // without and with the warm-up
	P50, P99, CPU        time.Duration
	Asked, Failed        int64 // requests without the warm-up, and those of them that failed
	Error                string
	Admitted             [auditKeys]int64
	Begin, End           time.Time // of the run, for an audit
}

// auditKeys is how many keys an audit uses: few, so that the callers can empty them.
const auditKeys = 2

// auditLimit returns a limit of the same algorithm, or a token bucket, that does refuse: ten windows or more an audit.
func auditLimit(notation string) headgate.Limit {
	switch headgate.MustParse(notation).Algorithm().(type) {
	case headgate.SlidingWindow:
		return headgate.MustParse("sliding-window 20/100ms")
	case headgate.SlidingLog:
		return headgate.MustParse("sliding-log 20/100ms")
	}
	return headgate.MustParse("token-bucket 200/s burst 20")
}

// usersPerKey is how many users share one key of each limit of a request: the limits of a user, a team, an
// organisation, a model, a region, and all.
var usersPerKey = [...]int{1, 10, 1000, 1, 100, 1 << 30}

// requestKeys returns the keys of a request by the n-th user, one for each limit.
func requestKeys(users []string, n, limits int) []string {
	keys := make([]string, limits)
	for i := range keys {
		keys[i] = users[n%max(1, len(users)/usersPerKey[i])]
	}
	return keys
}

// runWorker reads a task, then orders, until its input ends, and writes a report for each.
func runWorker() error {
	ctx := context.Background()
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var t task
	if err := in.Decode(&t); err != nil {
		return err
	}
	w := &worker{task: t, users: userKeys(t.Keys)}
	connect := w.openHeadgate
	if t.Opponent != "" {
		connect = w.openOpponent
	}
	stop, err := connect(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if t.Fill {
		if err := w.fill(ctx); err != nil {
			return err
		}
	}
	for {
		if err := out.Encode(w.lastReport); err != nil {
			return err
		}
		var o order
		switch err := in.Decode(&o); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		w.run(ctx, o)
	}
}

type worker struct {
	task
	limiter    *headgate.Limiter
	opponent   allowFunc[[]string] // called instead of limiter, if it is not nil
	limits     []headgate.Limit
	users      []string
	ids        atomic.Int64 // how many ids were used so far
	lastReport report
}

func (w *worker) openHeadgate(ctx context.Context) (stop func(), err error) {
	s, err := openStore(ctx, w.URL)
	if err != nil {
		return nil, err
	}
	w.limiter = headgate.New(s, nil)
	for i, notation := range w.Limits {
		w.limits = append(w.limits, headgate.MustParseNamed(fmt.Sprint(w.Name, "-", i), notation))
	}
	return func() { s.Close() }, nil
}

func (w *worker) openOpponent(ctx context.Context) (stop func(), err error) {
	for _, f := range (&bench{}).stores() {
		if f.name != w.Store {
			continue
		}
		opponents, stop, err := f.connectOpponents(ctx, w.URL)
		for i := range opponents {
			if opponents[i].name == w.Opponent {
				w.opponent = opponents[i].calls[w.Name]
			}
		}
		if w.opponent == nil {
			err = errors.Join(err, fmt.Errorf("%s has no %s for %s", w.Store, w.Opponent, w.Name))
		}
		return stop, err
	}
	return nil, fmt.Errorf("no field is named %s", w.Store)
}

func (w *worker) charges(limits []headgate.Limit, keys []string) []headgate.Charge {
	list := make([]headgate.Charge, len(limits))
	for i, key := range keys {
		list[i] = headgate.Charge{Limit: limits[i], Key: key}
	}
	return list
}

// fill makes a request of each user, 500 in a batch, so that every key has a cell.
func (w *worker) fill(ctx context.Context) error {
	for n := 0; n < len(w.users); n += 500 {
		list := make([]headgate.Request, min(500, len(w.users)-n))
		for i := range list {
			list[i].Charges = w.charges(w.limits, requestKeys(w.users, n+i, len(w.limits)))
		}
		answers, err := w.limiter.Batch(ctx, list)
		for _, a := range answers {
			err = errors.Join(err, a.Err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// request makes a request with limits, which may be other than the task's.
func (w *worker) request(ctx context.Context, limits []headgate.Limit, keys []string) (bool, error) {
	if w.opponent != nil {
		return w.opponent(ctx, keys)
	}
	if len(limits) == 1 && !w.ID {
		d, err := w.limiter.Allow(ctx, limits[0], keys[0])
		return d.Allowed, err
	}
	charges := w.charges(limits, keys)
	if !w.ID {
		d, err := w.limiter.Take(ctx, charges...)
		return d.Allowed, err
	}
	once := w.limiter.Once(fmt.Sprint("bench:", os.Getpid(), ":", w.ids.Add(1)), time.Minute)
	d, err := once.Take(ctx, charges...)
	if err != nil || !d.Allowed {
		return false, err
	}
	_, err = once.Settle(ctx, charges...)
	return true, err
}

// run carries out an order, and sets lastReport.
func (w *worker) run(ctx context.Context, o order) {
	limits, warmup := w.limits, o.For/5
	var counts [auditKeys]atomic.Int64
	if o.Audit != "" {
		limits, warmup = slices.Clone(w.limits), 0
		limits[0] = auditLimit(w.Limits[0])
	}
	cpu, begin := ownCPU(), time.Now()
	var calls atomic.Int64
	r := load.Run(ctx, load.Config{Clients: w.Callers, Duration: o.For, Warmup: warmup},
		func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
			calls.Add(1)
			var keys []string
			if len(w.users) == 0 {
				keys = slices.Repeat([]string{freshKey()}, len(w.Limits))
			} else {
				keys = requestKeys(w.users, rng.IntN(len(w.users)), len(w.Limits))
			}
			n := rng.IntN(auditKeys)
			if o.Audit != "" {
				keys[0] = fmt.Sprint(o.Audit, n)
			}
			allowed, err := w.request(ctx, limits, keys)
			if allowed {
				counts[n].Add(1)
			}
			return allowed, err
		})
	w.lastReport = report{
		PerSecond: r.PerSecond(), Decisions: float64(calls.Load()), P50: r.Quantile(0.5), P99: r.Quantile(0.99),
		CPU: ownCPU() - cpu, Asked: r.Allowed + r.Refused + r.Errors, Failed: r.Errors, Begin: begin, End: time.Now(),
	}
	for i := range counts {
		w.lastReport.Admitted[i] = counts[i].Load()
	}
	if r.FirstError != nil {
		w.lastReport.Error = r.FirstError.Error()
	}
}

type workerGroup struct {
	task
	processes []*workerProcess
}

// workerProcess is a worker, as its parent sees it.
type workerProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startWorkers starts processes of a program with a task; only the first one fills the keys. Empty: this program.
func startWorkers(ctx context.Context, program string, processes int, t task) (*workerGroup, error) {
	g := &workerGroup{task: t}
	if program == "" {
		var err error
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	for range processes {
		cmd := exec.CommandContext(context.WithoutCancel(ctx), program)
		cmd.Env, cmd.Stderr = append(os.Environ(), workerEnv+"=1"), os.Stderr
		in, errIn := cmd.StdinPipe()
		out, errOut := cmd.StdoutPipe()
		err := errors.Join(errIn, errOut)
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			g.close()
			return nil, err
		}
		p := &workerProcess{cmd, in, json.NewDecoder(bufio.NewReader(out))}
		g.processes = append(g.processes, p)
		if _, err := p.call(t); err != nil {
			g.close()
			return nil, fmt.Errorf("a worker: %w", err)
		}
		t.Fill = false
	}
	return g, nil
}

// call sends a task or an order, and waits for the answer.
func (p *workerProcess) call(v any) (r report, err error) {
	if err := json.NewEncoder(p.in).Encode(v); err != nil {
		return r, err
	}
	return r, p.out.Decode(&r)
}

func (g *workerGroup) close() {
	for _, p := range g.processes {
		_ = p.in.Close() // this ends the worker
		_ = p.cmd.Wait()
	}
}

// run gives all workers the same order at the same time.
func (g *workerGroup) run(o order) ([]report, error) {
	reports := make([]report, len(g.processes))
	var group errgroup.Group
	for i, p := range g.processes {
		group.Go(func() (err error) {
			reports[i], err = p.call(o)
			return err
		})
	}
	return reports, group.Wait()
}

// measure runs the workers for a time, and adds up their reports. Of latencies the worst counts.
func (g *workerGroup) measure(ctx context.Context, d time.Duration) (s sample, err error) {
	reports, err := g.run(order{For: d})
	var cpu time.Duration
	for i := range reports {
		r := &reports[i]
		s.value += r.PerSecond
		s.decisions += r.Decisions
		s.requests += r.Asked
		s.errors += r.Failed
		s.p50, s.p99, cpu = max(s.p50, r.P50), max(s.p99, r.P99), cpu+r.CPU
		if r.Error != "" && s.firstError == nil {
			s.firstError = errors.New(r.Error)
		}
	}
	s.workerCPU = float64(cpu.Nanoseconds()) / 1e3 / max(1, s.decisions)
	return s, errors.Join(err, ctx.Err())
}

// audit runs the workers with auditLimit, and compares what they admit with its bound.
func (g *workerGroup) audit(_ context.Context, d time.Duration) (e exactness, err error) {
	reports, err := g.run(order{For: max(d, 1100*time.Millisecond), Audit: freshKey()})
	if err != nil {
		return e, err
	}
	return computeExactness(reports, auditLimit(g.Limits[0]).Bound()), nil
}

// computeExactness compares, for each key of an audit, what all workers together have admitted with the bound.
func computeExactness(reports []report, bound headgate.Bound) (e exactness) {
	begin, end := reports[0].Begin, reports[0].End
	var admitted [auditKeys]float64
	for i := range reports {
		if reports[i].Begin.Before(begin) {
			begin = reports[i].Begin
		}
		if reports[i].End.After(end) {
			end = reports[i].End
		}
		for k, n := range reports[i].Admitted {
			admitted[k] += float64(n)
		}
	}
	allowed := bound.In(end.Sub(begin)).Float64()
	for _, n := range admitted {
		e.admitted += n
		e.allowed += allowed
		e.over += max(0, n-allowed)
	}
	return e
}
