// Package chaos breaks real database servers while processes decide on them, and checks what was admitted against
// the bounds of the limits.
//
//	make chaos ENGINE="postgres mariadb" FOR=10m
//
// Four stacks of store/front, each behind a proxy of its own, ask about the same keys. Meanwhile one fault comes
// after the other: the server is killed, the network is cut or silent, answers get lost, sessions are ended.
// Every decision that a caller was told is kept with the time that the store decided for; at the end each key is
// checked. A charge without an answer is not counted as admitted, and may have been charged: that can refuse more,
// and never admits more.
package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// Engine is a kind of server.
type Engine struct {
	Name  string
	Start func(t *testing.T) *dbtest.Server
	URL   func(t *testing.T, s *dbtest.Server) string // of an empty database
	Open  func(ctx context.Context, url string) (store.Store, error)
	Kill  func(ctx context.Context, url string) error // ends the sessions of all others
}

// Report is what came of a run.
type Report struct {
	Engine                    string
	Decisions, Admitted, Over int
	Faults                    map[string]int
	First                     string        // of what was over the bound
	Unavailable               time.Duration // the longest time without any decision
	Recovery                  time.Duration // the longest time from the end of a fault to the first decision
}

// Row is a line of a table.
func (r *Report) Row() string {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, r.Faults[kind]))
	}
	return fmt.Sprintf("| %s | %d | %d | %s | %d | %.1f s | %.2f s |", r.Engine, r.Decisions, r.Admitted,
		strings.Join(kinds, ", "), r.Over, r.Unavailable.Seconds(), r.Recovery.Seconds())
}

// limits are those that are asked for.
var limits = []headgate.Limit{
	headgate.MustParse("token-bucket 5/s burst 5"), headgate.MustParse("fixed-window 20/5s"),
	headgate.MustParse("sliding-log 12/3s"), headgate.MustParse("sliding-window 12/3s"),
}

const (
	stacks  = 4
	callers = 4 // of each stack
	keys    = 3 // of each limit
)

// run is one run on one engine.
type run struct {
	engine  *Engine
	server  *dbtest.Server
	proxies []*dbtest.Swallower
	direct  string // URL without a proxy
	rng     *rand.Rand

	mu       sync.Mutex
	admitted map[string][]int64 // by limit and key: the times decided for
	report   Report
	last     time.Time // of a decision
	mended   time.Time // when the last fault ended, until the next decision
}

// Run breaks an engine for a time. The seed says in which order.
func Run(t *testing.T, e *Engine, lasts time.Duration, seed uint64) Report {
	t.Helper()
	r := &run{
		engine: e, server: e.Start(t), rng: rand.New(rand.NewPCG(seed, 0)), admitted: map[string][]int64{},
		report: Report{Engine: e.Name, Faults: map[string]int{}}, last: sched.Now(),
	}
	r.direct = e.URL(t, r.server)
	host := hostOf(r.direct)
	quiet := slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var asking sync.WaitGroup
	var fronts []*front.Store
	for range stacks {
		p := dbtest.Swallow(t, host)
		s, err := e.Open(ctx, strings.Replace(r.direct, host, p.Addr, 1))
		if err != nil {
			t.Fatal(err)
		}
		f := front.New(s, &front.Config{Logger: quiet, SweepEvery: time.Second})
		r.proxies, fronts = append(r.proxies, p), append(fronts, f)
		limiter := headgate.New(f, nil)
		for range callers {
			asking.Go(func() { r.ask(ctx, limiter) })
		}
	}
	for begin := sched.Now(); sched.Since(begin) < lasts; {
		r.breakOne(ctx, t)
	}
	time.Sleep(2 * time.Second) // it recovers
	stop()
	asking.Wait()
	for _, f := range fronts {
		f.Close()
	}
	r.check()
	return r.report
}

// ask asks until the context ends.
func (r *run) ask(ctx context.Context, l *headgate.Limiter) {
	for ctx.Err() == nil {
		limit, key := limits[rand.IntN(len(limits))], fmt.Sprint("k", rand.IntN(keys))
		d, err := l.Allow(ctx, limit, key)
		now := sched.Now()
		r.mu.Lock()
		if err == nil && d.Via == headgate.ViaStore {
			r.report.Decisions++
			r.report.Unavailable = max(r.report.Unavailable, now.Sub(r.last))
			if r.last = now; !r.mended.IsZero() {
				r.report.Recovery = max(r.report.Recovery, now.Sub(r.mended))
				r.mended = time.Time{}
			}
			if d.Allowed {
				r.report.Admitted++
				name := limit.Name() + " " + key
				r.admitted[name] = append(r.admitted[name], d.At.UnixMicro())
			}
		}
		r.mu.Unlock()
		if err != nil || d.Via != headgate.ViaStore {
			time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
		}
	}
}

// breakOne brings about one fault, and mends it.
func (r *run) breakOne(ctx context.Context, t *testing.T) {
	one := r.proxies[r.rng.IntN(len(r.proxies))]
	some := []*dbtest.Swallower{one}
	if r.rng.IntN(3) == 0 {
		some = r.proxies
	}
	each := func(do func(*dbtest.Swallower)) {
		for _, p := range some {
			do(p)
		}
	}
	pause := func(most int) { time.Sleep(time.Duration(r.rng.IntN(most)) * time.Millisecond) }
	var kind string
	switch n := r.rng.IntN(10); {
	case n == 0:
		kind = "killed"
		r.server.Crash()
		pause(500)
		if err := r.server.Restart(ctx); err != nil {
			t.Fatalf("%s does not come back: %v", r.engine.Name, err)
		}
	case n <= 2:
		kind = "cut"
		each(func(p *dbtest.Swallower) { p.Cut(true) })
		pause(800)
		each(func(p *dbtest.Swallower) { p.Cut(false) })
	case n <= 4:
		kind = "silent"
		each(func(p *dbtest.Swallower) { p.Silence(true) })
		pause(1500)
		each(func(p *dbtest.Swallower) { p.Silence(false) })
	case n <= 7:
		kind = "answers lost"
		each(func(p *dbtest.Swallower) { p.Lose(true) })
		pause(300)
		each(func(p *dbtest.Swallower) { p.Lose(false) })
	default:
		kind = "sessions ended"
		if err := r.engine.Kill(ctx, r.direct); err != nil && ctx.Err() == nil {
			t.Logf("%s: sessions are not ended: %v", r.engine.Name, err)
			return
		}
	}
	r.mu.Lock()
	r.report.Faults[kind]++
	r.mended = sched.Now()
	r.mu.Unlock()
	pause(600)
}

// check compares what each key was admitted with the bound of its limit, over every interval between two of its
// decisions.
func (r *run) check() {
	for name, times := range r.admitted {
		slices.Sort(times)
		notation := name[:strings.LastIndexByte(name, ' ')]
		bound := headgate.MustParse(notation).Bound()
		for i := range times {
			for j := i; j < len(times) && times[j]-times[i] <= (12*time.Second).Microseconds(); j++ {
				most := bound.In(time.Duration(times[j]-times[i]) * time.Microsecond).Float64()
				if float64(j-i+1) > most {
					if r.report.Over++; r.report.Over == 1 {
						r.report.First = fmt.Sprintf("%s: %d admitted within %d us, at most %v", name, j-i+1,
							times[j]-times[i], most)
					}
				}
			}
		}
	}
}

// hostOf returns the host and port of a URL.
func hostOf(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	rest, _, _ = strings.Cut(rest, "?")
	rest, _, _ = strings.Cut(rest, "/")
	return rest[strings.LastIndexByte(rest, '@')+1:]
}
