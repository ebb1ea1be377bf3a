// Package chaos breaks real database servers while limiters use them, and checks the decisions.
//
//	make chaos ENGINE="postgres galera" FOR=10m
//
// Four stacks take from the same keys, while one fault follows another. Each has proxies of its own, unless clients
// learn the addresses of servers. A history of each key is recorded in the format of the simulator, and package check
// judges it by the simulator's rules: over any interval, no key is admitted more than the bound of its limit; refusals
// fit what can have been charged; figures fit the level; and what is in use at the end fits what was admitted.
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

// Engine is a kind of server or cluster.
type Engine struct {
	Name  string
	Start func(t *testing.T) *System
}

// System is a running engine.
type System struct {
	// URL is the URL of an empty database.
	URL string
	// Hosts are the hosts in URL that each stack reaches through a proxy of its own. Empty: clients learn addresses
	// from the servers.
	Hosts []string
	// Open opens a stack at a URL.
	Open func(ctx context.Context, url string) (*Stack, error)
	// Faults are the faults of the engine. If there are proxies, faults of the network are added.
	Faults []Fault
}

// Stack is a limiter under test.
type Stack struct {
	record.Limiter
	Node  string // the process that repeats refusals, which stacks may share; empty: one for this stack
	Close func()
}

// Fault is something that is done to a system.
type Fault struct {
	Name   string
	Weight int // how often the fault comes, compared with others
	// Do causes the fault, and ends it.
	Do func(ctx context.Context, rng *rand.Rand) error
	// Forgets is how long before the fault decisions may be lost, as the engine documents. 0: none are lost.
	Forgets time.Duration
	// Shift, instead of Do, sets the server's wall clock ahead of the machine's.
	Shift func(ahead time.Duration)
}

// Report is the result of a run.
type Report struct {
	Engine         string
	record.Answers // counts the store's decisions only: no repeated refusals, and no errors
	Violations     int
	Faults         map[string]int // counts by the names of faults
	FirstViolation string
	History        *history.History // of the key of FirstViolation
	Recovery       time.Duration    // the longest time from the end of a fault to the first decision
}

// Row returns a line of a table.
func (r *Report) Row() string {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, r.Faults[kind]))
	}
	return fmt.Sprintf("| %s | %d | %d | %d: %s | %d | %.1f s | %.2f s |", r.Engine, r.Allowed+r.Refused, r.Allowed,
		r.FaultCount(), strings.Join(kinds, ", "), r.Violations, r.Gap.Seconds(), r.Recovery.Seconds())
}

func (r *Report) FaultCount() (n int) {
	for _, count := range r.Faults {
		n += count
	}
	return n
}

// limits are the limits that callers charge: in the format of histories, by their notation.
var limits = map[string]history.Limit{
	"token-bucket 5/s burst 5": {Algorithm: history.TokenBucket, Amount: "5", Burst: "5", Period: 1e6},
	"fixed-window 20/5s":       {Algorithm: history.FixedWindow, Amount: "20", Period: 5e6},
	"sliding-log 12/3s":        {Algorithm: history.SlidingLog, Amount: "12", Period: 3e6},
	"sliding-window 12/3s":     {Algorithm: history.SlidingWindow, Amount: "12", Period: 3e6},
}

const (
	stackCount      = 4
	callersPerStack = 4
	keysPerLimit    = 3                // at a time
	keyLife         = 20 * time.Second // then other keys are charged, so that the history of a key stays short
	callTimeout     = 10 * time.Second
	unknownFor      = 30 * time.Second // a call with an unknown outcome ends by then: longer than any fault
)

type run struct {
	system  *System
	stacks  []*Stack
	proxies [][]*dbtest.Proxy // by stack and host
	rng     *rand.Rand
	begin   time.Time

	mu       sync.Mutex
	askers   map[string]*record.Asker
	report   Report
	faultEnd time.Time // when the latest fault ended; zero after the next decision
}

// Run breaks an engine for a time, with faults in an order by the seed, and reports what the checker finds.
func Run(t *testing.T, e *Engine, duration time.Duration, seed uint64) Report {
	t.Helper()
	r := &run{
		system: e.Start(t), rng: rand.New(rand.NewPCG(seed, 0)), askers: map[string]*record.Asker{},
		report: Report{Engine: e.Name, Faults: map[string]int{}, Answers: record.Answers{Last: sched.Now()}},
		begin:  sched.Now(),
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r.open(ctx, t)
	var running sync.WaitGroup
	for i, s := range r.stacks {
		for range callersPerStack {
			running.Go(func() { r.takeUntilDone(ctx, cmp.Or(s.Node, fmt.Sprint("stack", i)), s) })
		}
	}
	var faults []Fault // each as often as its weight
	for _, f := range slices.Concat(r.system.Faults, r.networkFaults()) {
		faults = append(faults, slices.Repeat([]Fault{f}, f.Weight)...)
	}
	for begin := sched.Now(); sched.Since(begin) < duration; {
		if err := r.breakOnce(ctx, faults); err != nil { // decisions until now are still checked
			t.Error(err)
			break
		}
	}
	time.Sleep(2 * time.Second) // the system recovers
	stop()
	running.Wait()
	r.recordFinalStates(t)
	for _, s := range r.stacks {
		s.Close()
	}
	r.check()
	return r.report
}

// open opens the stacks, each with a proxy of its own for each of the system's Hosts.
func (r *run) open(ctx context.Context, t *testing.T) {
	t.Helper()
	for range stackCount {
		url := r.system.URL
		var proxies []*dbtest.Proxy
		for _, host := range r.system.Hosts {
			p := dbtest.StartProxy(t, host)
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

// asker returns the asker of a random limit and of a random key of the present keys.
func (r *run) asker() *record.Asker {
	names := slices.Sorted(maps.Keys(limits))
	limit := names[rand.IntN(len(names))]
	key := fmt.Sprintf("%d-%d", sched.Since(r.begin)/keyLife, rand.IntN(keysPerLimit))
	r.mu.Lock()
	defer r.mu.Unlock()
	name := limit + " " + key
	a := r.askers[name]
	if a == nil {
		a = record.NewAsker(headgate.MustParse(limit), key, limits[limit])
		a.Recorder.UnknownFor = unknownFor
		a.Recorder.Fault("store", history.Fault{Kind: history.EarlyClock})
		r.askers[name] = a
	}
	return a
}

// takeUntilDone takes units of random keys through a stack until the context ends.
func (r *run) takeUntilDone(ctx context.Context, node string, s *Stack) {
	for ctx.Err() == nil {
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		d, err := r.asker().Allow(callCtx, node, s)
		cancel()
		r.mu.Lock()
		if err == nil && d.Via == headgate.ViaStore {
			_ = r.report.Add(d, nil)
			if !r.faultEnd.IsZero() {
				r.report.Recovery = max(r.report.Recovery, r.report.Last.Sub(r.faultEnd))
				r.faultEnd = time.Time{}
			}
		}
		r.mu.Unlock()
		if err != nil || d.Via != headgate.ViaStore {
			time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
		}
	}
}

// breakOnce causes a random fault, and ends it. It returns an error if one of these failed.
func (r *run) breakOnce(ctx context.Context, faults []Fault) error {
	f := &faults[r.rng.IntN(len(faults))]
	do, begin := f.Do, sched.Now()
	if f.Shift != nil {
		do = r.clockFault(f.Shift)
	}
	r.recordFault(history.Fault{Kind: f.Name})
	err := do(ctx, r.rng)
	switch {
	case err == nil:
		r.recordEnd(f, begin)
	case !errors.Is(err, ErrNothingBroken) && ctx.Err() == nil:
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}

// recordEnd records that a fault is over, and lets the engine run without faults for a moment.
func (r *run) recordEnd(f *Fault, begin time.Time) {
	if f.Forgets > 0 {
		r.recordLoss(begin, f.Forgets)
	}
	r.mu.Lock()
	r.report.Faults[f.Name]++
	r.faultEnd = sched.Now()
	r.mu.Unlock()
	Pause(r.rng, 600*time.Millisecond)
}

// ErrNothingBroken means that a fault could not be caused, which is no failure of the run.
var ErrNothingBroken = errors.New("nothing was broken")

// clockFault returns a fault that moves the clock forward or back, and then resets it.
func (r *run) clockFault(shift func(time.Duration)) func(context.Context, *rand.Rand) error {
	return func(_ context.Context, rng *rand.Rand) error {
		ahead := time.Duration(rng.Int64N(int64(10*time.Second))) - 5*time.Second
		r.recordFault(history.Fault{Kind: history.Clock, By: ahead.Microseconds()})
		shift(ahead)
		Pause(rng, 2*time.Second)
		r.recordFault(history.Fault{Kind: history.Clock, By: -ahead.Microseconds()})
		shift(0)
		return nil
	}
}

// recordFault records a fault in the histories of all keys so far. Call it before the fault takes effect.
func (r *run) recordFault(f history.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.askers {
		a.Recorder.Fault("store", f)
	}
}

// recordLoss records in the histories of all keys that a fault, which is over now, may have lost decisions that were
// made after it began, or within lostTime before.
func (r *run) recordLoss(begin time.Time, lostTime time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	duration := sched.Since(begin)
	for _, a := range r.askers {
		a.Recorder.Fault("store", history.Fault{
			Kind: history.Forget, By: duration.Microseconds() + 1,
			Since: max(0, int64(a.Recorder.Now()-duration-lostTime)),
		})
	}
}

// recordFinalStates records the states of the present keys.
func (r *run) recordFinalStates(t *testing.T) {
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
		if r.report.Violations += len(found); len(found) > 0 && r.report.FirstViolation == "" {
			r.report.FirstViolation, r.report.History = found[0].String(), a.Recorder.History()
		}
	}
}

// Pause sleeps for a random time below maxPause.
func Pause(rng *rand.Rand, maxPause time.Duration) {
	time.Sleep(time.Duration(rng.Int64N(int64(maxPause))))
}

// networkFaults returns the faults of the network between stacks and servers.
func (r *run) networkFaults() []Fault {
	if len(r.system.Hosts) == 0 {
		return nil
	}
	faultBy := func(set func(*dbtest.Proxy, bool), maxPause time.Duration) func(context.Context, *rand.Rand) error {
		return func(_ context.Context, rng *rand.Rand) error {
			proxies := r.randomProxies(rng)
			for _, p := range proxies {
				set(p, true)
			}
			Pause(rng, maxPause)
			for _, p := range proxies {
				set(p, false)
			}
			return nil
		}
	}
	return []Fault{
		{Name: "cut", Weight: 2, Do: faultBy((*dbtest.Proxy).Cut, 800*time.Millisecond)},
		{Name: "silent", Weight: 2, Do: faultBy((*dbtest.Proxy).Silence, 1500*time.Millisecond)},
		{Name: "answers lost", Weight: 3, Do: faultBy((*dbtest.Proxy).Lose, 300*time.Millisecond)},
	}
}

// randomProxies returns the proxies of one stack, of all stacks, or of one host.
func (r *run) randomProxies(rng *rand.Rand) (list []*dbtest.Proxy) {
	stack, host := rng.IntN(stackCount), rng.IntN(len(r.system.Hosts))
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
