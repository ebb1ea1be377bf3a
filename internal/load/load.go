// Package load measures latency and throughput with a closed loop of callers: each makes one call after another.
package load

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Config says how many clients call, and for how long.
type Config struct {
	Clients  int           // callers, each with one call under way; below 1: 1
	Duration time.Duration // time in which calls begin whose answers are counted
	Warmup   time.Duration // time before Duration, in which calls begin whose answers are not counted

	// Progress is called about four times a second, from the goroutine of Run, also during the warm-up. It may be nil.
	Progress func(Snapshot)
}

// Snapshot has the counts so far, without those of the warm-up.
type Snapshot struct {
	Elapsed   time.Duration // since the end of the warm-up; 0 during the warm-up
	Decisions int64         // answers without an error
	Errors    int64
}

// Call makes one call. client is 0..Clients-1; rng belongs to the client.
type Call func(ctx context.Context, client int, rng *rand.Rand) (allowed bool, err error)

// Result has the counts after the warm-up.
type Result struct {
	Elapsed    time.Duration // from the end of the warm-up to the last answer
	Allowed    int64
	Refused    int64
	Errors     int64
	FirstError error

	// Latency holds the latency of the decisions, but not of the errors, in nanoseconds, to 1 %. A call starts when the
	// answer to the previous call is there, so the time to choose the call is included.
	Latency *hdrhistogram.Histogram
}

// PerSecond returns the decisions without errors per second.
func (r Result) PerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Allowed+r.Refused) / r.Elapsed.Seconds()
}

// Quantile returns the latency that a fraction q, 0 to 1, of the decisions did not exceed; 0 if there are no decisions.
func (r Result) Quantile(q float64) time.Duration {
	if r.Latency == nil {
		return 0
	}
	return time.Duration(r.Latency.ValueAtQuantile(q * 100))
}

// The range of a histogram: 1 ns to an hour, to two digits, 36 KiB. A longer latency counts as an hour.
const (
	maxLatency        = int64(time.Hour)
	significantDigits = 2
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, maxLatency, significantDigits)
}

// Run calls until the time is over and the last answer is there. When ctx ends it returns the counts so far; calls that
// ctx interrupted are not counted as errors.
func Run(ctx context.Context, cfg Config, call Call) Result {
	clients := make([]*client, max(cfg.Clients, 1))
	seed := rand.Uint64()
	for i := range clients {
		clients[i] = &client{id: i, rng: rand.New(rand.NewPCG(seed, uint64(i))), latency: newHistogram()}
	}

	var done sync.WaitGroup
	start := time.Now()
	for _, c := range clients {
		done.Go(func() { c.run(ctx, start, cfg.Warmup, cfg.Warmup+cfg.Duration, call) })
	}
	if cfg.Progress != nil {
		finished := make(chan struct{})
		go func() {
			done.Wait()
			close(finished)
		}()
		reportProgress(finished, clients, start, &cfg)
	}
	done.Wait()

	r := Result{Latency: newHistogram()}
	var firstAt time.Duration
	for _, c := range clients {
		r.Elapsed = max(r.Elapsed, c.lastAt-cfg.Warmup)
		r.Allowed += c.allowed
		r.Refused += c.decisions.Load() - c.allowed
		r.Errors += c.errors.Load()
		if c.firstErr != nil && (r.FirstError == nil || c.firstErrAt < firstAt) {
			r.FirstError, firstAt = c.firstErr, c.firstErrAt
		}
		r.Latency.Merge(c.latency)
	}
	return r
}

// reportProgress calls Progress until the clients are through.
func reportProgress(finished <-chan struct{}, clients []*client, start time.Time, cfg *Config) {
	tick := time.NewTicker(time.Second / 4)
	defer tick.Stop()
	for {
		select {
		case <-finished:
			return
		case <-tick.C:
			s := Snapshot{Elapsed: max(0, time.Since(start)-cfg.Warmup)}
			for _, c := range clients {
				s.Decisions += c.decisions.Load()
				s.Errors += c.errors.Load()
			}
			cfg.Progress(s)
		}
	}
}

// client is one caller. While it runs, other goroutines read only the two atomic counters, which only it writes.
type client struct {
	id      int
	rng     *rand.Rand
	latency *hdrhistogram.Histogram

	allowed    int64
	lastAt     time.Duration // time of the last answer, since the start
	firstErr   error
	firstErrAt time.Duration

	_         [64]byte // clients share no cache line
	decisions atomic.Int64
	errors    atomic.Int64
	_         [64]byte
}

// run makes calls until end, and counts the answers to calls that began at countFrom or later. Both are durations since
// start. run reads the clock once for each call: the end of a call is the start of the next.
func (c *client) run(ctx context.Context, start time.Time, countFrom, end time.Duration, call Call) {
	for now := time.Since(start); now < end && ctx.Err() == nil; {
		begin := now
		allowed, err := call(ctx, c.id, c.rng)
		now = time.Since(start)
		switch {
		case begin < countFrom:
			continue
		case err != nil:
			if ctx.Err() != nil {
				return
			}
			if c.errors.Add(1) == 1 {
				c.firstErr, c.firstErrAt = err, now
			}
		default:
			if allowed {
				c.allowed++
			}
			c.decisions.Add(1)
			_ = c.latency.RecordValue(min(int64(now-begin), maxLatency)) // cannot fail: it is within the range
		}
		c.lastAt = now
	}
}
