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

// attic is a store that is only swept: a table of live rows, and dead ones among them, which come at a rate. A
// sweep looks at twice as many rows as it may remove, and takes 20 ms, and 10 us for each row that it removes.
type attic struct {
	live, rate float64
	since      func() time.Duration // it began
	pause      func(time.Duration)

	mu      sync.Mutex
	removed float64
	looked  float64 // in this pass
	passes  int64
	busy    time.Duration
}

func (a *attic) Apply(context.Context, []law.Op, []law.Outcome) error { return store.ErrUnavailable }

func (a *attic) Close() error { return nil }

func (a *attic) Info() store.Info {
	a.mu.Lock()
	defer a.mu.Unlock()
	return store.Info{Partial: true, Passes: a.passes}
}

func (a *attic) dead() float64 { return a.rate*a.since().Seconds() - a.removed }

func (a *attic) Sweep(_ context.Context, most int) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	dead, look := a.dead(), float64(2*most)
	removed := int(min(float64(most), look*dead/(a.live+dead), dead))
	if removed < most {
		if a.looked += look; a.looked >= a.live+dead {
			a.looked, a.passes = 0, a.passes+1
		}
	}
	took := 20*time.Millisecond + time.Duration(removed)*10*time.Microsecond
	a.pause(took)
	a.removed += float64(removed)
	a.busy += took
	return removed, nil
}

// TestThePaceOfTheSweeper has rates that sweeps can do: a table holds about as many dead rows as live ones, twice as
// many at most. Where there is little to remove the sweeper takes little of the server's time.
func TestThePaceOfTheSweeper(t *testing.T) {
	for _, tt := range []struct {
		live, rate float64
		most       float64 // dead rows after ten minutes
		busy       float64 // share of the time, at most
	}{
		{live: 1e6, rate: 40_000, most: 2e6, busy: 0.85}, // of 24 million that were made
		{live: 1e6, rate: 10_000, most: 800e3, busy: 0.3},
		{live: 1e6, rate: 500, most: 50e3, busy: 0.1},
		{live: 1e6, rate: 0, most: 0, busy: 0.06},
		{live: 1e8, rate: 0, most: 0, busy: 0.06},
		{live: 1000, rate: 50_000, most: 800e3, busy: 0.95}, // of a pause: 15 s at most
		{live: 1000, rate: 0, most: 0, busy: 0.01},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			a := &attic{
				live: tt.live, rate: tt.rate, pause: time.Sleep,
				since: func() time.Duration { return time.Since(began) },
			}
			s := front.New(a, nil)
			time.Sleep(10 * time.Minute)
			s.Close()
			left, busy := a.dead(), a.busy.Seconds()/600
			t.Logf("%.0f live rows, %.0f new ones a second: %.0f dead ones, %d passes, busy for %.3f of the time", tt.live,
				tt.rate, left, a.passes, busy)
			if left > tt.most || busy > tt.busy {
				t.Errorf("want at most %.0f dead rows, and busy for %.2f of the time", tt.most, tt.busy)
			}
		})
	}
}

// TestTheSweeperKeepsPace makes 5000 new keys a second that are soon dead, beside live ones: the sweeper removes half
// of what was made before ever so much was made. Sweeps take no time here; TestThePaceOfTheSweeper has some that do.
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
				keepsPace(t, open(t), func() { time.Sleep(100 * time.Millisecond) })
			})
		})
	}
}

// TestTheSweeperKeepsPaceOnServers makes such keys as fast as it can.
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
		t.Run(name, func(t *testing.T) { keepsPace(t, open(t), func() {}) })
	}
}

func keepsPace(t *testing.T, inner store.Store, pause func()) {
	t.Helper()
	s := front.New(inner, &front.Config{
		Logger: slog.New(slog.DiscardHandler),
		Guard:  &front.GuardConfig{Deadline: time.Minute}, // on a busy machine
	})
	defer s.Close()
	l := headgate.New(s, nil)
	live, enough := tier.Pick(1_500, 20_000, 20_000), tier.Pick(3_000, 20_000, 20_000)
	const batch = 500
	charge := func(limit headgate.Limit, from, to int) {
		requests := make([]headgate.Request, to-from)
		for i := range requests {
			requests[i].Charges = []headgate.Charge{{Limit: limit, Key: fmt.Sprint("key ", from+i)}}
		}
		answers, err := l.Batch(t.Context(), requests)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			if a.Err != nil || !a.Decision.Allowed {
				t.Fatalf("%+v", a)
			}
		}
	}
	lasting := headgate.MustParse("fixed-window 1/30d")
	for from := 0; from < live; from += batch {
		charge(lasting, from, from+batch)
	}
	brief, made := headgate.MustParse("token-bucket 10/s burst 1"), 0
	for ; made < enough || removed(t, s, live+made) < made/2; made += batch {
		if made == 25*enough { // a fast machine makes them faster than a slow disk lets them go
			await.Until(t, "half of them to be removed", func() bool { return removed(t, s, live+made) >= made/2 })
		}
		charge(brief, made, made+batch)
		pause()
	}
	st := s.Stats()
	t.Logf("%d keys were made, and %d of them removed, with %d sweeps", made, removed(t, s, live+made), st.Sweeps)
	if st.SweepErrors > 0 {
		t.Errorf("%+v", st)
	}
}

// removed returns how many of some keys are gone. A store in memory also removes keys when it makes room for others.
func removed(t *testing.T, s *front.Store, made int) int {
	t.Helper()
	if i, ok := store.As[store.Inspector](s); ok {
		counts, err := i.KeyCounts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(counts) > 0 && counts[0].Limit == "" { // all keys are always counted
			return made - int(counts[0].Keys)
		}
	}
	return int(s.Stats().Swept)
}
