package front_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/sqlite"
)

// deadRowsStore is a store for sweeps only. It has a fixed number of live rows among which dead rows appear at a rate.
// A sweep reads twice as many rows as it may remove. It takes 20 ms, and 10 us for each row that it removes.
type deadRowsStore struct {
	liveRows float64
	deadRate float64              // dead rows a second
	age      func() time.Duration // of the store
	sleep    func(time.Duration)

	mu        sync.Mutex
	removed   float64
	rowsRead  float64 // in this pass
	passes    int64
	sweepTime time.Duration // of all sweeps
}

func (s *deadRowsStore) Apply(context.Context, []law.Op, []law.Outcome) error {
	return store.ErrUnavailable
}

func (s *deadRowsStore) Close() error { return nil }

func (s *deadRowsStore) Info() store.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return store.Info{Partial: true, Passes: s.passes}
}

func (s *deadRowsStore) deadRows() float64 { return s.deadRate*s.age().Seconds() - s.removed }

func (s *deadRowsStore) Sweep(_ context.Context, maxRows int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dead, rowsRead := s.deadRows(), float64(2*maxRows)
	removed := int(min(float64(maxRows), rowsRead*dead/(s.liveRows+dead), dead))
	if removed < maxRows {
		if s.rowsRead += rowsRead; s.rowsRead >= s.liveRows+dead {
			s.rowsRead, s.passes = 0, s.passes+1
		}
	}
	took := 20*time.Millisecond + time.Duration(removed)*10*time.Microsecond
	s.sleep(took)
	s.removed += float64(removed)
	s.sweepTime += took
	return removed, nil
}

// TestSweeperLoadAndDeadRows checks after ten minutes how many dead rows are left, and which part of the time sweeps
// took. A large table should have no more than twice as many dead rows as live ones.
func TestSweeperLoadAndDeadRows(t *testing.T) {
	for _, tt := range []struct {
		live, rate float64
		maxDead    float64 // dead rows after ten minutes
		maxBusy    float64 // the part of the time that sweeps take
	}{
		{live: 1e6, rate: 40_000, maxDead: 2e6, maxBusy: 0.85}, // 40,000 x 600 s = 24 million dead rows in all
		{live: 1e6, rate: 10_000, maxDead: 800e3, maxBusy: 0.3},
		{live: 1e6, rate: 500, maxDead: 50e3, maxBusy: 0.1},
		{live: 1e6, rate: 0, maxDead: 0, maxBusy: 0.06},
		{live: 1e8, rate: 0, maxDead: 0, maxBusy: 0.06},
		{live: 1000, rate: 50_000, maxDead: 800e3, maxBusy: 0.95}, // 800,000: those of a pause, 15 s at most
		{live: 1000, rate: 0, maxDead: 0, maxBusy: 0.01},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			inner := &deadRowsStore{
				liveRows: tt.live, deadRate: tt.rate, sleep: time.Sleep,
				age: func() time.Duration { return time.Since(begin) },
			}
			s := front.New(inner, nil)
			time.Sleep(10 * time.Minute)
			s.Close()
			dead, busy := inner.deadRows(), inner.sweepTime.Seconds()/600
			t.Logf("%.0f live rows, %.0f new ones a second: %.0f dead ones, %d passes, busy for %.3f of the time", tt.live,
				tt.rate, dead, inner.passes, busy)
			if dead > tt.maxDead || busy > tt.maxBusy {
				t.Errorf("got %.0f dead rows, busy for %.3f; want at most %.0f, %.2f", dead, busy, tt.maxDead, tt.maxBusy)
			}
		})
	}
}

// TestTheSweeperKeepsPace makes 5000 keys a second that are soon dead, until the sweeper has removed half of them.
func TestTheSweeperKeepsPace(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return memory.New(&memory.Config{Names: true}) },
		"SQLite": func(t *testing.T) store.Store {
			s, err := sqlite.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "a.db"), nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				testSweepHalf(t, open(t), func() { time.Sleep(100 * time.Millisecond) })
			})
		})
	}
}

// TestTheSweeperKeepsPaceOnServers is TestTheSweeperKeepsPace on servers, with keys that are made as fast as possible.
func TestTheSweeperKeepsPaceOnServers(t *testing.T) {
	tier.Engines(t)
	for name, open := range map[string]func(t *testing.T) store.Store{
		"PostgreSQL": func(t *testing.T) store.Store { return openPostgres(t, migrated.Postgres(t)) },
		"MariaDB": func(t *testing.T) store.Store {
			s, err := mysql.Open(t.Context(), migrated.MariaDB(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) { testSweepHalf(t, open(t), func() {}) })
	}
}

// testSweepHalf makes some keys that last, and then keys that are soon dead, with a pause after each batch, until half
// of those are removed.
func testSweepHalf(t *testing.T, inner store.Store, pause func()) {
	t.Helper()
	s := front.New(inner, &front.Config{
		Logger: slog.New(slog.DiscardHandler),
		Guard:  &front.GuardConfig{Deadline: time.Minute}, // on a busy machine
	})
	defer s.Close()
	l := headgate.New(s, nil)
	liveKeys, minKeys := tier.Pick(1_500, 20_000, 20_000), tier.Pick(3_000, 20_000, 20_000)
	const batch = 500
	charge := func(limit headgate.Limit, start, end int) {
		requests := make([]headgate.Request, end-start)
		for i := range requests {
			requests[i].Charges = []headgate.Charge{{Limit: limit, Key: fmt.Sprint("key ", start+i)}}
		}
		answers, err := l.Batch(t.Context(), requests)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			if a.Err != nil || !a.Decision.Allowed {
				t.Fatalf("got %+v, want it allowed", a)
			}
		}
	}
	longLimit := headgate.MustParse("fixed-window 1/30d")
	for start := 0; start < liveKeys; start += batch {
		charge(longLimit, start, start+batch)
	}
	shortLimit, keys := headgate.MustParse("token-bucket 10/s burst 1"), 0
	for ; keys < minKeys || countRemoved(t, s, liveKeys+keys) < keys/2; keys += batch {
		if keys == 25*minKeys { // a fast machine makes keys faster than a slow disk removes them
			await.Until(t, "half of the keys to be removed", func() bool { return countRemoved(t, s, liveKeys+keys) >= keys/2 })
		}
		charge(shortLimit, keys, keys+batch)
		pause()
	}
	st := s.Stats()
	t.Logf("%d keys were made, and %d of them removed, with %d sweeps", keys, countRemoved(t, s, liveKeys+keys), st.Sweeps)
	if st.SweepErrors > 0 {
		t.Errorf("got %+v, want no errors", st)
	}
}

// countRemoved returns how many of these keys are removed. A store in memory also removes keys to make room for others.
func countRemoved(t *testing.T, s *front.Store, keys int) int {
	t.Helper()
	if i, ok := store.As[store.Inspector](s); ok {
		counts, err := i.KeyCounts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(counts) > 0 && counts[0].Limit == "" { // the count of all keys
			return keys - int(counts[0].Keys)
		}
	}
	return int(s.Stats().Swept)
}
