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

// TestRunCountsTheCallsAfterTheWarmup checks all figures of a run in which each call takes 10 ms.
func TestRunCountsTheCallsAfterTheWarmup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		errCall := errors.New("gone")
		r := load.Run(t.Context(), load.Config{Clients: 4, Duration: time.Second, Warmup: 100 * time.Millisecond},
			func(_ context.Context, client int, _ *rand.Rand) (bool, error) {
				calls.Add(1)
				time.Sleep(10 * time.Millisecond)
				switch client {
				case 0:
					return false, nil
				case 1:
					return false, errCall
				}
				return true, nil
			})
		if got := calls.Load(); got != 4*110 {
			t.Errorf("got %d calls, want 440: of each client 10 to warm up, and 100", got)
		}
		if r.Allowed != 200 || r.Refused != 100 || r.Errors != 100 || !errors.Is(r.FirstError, errCall) {
			t.Errorf("got %+v, want 200 allowed, 100 refused, 100 errors", r)
		}
		if r.Elapsed != time.Second || r.PerSecond() != 300 {
			t.Errorf("got %g a second in %s, want 300 in 1s", r.PerSecond(), r.Elapsed)
		}
		if n := r.Latency.TotalCount(); n != 300 {
			t.Errorf("got %d latencies, want 300", n)
		}
		for _, q := range []float64{0, 0.5, 0.99, 1} {
			if got := r.Quantile(q); got < 9900*time.Microsecond || got > 10100*time.Microsecond {
				t.Errorf("quantile %g: got %s, want 10 ms to 1 %%", q, got)
			}
		}
	})
}

// TestRunWaitsForTheLastAnswer checks that a call that began before the end counts, with the time until its answer.
func TestRunWaitsForTheLastAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := load.Run(t.Context(), load.Config{Clients: 2, Duration: time.Second},
			func(_ context.Context, client int, _ *rand.Rand) (bool, error) {
				time.Sleep(time.Duration(client*2+1) * 700 * time.Millisecond)
				return true, nil
			})
		if r.Allowed != 3 || r.Elapsed != 2100*time.Millisecond {
			t.Errorf("got %d allowed in %s, want 3 in 2.1s", r.Allowed, r.Elapsed)
		}
		if slowest := r.Quantile(1); slowest < 2079*time.Millisecond {
			t.Errorf("the slowest took %s, want 2.1s", slowest)
		}
	})
}

func TestEachClientHasOneCallUnderWay(t *testing.T) {
	t.Parallel()
	const clients = 8
	var busy [clients]atomic.Bool
	var mu sync.Mutex                      // guards rngs and calls
	rngs, calls := map[*rand.Rand]int{}, 0 // rngs: the client of each generator
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	load.Run(ctx, load.Config{Clients: clients, Duration: time.Minute},
		func(_ context.Context, client int, rng *rand.Rand) (bool, error) {
			if busy[client].Swap(true) {
				t.Errorf("client %d has two calls under way", client)
			}
			mu.Lock()
			if owner, ok := rngs[rng]; ok && owner != client {
				t.Errorf("clients %d and %d share a generator", owner, client)
			}
			rngs[rng] = client
			if calls++; calls > 20_000 && len(rngs) == clients { // a slow machine may start the last of them late
				cancel()
			}
			mu.Unlock()
			busy[client].Store(false)
			return rng.IntN(2) == 0, nil
		})
	if len(rngs) != clients {
		t.Errorf("got calls of %d clients, want %d", len(rngs), clients)
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
		errEarly, errLate := errors.New("early"), errors.New("late")
		r := load.Run(t.Context(), load.Config{Clients: 2, Duration: 40 * time.Millisecond},
			func(_ context.Context, client int, _ *rand.Rand) (bool, error) {
				time.Sleep(time.Duration(10-5*client) * time.Millisecond)
				return false, []error{errLate, errEarly}[client]
			})
		if !errors.Is(r.FirstError, errEarly) || r.Errors != 12 {
			t.Errorf("got first error %v of %d, want %v of 12", r.FirstError, r.Errors, errEarly)
		}
		if r.PerSecond() != 0 || r.Quantile(0.5) != 0 {
			t.Errorf("got %+v, want no decisions", r)
		}
	})
}

func TestProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var snapshots []load.Snapshot
		load.Run(t.Context(), load.Config{
			Clients: 1, Duration: 1050 * time.Millisecond, Warmup: 300 * time.Millisecond,
			Progress: func(s load.Snapshot) { snapshots = append(snapshots, s) },
		}, func(context.Context, int, *rand.Rand) (bool, error) {
			time.Sleep(7 * time.Millisecond)
			return true, nil
		})
		if len(snapshots) != 5 || snapshots[0] != (load.Snapshot{}) {
			t.Fatalf("got %+v, want five, the first of the warm-up", snapshots)
		}
		for i, s := range snapshots[1:] {
			if s.Elapsed != time.Duration(i+1)*250*time.Millisecond-50*time.Millisecond ||
				s.Decisions < int64(s.Elapsed/(7*time.Millisecond))-1 {
				t.Errorf("got %+v after %d quarters of a second", s, i+1)
			}
		}
	})
}

func TestAnEmptyConfigMakesNoCall(t *testing.T) {
	t.Parallel()
	r := load.Run(t.Context(), load.Config{}, func(context.Context, int, *rand.Rand) (bool, error) {
		t.Error("a client made a call")
		return true, nil
	})
	if r.PerSecond() != 0 || r.Quantile(0.99) != 0 || (load.Result{}).Quantile(1) != 0 {
		t.Errorf("got %+v, want zero", r)
	}
}

// BenchmarkRun measures the cost of a call that does nothing.
func BenchmarkRun(b *testing.B) {
	n := int64(b.N)
	var calls int64
	ctx, cancel := context.WithCancel(b.Context())
	load.Run(ctx, load.Config{Clients: 1, Duration: time.Hour}, func(context.Context, int, *rand.Rand) (bool, error) {
		if calls++; calls == n {
			cancel()
		}
		return true, nil
	})
}
