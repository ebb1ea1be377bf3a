package compare

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/load"
)

// Callers measures a closed loop of callers: decisions in a second.
func Callers(clients int, ask load.Ask) func(context.Context, time.Duration) (Sample, error) {
	return Weighted(clients, 1, ask)
}

// Weighted is Callers for questions that are so many decisions each.
func Weighted(clients, decisions int, ask load.Ask) func(context.Context, time.Duration) (Sample, error) {
	return func(ctx context.Context, d time.Duration) (Sample, error) {
		all := make([]struct {
			n int64
			_ [56]byte // callers share no cache line
		}, clients)
		r := load.Run(ctx, load.Config{Clients: clients, Duration: d, Warmup: d / 5},
			func(ctx context.Context, client int, rng *rand.Rand) (bool, error) {
				all[client].n++
				return ask(ctx, client, rng)
			})
		s := Sample{
			Value: r.PerSecond() * float64(decisions),
			P50:   r.Quantile(0.5), P99: r.Quantile(0.99),
			Asked: r.Allowed + r.Refused + r.Errors, Failed: r.Errors, FirstError: r.FirstError,
		}
		for i := range all {
			s.Decisions += float64(all[i].n * int64(decisions))
		}
		return s, ctx.Err()
	}
}

// InProcess is Callers for what takes less time than a look at the clock: each caller looks
// once in 128 questions, and no latency is known.
func InProcess(callers int, ask load.Ask) func(context.Context, time.Duration) (Sample, error) {
	return func(ctx context.Context, d time.Duration) (Sample, error) {
		_, _, _ = crowd(ctx, callers, d/5, ask)
		asked, took, err := crowd(ctx, callers, d, ask)
		if err != nil {
			return Sample{}, err
		}
		return Sample{Value: float64(asked) / took.Seconds(), Asked: asked}, ctx.Err()
	}
}

// crowd asks until the time is over or something fails.
func crowd(ctx context.Context, callers int, d time.Duration, ask load.Ask) (
	asked int64, took time.Duration, err error,
) {
	var done sync.WaitGroup
	var all atomic.Int64
	var failed atomic.Pointer[error]
	begin := time.Now()
	for c := range callers {
		done.Go(func() {
			rng := rand.New(rand.NewPCG(rand.Uint64(), uint64(c)))
			for time.Since(begin) < d && failed.Load() == nil {
				for range chunk {
					if _, err := ask(ctx, c, rng); err != nil {
						failed.Store(&err)
						return
					}
				}
				all.Add(chunk)
			}
		})
	}
	done.Wait()
	if p := failed.Load(); p != nil {
		err = *p
	}
	return all.Load(), time.Since(begin), err
}

// Bucket counts what callers get out of a bucket that was full at the first
// question: at most burst, and refill a second.
func Bucket(clients int, refill, burst float64, ask load.Ask) func(context.Context, time.Duration) (Exactness, error) {
	return func(ctx context.Context, d time.Duration) (Exactness, error) {
		begin := time.Now()
		r := load.Run(ctx, load.Config{Clients: clients, Duration: max(3*d, time.Second)}, ask)
		e := Exactness{Admitted: float64(r.Allowed), Allowed: burst + refill*time.Since(begin).Seconds()}
		e.Over = max(0, math.Ceil(e.Admitted-e.Allowed))
		return e, allFailed(r)
	}
}

// Audit counts what callers get out of the buckets of several keys, each full at the first
// question, with burst in it and refill a second. ask returns the numbers of the keys that
// were charged one unit each, of so many keys; none if it was refused. A call that failed may
// have charged: the count is then of what was told.
func Audit(clients, keys int, refill, burst float64, ask func(ctx context.Context, client int, rng *rand.Rand) ([]int,
	error),
) func(context.Context, time.Duration) (Exactness, error) {
	return func(ctx context.Context, d time.Duration) (Exactness, error) {
		counts := make([]atomic.Int64, keys)
		begin := time.Now()
		r := load.Run(ctx, load.Config{Clients: clients, Duration: max(d, 300*time.Millisecond)},
			func(ctx context.Context, client int, rng *rand.Rand) (bool, error) {
				charged, err := ask(ctx, client, rng)
				for _, i := range charged {
					counts[i].Add(1)
				}
				return len(charged) > 0, err
			})
		bound := burst + refill*time.Since(begin).Seconds()
		e := Exactness{Allowed: bound * float64(keys)}
		for i := range counts {
			n := float64(counts[i].Load())
			e.Admitted += n
			e.Over += max(0, math.Ceil(n-bound))
		}
		return e, allFailed(r)
	}
}

// Fixed counts what callers get out of a limit that lets so many pass, and no
// more for a while.
func Fixed(clients int, allowed float64, ask load.Ask) func(context.Context, time.Duration) (Exactness, error) {
	return func(ctx context.Context, d time.Duration) (Exactness, error) {
		r := load.Run(ctx, load.Config{Clients: clients, Duration: max(3*d, time.Second)}, ask)
		return Exactness{
			Admitted: float64(r.Allowed), Allowed: allowed,
			Over: max(0, float64(r.Allowed)-allowed),
		}, allFailed(r)
	}
}

// allFailed returns the first error of callers of which none got an answer.
func allFailed(r load.Result) error {
	if r.Allowed+r.Refused == 0 {
		return r.FirstError
	}
	return nil
}

// Decide decides about a key, and says whether the answer was the right one.
type Decide func(key string) bool

// chunk is how many decisions are made between two looks at the clock.
const chunk = 128

// Parallel measures decisions within this process, by as many goroutines as
// Go uses processors, over keys in random order: nanoseconds of wall time.
func Parallel(ctx context.Context, d time.Duration, keys []string, decide Decide) (Sample, error) {
	spin(d/5, keys, decide)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	asked, wrong, took := spin(d, keys, decide)
	runtime.ReadMemStats(&after)
	n := float64(asked)
	return Sample{
		Value: float64(took.Nanoseconds()) / n, Asked: asked, Failed: wrong,
		Bytes:     float64(after.TotalAlloc-before.TotalAlloc) / n,
		Allocs:    float64(after.Mallocs-before.Mallocs) / n,
		HasAllocs: true,
	}, ctx.Err()
}

func spin(d time.Duration, keys []string, decide Decide) (asked, wrong int64, took time.Duration) {
	var done sync.WaitGroup
	var allAsked, allWrong atomic.Int64
	begin := time.Now()
	for g := range runtime.GOMAXPROCS(0) {
		done.Go(func() {
			asked, wrong := int64(0), int64(0)
			state := uint64(g+1) * 0x9e3779b97f4a7c15
			for time.Since(begin) < d {
				for range chunk {
					state = state*6364136223846793005 + 1442695040888963407
					if !decide(keys[(state>>32)*uint64(len(keys))>>32]) {
						wrong++
					}
				}
				asked += chunk
			}
			allAsked.Add(asked)
			allWrong.Add(wrong)
		})
	}
	done.Wait()
	return allAsked.Load(), allWrong.Load(), time.Since(begin)
}
