// Package chaos breaks real database servers while processes decide on them, and judges what they decided.
//
//	make chaos ENGINE="postgres galera" FOR=10m
//
// Four stacks, each behind proxies of its own, ask about the same keys. Meanwhile one fault comes after the
// other. Every question and answer is kept in the history format of the simulator, for each key, and package
// check judges it by the rules that it has for simulations: no key is admitted more than the bound of its
// limit over any interval; a refusal has a reason in what can have been charged; the figures are those of the
// level; and what is in use at the end is what was admitted. So what a real server shows is what the
// simulator's model of a store allows.
package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/history/record"
	"github.com/headgate/headgate/internal/testing/sim/check"
	"github.com/headgate/headgate/store"
)

// Engine is a kind of server, or of a cluster.
type Engine struct {
	Name  string
	Start func(t *testing.T) *System
}

// System is an engine that runs.
type System struct {
	// URL is of an empty database.
	URL string
	// Hosts are those of the URL that each stack reaches through a proxy of its own. A client that learns of other
	// addresses by the server itself has none.
	Hosts []string
	// Open opens a stack at a URL.
	Open func(ctx context.Context, url string) (*Stack, error)
	// Faults are those of the engine. Those of the network are added where there are proxies.
	Faults []Fault
}

// Stack is a limiter under test.
type Stack struct {
	record.Limiter
	Node  string // the process that repeats refusals, which stacks may share; empty: its own
	Close func()
}

// Fault is something that is done to a system.
type Fault struct {
	Name   string
	Weight int // how often it comes beside others
	// Do brings the fault about, and mends it.
	Do func(ctx context.Context, rng *rand.Rand) error
	// Forgets says that the fault may lose what was decided so long before it, as documented of the engine. 0: it
	// loses nothing.
	Forgets time.Duration
	// Shift, in the place of Do, sets the calendar's clock of the server to so much after that of the machine.
	Shift func(ahead time.Duration)
}

// Report is the result of a run.
type Report struct {
	Engine         string
	record.Answers // of the store alone, not repeated refusals
	Over           int
	Faults         map[string]int
	First          string           // of what is not as it should be
	History        *history.History // of the key that First is about
	Recovery       time.Duration    // the longest time from the end of a fault to the first decision
}

// Row returns a line of a table.
func (r *Report) Row() string {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, r.Faults[kind]))
	}
	return fmt.Sprintf("| %s | %d | %d | %d: %s | %d | %.1f s | %.2f s |", r.Engine, r.Allowed+r.Refused, r.Allowed,
		r.Count(), strings.Join(kinds, ", "), r.Over, r.Gap.Seconds(), r.Recovery.Seconds())
}

func (r *Report) Count() (n int) {
	for _, of := range r.Faults {
		n += of
	}
	return n
}

// limits are those that are requested, as histories know them.
var limits = map[string]history.Limit{
	"token-bucket 5/s burst 5": {Algorithm: history.TokenBucket, Amount: "5", Burst: "5", Period: 1e6},
	"fixed-window 20/5s":       {Algorithm: history.FixedWindow, Amount: "20", Period: 5e6},
	"sliding-log 12/3s":        {Algorithm: history.SlidingLog, Amount: "12", Period: 3e6},
	"sliding-window 12/3s":     {Algorithm: history.SlidingWindow, Amount: "12", Period: 3e6},
}

const (
	stacks   = 4
	callers  = 4                // of each stack
	keys     = 3                // of each limit at a time
	keyLife  = 20 * time.Second // then others are requested: a history of one key stays short
	patience = 10 * time.Second // of a caller
	// unknownFor is how long a question whose answer got lost may still be under way: longer than
	// any fault.
	unknownFor = 30 * time.Second
)

type run struct {
	system  *System
	stacks  []*Stack
	proxies [][]*dbtest.Swallower // of each stack, for each host
	rng     *rand.Rand
	begin   time.Time

	mu     sync.Mutex
	askers map[string]*record.Asker
	report Report
	mended time.Time // when the last fault ended, until the next decision
}

// Run breaks an engine for a time. The seed says in which order.
func Run(t *testing.T, e *Engine, lasts time.Duration, seed uint64) Report {
	t.Helper()
	r := &run{
		system: e.Start(t), rng: rand.New(rand.NewPCG(seed, 0)), askers: map[string]*record.Asker{},
		report: Report{Engine: e.Name, Faults: map[string]int{}, Answers: record.Answers{Last: sched.Now()}},
		begin:  sched.Now(),
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r.open(ctx, t)
	var asking sync.WaitGroup
	for i, s := range r.stacks {
		for range callers {
			asking.Go(func() { r.ask(ctx, cmp.Or(s.Node, fmt.Sprint("stack", i)), s) })
		}
	}
	var faults []Fault // each as often as it comes
	for _, f := range slices.Concat(r.system.Faults, r.network()) {
		faults = append(faults, slices.Repeat([]Fault{f}, f.Weight)...)
	}
	for begin := sched.Now(); sched.Since(begin) < lasts; {
		if err := r.breakOne(ctx, faults); err != nil { // what was decided until now is still judged
			t.Error(err)
			break
		}
	}
	time.Sleep(2 * time.Second) // it recovers
	stop()
	asking.Wait()
	r.finish(t)
	for _, s := range r.stacks {
		s.Close()
	}
	r.check()
	return r.report
}

// open opens the stacks, each behind proxies of its own.
func (r *run) open(ctx context.Context, t *testing.T) {
	t.Helper()
	for range stacks {
		url := r.system.URL
		var proxies []*dbtest.Swallower
		for _, host := range r.system.Hosts {
			p := dbtest.Swallow(t, host)
			url = strings.Replace(url, host, p.Addr, 1)
			proxies = append(proxies, p)
		}
		s, err := r.system.Open(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		r.stacks, r.proxies = append(r.stacks, s), append(r.proxies, proxies)
	}
}

// asker returns the asker of some key that is in use now.
func (r *run) asker() *record.Asker {
	names := slices.Sorted(maps.Keys(limits))
	limit, key := names[rand.IntN(len(names))], fmt.Sprintf("%d-%d", sched.Since(r.begin)/keyLife, rand.IntN(keys))
	r.mu.Lock()
	defer r.mu.Unlock()
	name := limit + " " + key
	a := r.askers[name]
	if a == nil {
		a = record.NewAsker(headgate.MustParse(limit), key, limits[limit])
		a.Recorder.UnknownFor = unknownFor
		a.Recorder.Fault("store", history.Fault{Kind: history.Early})
		r.askers[name] = a
	}
	return a
}

// ask takes until the context ends.
func (r *run) ask(ctx context.Context, node string, s *Stack) {
	for ctx.Err() == nil {
		of, cancel := context.WithTimeout(ctx, patience)
		d, err := r.asker().Allow(of, node, s)
		cancel()
		r.mu.Lock()
		if err == nil && d.Via == headgate.ViaStore {
			_ = r.report.Add(d, nil)
			if !r.mended.IsZero() {
				r.report.Recovery = max(r.report.Recovery, r.report.Last.Sub(r.mended))
				r.mended = time.Time{}
			}
		}
		r.mu.Unlock()
		if err != nil || d.Via != headgate.ViaStore {
			time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
		}
	}
}

// breakOne brings about one of the faults, and mends it. The error is that the engine could not be mended.
func (r *run) breakOne(ctx context.Context, faults []Fault) error {
	f := &faults[r.rng.IntN(len(faults))]
	do, begin := f.Do, sched.Now()
	if f.Shift != nil {
		do = r.jump(f.Shift)
	}
	r.fault(history.Fault{Kind: f.Name})
	err := do(ctx, r.rng)
	switch {
	case err == nil:
		r.done(f, begin)
	case !errors.Is(err, ErrNothing) && ctx.Err() == nil:
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}

// done notes a fault that began at a time and is over, and gives the engine some time without one.
func (r *run) done(f *Fault, begin time.Time) {
	if f.Forgets > 0 {
		r.forgot(begin, f.Forgets)
	}
	r.mu.Lock()
	r.report.Faults[f.Name]++
	r.mended = sched.Now()
	r.mu.Unlock()
	Pause(r.rng, 600*time.Millisecond)
}

// ErrNothing means that a fault could not be caused this time.
var ErrNothing = errors.New("nothing was broken")

// jump returns a fault that moves the clock forward or back, and to its time again.
func (r *run) jump(shift func(time.Duration)) func(context.Context, *rand.Rand) error {
	return func(_ context.Context, rng *rand.Rand) error {
		ahead := time.Duration(rng.Int64N(int64(10*time.Second))) - 5*time.Second
		r.fault(history.Fault{Kind: history.Clock, By: ahead.Microseconds()})
		shift(ahead)
		Pause(rng, 2*time.Second)
		r.fault(history.Fault{Kind: history.Clock, By: -ahead.Microseconds()})
		shift(0)
		return nil
	}
}

// fault notes a fault in the histories of all keys, before it takes effect.
func (r *run) fault(f history.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.askers {
		a.Recorder.Fault("store", f)
	}
}

// forgot notes in the histories of all keys that a fault, which is over now, may have lost what was decided since
// it began, and some time before.
func (r *run) forgot(begin time.Time, before time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lasted := sched.Since(begin)
	for _, a := range r.askers {
		a.Recorder.Fault("store", history.Fault{
			Kind: history.Forget, By: lasted.Microseconds() + 1,
			Since: max(0, int64(a.Recorder.Now()-lasted-before)),
		})
	}
}

// finish notes what is in use of the keys that were requested last.
func (r *run) finish(t *testing.T) {
	t.Helper()
	epoch := sched.Since(r.begin) / keyLife
	for _, a := range r.askers {
		if !strings.HasPrefix(a.Key, fmt.Sprint(epoch, "-")) {
			continue
		}
		var err error
		for deadline := sched.Now().Add(time.Minute); sched.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			if _, err = a.RecordFinalState(t.Context(), r.stacks[0]); err == nil || store.Class(err) == nil {
				break
			}
		}
		if err != nil {
			t.Errorf("%v %s at the end: %v", a.Limit, a.Key, err)
		}
	}
}

func (r *run) check() {
	for _, a := range r.askers {
		found := check.Check(a.Recorder.History())
		if r.report.Over += len(found); len(found) > 0 && r.report.First == "" {
			r.report.First, r.report.History = found[0].String(), a.Recorder.History()
		}
	}
}

func Pause(rng *rand.Rand, most time.Duration) { time.Sleep(time.Duration(rng.Int64N(int64(most)))) }

// network returns the faults of the network between stacks and servers.
func (r *run) network() []Fault {
	if len(r.system.Hosts) == 0 {
		return nil
	}
	of := func(set func(*dbtest.Swallower, bool), most time.Duration) func(context.Context, *rand.Rand) error {
		return func(_ context.Context, rng *rand.Rand) error {
			some := r.some(rng)
			for _, p := range some {
				set(p, true)
			}
			Pause(rng, most)
			for _, p := range some {
				set(p, false)
			}
			return nil
		}
	}
	return []Fault{
		{Name: "cut", Weight: 2, Do: of((*dbtest.Swallower).Cut, 800*time.Millisecond)},
		{Name: "silent", Weight: 2, Do: of((*dbtest.Swallower).Silence, 1500*time.Millisecond)},
		{Name: "answers lost", Weight: 3, Do: of((*dbtest.Swallower).Lose, 300*time.Millisecond)},
	}
}

// some returns the proxies of one stack, of all stacks, or all of those before one host.
func (r *run) some(rng *rand.Rand) (list []*dbtest.Swallower) {
	stack, host := rng.IntN(stacks), rng.IntN(len(r.system.Hosts))
	kind := rng.IntN(6)
	for i, proxies := range r.proxies {
		for j, p := range proxies {
			if kind < 3 && i == stack || kind == 3 || kind > 3 && j == host {
				list = append(list, p)
			}
		}
	}
	return list
}
