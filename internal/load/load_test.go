package load_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRunCountsTheCallsAfterTheWarmup runs on the fake time of synctest: each
// answer takes 10 ms, so what is counted is known.
func TestRunCountsTheCallsAfterTheWarmup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		gone := errors.New("gone")
		r := load.Run(t.Context(), load.Config{Clients: 4, Duration: time.Second, Warmup: 100 * time.Millisecond},
			func(_ context.Context, client int, _ *rand.Rand) (bool, error) {
				asked.Add(1)
				time.Sleep(10 * time.Millisecond)
				switch client {
				case 0:
					return false, nil
				case 1:
					return false, gone
				}
				return true, nil
			})
		if got := asked.Load(); got != 4*110 {
			t.Errorf("asked %d times, want 440: 10 a client to warm up, 100 counted", got)
		}
		if r.Allowed != 200 || r.Refused != 100 || r.Errors != 100 || !errors.Is(r.FirstError, gone) {
			t.Errorf("got %+v", r)
		}
		if r.Elapsed != time.Second || r.PerSecond() != 300 {
			t.Errorf("%g a second in %s, want 300 in 1s", r.PerSecond(), r.Elapsed)
		}
		if n := r.Latency.TotalCount(); n != 300 {
			t.Errorf("%d latencies of 300 decisions", n)
		}
		for _, q := range []float64{0, 0.5, 0.99, 1} {
			if got := r.Quantile(q); got < 9900*time.Microsecond || got > 10100*time.Microsecond {
				t.Errorf("quantile %g is %s, want 10 ms to 1 %%", q, got)
			}
		}
	})
}

func TestTheLastAnswerIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := load.Run(t.Context(), load.Config{Clients: 2, Duration: time.Second},
			func(_ context.Context, client int, _ *rand.Rand) (bool, error) {
				time.Sleep(time.Duration(client*2+1) * 700 * time.Millisecond)
				return true, nil
			})
		if r.Allowed != 3 || r.Elapsed != 2100*time.Millisecond {
			t.Errorf("allowed %d in %s, want 3 in 2.1s", r.Allowed, r.Elapsed)
		}
		if slow := r.Quantile(1); slow < 2079*time.Millisecond {
			t.Errorf("the slowest took %s, want 2.1s", slow)
		}
	})
}

func TestEachClientHasOneCallUnderWay(t *testing.T) {
	t.Parallel()
	const clients = 8
	var busy [clients]atomic.Bool
	var mu sync.Mutex // guards rngs and asked
	rngs, asked := map[*rand.Rand]int{}, 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	load.Run(ctx, load.Config{Clients: clients, Duration: time.Minute},
		func(_ context.Context, client int, rng *rand.Rand) (bool, error) {
			if busy[client].Swap(true) {
				t.Errorf("client %d asks twice at once", client)
			}
			mu.Lock()
			if of, ok := rngs[rng]; ok && of != client {
				t.Errorf("clients %d and %d share their numbers", of, client)
			}
			rngs[rng] = client
			if asked++; asked > 20_000 && len(rngs) == clients { // a slow machine may start the last of them late
				cancel()
			}
			mu.Unlock()
			busy[client].Store(false)
			return rng.IntN(2) == 0, nil
		})
	if len(rngs) != clients {
		t.Errorf("%d clients asked, want %d", len(rngs), clients)
	}
}

func TestTheEndOfTheContextIsNoError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 95*time.Millisecond)
		defer cancel()
		r := load.Run(ctx, load.Config{Clients: 2, Duration: time.Hour},
			func(ctx context.Context, _ int, _ *rand.Rand) (bool, error) {
				select {
				case <-ctx.Done():
					return false, ctx.Err()
				case <-time.After(10 * time.Millisecond):
					return true, nil
				}
			})
		if r.Allowed != 18 || r.Errors != 0 || r.FirstError != nil || r.Elapsed != 90*time.Millisecond {
			t.Errorf("got %+v, want 18 allowed in 90ms", r)
		}
	})
}

func TestTheFirstErrorIsTheEarliest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		early, late := errors.New("early"), errors.New("late")
		r := load.Run(t.Context(), load.Config{Clients: 2, Duration: 40 * time.Millisecond},
			func(_ context.Context, client int, _ *rand.Rand) (bool, error) {
				time.Sleep(time.Duration(10-5*client) * time.Millisecond)
				return false, []error{late, early}[client]
			})
		if !errors.Is(r.FirstError, early) || r.Errors != 12 {
			t.Errorf("first of %d: %v", r.Errors, r.FirstError)
		}
		if r.PerSecond() != 0 || r.Quantile(0.5) != 0 {
			t.Errorf("errors count as decisions: %+v", r)
		}
	})
}

func TestProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []load.Snapshot
		load.Run(t.Context(), load.Config{
			Clients: 1, Duration: 1050 * time.Millisecond, Warmup: 300 * time.Millisecond,
			Progress: func(s load.Snapshot) { told = append(told, s) },
		}, func(context.Context, int, *rand.Rand) (bool, error) {
			time.Sleep(7 * time.Millisecond)
			return true, nil
		})
		if len(told) != 5 || told[0] != (load.Snapshot{}) {
			t.Fatalf("told %+v, want five, the first of them of the warm-up", told)
		}
		for i, s := range told[1:] {
			if s.Elapsed != time.Duration(i+1)*250*time.Millisecond-50*time.Millisecond ||
				s.Decisions < int64(s.Elapsed/(7*time.Millisecond))-1 {
				t.Errorf("told %+v", s)
			}
		}
	})
}

func TestNothingWasAsked(t *testing.T) {
	t.Parallel()
	r := load.Run(t.Context(), load.Config{}, func(context.Context, int, *rand.Rand) (bool, error) {
		t.Error("asked")
		return true, nil
	})
	if r.PerSecond() != 0 || r.Quantile(0.99) != 0 || (load.Result{}).Quantile(1) != 0 {
		t.Errorf("got %+v", r)
	}
}

// BenchmarkRun shows what asking costs beside the answer.
func BenchmarkRun(b *testing.B) {
	n := int64(b.N)
	var asked int64
	ctx, cancel := context.WithCancel(b.Context())
	load.Run(ctx, load.Config{Clients: 1, Duration: time.Hour}, func(context.Context, int, *rand.Rand) (bool, error) {
		if asked++; asked == n {
			cancel()
		}
		return true, nil
	})
}
