package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// testSweep sweeps cells that still count, and cells that do not. It uses the store's clock, which is unrelated to T0.
func testSweep(t *testing.T, s store.Store, selfExpiring bool) {
	now := applyOne(t, s, take("sweep", "clock", bucket(1, 1), 1, 0)).Clock
	liveAt, deadAt := now, now-hour // times of charges that still count, and that no longer do
	live := []law.Op{
		take("sweep", "live bucket", law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: hour, Drain: 1000},
			1, liveAt),
		take("sweep", "live window", slidingWindow(1, hour), 1, liveAt),
		take("sweep", "live log", slidingLog(1, hour), 1, liveAt),
	}
	dead := []law.Op{
		take("sweep", "dead bucket", bucket(1, 1), 1, deadAt),
		take("sweep", "dead window", slidingWindow(1, 1000), 1, deadAt),
		take("sweep", "dead log", slidingLog(1, 1000), 1, deadAt),
	}
	history := take("sweep", "history", slidingLog(1, 1000), 1, deadAt)
	history.Params.History = 10 * hour
	blocked := take("sweep", "blocked", bucket(1, 1), 1, liveAt)
	blocked.Verb, blocked.TTL = law.Block, hour
	if selfExpiring {
		for i := range dead {
			dead[i].Now = 0 // they expire within a second by themselves
		}
	}
	for _, op := range append(append([]law.Op{history, blocked}, live...), dead...) {
		applyOne(t, s, op)
	}
	removed := 0
	for range 100 {
		n, err := s.Sweep(context.Background(), 3)
		if err != nil {
			t.Fatalf("sweep: %v", err)
		}
		if n > 3 {
			t.Errorf("got %d removed, want 3 at most", n)
		}
		if removed += n; n == 0 {
			break
		}
	}
	if !selfExpiring && removed < 4 {
		t.Errorf("got %d removed, want 4 at least: three dead cells and a log entry", removed)
	}
	for _, op := range live {
		op.Now = now
		if applyOne(t, s, op).Granted != 0 {
			t.Errorf("%s was admitted again, want its cell kept", op.Cell.Key)
		}
	}
	blocked.Verb = law.Take
	if applyOne(t, s, blocked).Granted != 0 {
		t.Error("a blocked cell was admitted, want its block kept")
	}
	if i, ok := store.As[store.Inspector](s); ok {
		entries, err := i.Entries(context.Background(), history.Cell, 10)
		if err != nil || len(entries) != 1 {
			t.Errorf("got history %v, %v; want one entry", entries, err)
		}
		awaitRemoval(t, i, dead) // Sweep has removed them, unless they expire by themselves
	}
}

// awaitRemoval waits until no cell of these ops exists.
func awaitRemoval(t *testing.T, i store.Inspector, ops []law.Op) {
	await.Until(t, "the death of cells that can refuse nobody", func() bool {
		count := 0
		for _, op := range ops {
			cells, _, err := i.Cells(t.Context(), store.Query{Limit: op.Cell.Limit, Key: op.Cell.Key, HasKey: true})
			if err != nil {
				t.Fatal(err)
			}
			count += len(cells)
		}
		return count == 0
	})
}

// testSweepUnderLoad sweeps as fast as it can while callers charge keys whose cells become sweepable all the time:
// no more than burst and rate may be admitted on any of them.
func testSweepUnderLoad(t *testing.T, s store.Store) {
	const rate, burst, callers, calls, keys = 400, 1, 6, 40, 3
	p := bucket(rate, burst)
	var stop atomic.Bool
	done := make(chan error, 1)
	go func() {
		var err error
		for err == nil && !stop.Load() {
			_, err = s.Sweep(context.Background(), 10)
		}
		done <- err
	}()
	var mu sync.Mutex
	var admitted, firstClock, lastClock [keys]int64 // guarded by mu
	runAtOnce(callers, calls, func(_, n int) {
		k := n % keys
		out := try(t, s, take("swept", fmt.Sprint(k), p, 1, 0))[0]
		mu.Lock()
		defer mu.Unlock()
		if admitted[k] += out.Granted; firstClock[k] == 0 {
			firstClock[k] = out.Clock
		}
		firstClock[k], lastClock[k] = min(firstClock[k], out.Clock), max(lastClock[k], out.Clock)
	})
	stop.Store(true)
	if err := <-done; err != nil {
		t.Errorf("sweep: %v", err)
	}
	for k := range keys {
		elapsed := lastClock[k] - firstClock[k]
		if bound := burst + elapsed*rate/1_000_000; admitted[k] < 1 || admitted[k] > bound {
			t.Errorf("key %d: got %d admitted in %d us, want 1 to %d", k, admitted[k], elapsed, bound)
		}
	}
}
