package catalog_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/sqlite"
)

// scaling and resetting are changes that are felt soon.
var (
	scaling   = catalog.By{Author: "alice", Used: catalog.Used{Mode: catalog.ScaleUsed, Felt: 50 * time.Millisecond}}
	resetting = catalog.By{Author: "alice", Used: catalog.Used{Mode: catalog.ResetUsed, Felt: 50 * time.Millisecond}}
)

type server struct {
	name string
	open func(t *testing.T) (store.Store, error)
}

// servers are the stores that are not in this process, the one for make test first.
var servers = []server{
	{"postgres", func(t *testing.T) (store.Store, error) { return postgres.Open(t.Context(), migrated.Postgres(t), nil) }},
	{"mysql", func(t *testing.T) (store.Store, error) { return mysql.Open(t.Context(), migrated.MariaDB(t), nil) }},
	{"redis", func(t *testing.T) (store.Store, error) { return redis.Open(t.Context(), dbtest.Redis(t), nil) }},
	{"sqlite", func(t *testing.T) (store.Store, error) {
		s, err := sqlite.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "used.db"), nil)
		if err == nil {
			_, err = s.Migrate(t.Context())
		}
		return s, err
	}},
}

// onEveryStore runs a test on a store of each kind: in virtual time in memory, and in real time on servers.
func onEveryStore(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Helper()
	onStores(t, tier.Pick(servers[:1], servers, servers), test)
}

// onStores runs a test on a store in memory, in virtual time, and on servers.
func onStores(t *testing.T, servers []server, test func(t *testing.T, s store.Store)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, memory.New(&memory.Config{Names: true})) })
	})
	for _, server := range servers {
		t.Run(server.name, func(t *testing.T) {
			s, err := server.open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			test(t, s)
		})
	}
}

// within gives a limiter by a catalogue all the time that it needs: a machine may be busy.
func within(s store.Store, c *catalog.Catalog) *headgate.Limiter {
	return headgate.New(s, &headgate.Config{Names: c, Timeout: time.Minute})
}

// takes takes a cost from a limit by its name, and fails if it is refused.
func takes(tb testing.TB, l *headgate.Limiter, name, key string, cost int64) {
	tb.Helper()
	charge := headgate.Charge{Limit: headgate.MustNamed(name), Key: key, Cost: headgate.Units(cost)}
	d, err := l.Take(tb.Context(), charge)
	if err != nil || !d.Allowed {
		tb.Fatalf("take %d of %s %s: %+v, %v", cost, name, key, d, err)
	}
}

// inUse is what a key has used of a limit.
func inUse(tb testing.TB, l *headgate.Limiter, name, key string) string {
	tb.Helper()
	s, err := l.Inspect(tb.Context(), headgate.MustNamed(name), key)
	if err != nil {
		tb.Fatal(err)
	}
	return s.Used.String()
}

// TestWhatIsUsedIsScaledOrReset changes limits of which a key has used something.
func TestWhatIsUsedIsScaledOrReset(t *testing.T) {
	tests := []struct {
		from, to string
		used     int64
		want     string // scaled
	}{
		{"fixed-window 100/30d", "fixed-window 10/30d", 50, "5"},
		{"fixed-window 100/30d", "fixed-window 10/30d", 51, "5.1"},
		{"fixed-window 10/30d", "fixed-window 100/30d", 7, "70"},
		{"fixed-window 3/30d", "fixed-window 10/30d", 1, "3.334"},
		{"fixed-window 100/month Europe/Berlin", "fixed-window 10/month Europe/Berlin", 50, "5"},
		{"fixed-window 100/month", "fixed-window 10/30d", 50, "5"},
		{"fixed-window 100/30d", "fixed-window 40/60d", 80, "32"}, // above the new limit, which has another window
		{"fixed-window 100/30d from-first", "fixed-window 10/30d from-first", 50, "5"},
		{"interval 100/30d", "interval 10/30d", 50, "5"},
		{"token-bucket 1/30d burst 100", "token-bucket 1/30d burst 10", 50, "5"},
		{"token-bucket 1/30d burst 10", "token-bucket 1/30d burst 100", 10, "100"},
		{"token-bucket 1/30d burst 100", "token-bucket 1/15d burst 10", 50, "5"},
		{"token-bucket 100/30d burst 100", "token-bucket 10/30d", 50, "5"},
		{"token-bucket 10/s burst 10", "token-bucket 20/s burst 10", 0, ""},
		{"sliding-window 100/30d", "sliding-window 10/30d", 50, "5"},
		{"sliding-window 10/30d", "sliding-window 100/30d", 10, "100"},
		{"sliding-window 100/30d", "sliding-window 20/60d", 50, "10"},
		{"sliding-log 100/30d", "sliding-log 10/30d", 50, "5"},
		{"sliding-log 10/30d", "sliding-log 100/30d", 4, "40"},
		{"sliding-log 100/30d", "sliding-log 10/15d", 50, "5"},
		{"sliding-log 100/30d", "fixed-window 10/30d", 50, "5"},
		{"fixed-window 100/30d", "sliding-log 10/30d", 50, "5"},
		{"sliding-window 100/30d", "token-bucket 1/30d burst 10", 50, "5"},
		{"token-bucket 1/30d burst 100", "sliding-window 10/30d", 50, "5"},
		{"leaky-bucket 1/30d capacity 100", "gcra 1/30d burst 10", 50, "5"},
		{"fixed-window 100/30d", "fixed-window 100/60d", 50, "50"}, // the same capacity
		{"fixed-window 100/30d", "0", 50, "50"},
		{"fixed-window 100/30d", "unlimited", 50, ""},
		{"unlimited", "fixed-window 100/30d", 50, ""},
	}
	onEveryStore(t, func(t *testing.T, s store.Store) {
		c := open(t, s)
		l := within(s, c)
		for i, test := range tests {
			for _, by := range []catalog.By{scaling, resetting} {
				name := fmt.Sprintf("x%d.%s", i, by.Used.Mode)
				set(t, c, limit(t, name, test.from))
				if test.used > 0 {
					takes(t, l, name, "bob", test.used)
				}
				by.Used.Felt = time.Millisecond
				done(t)(c.Set(t.Context(), by, limit(t, name, test.to)))
				want := test.want
				if by.Used.Mode == catalog.ResetUsed {
					want = "0"
				}
				if want == "" || test.to == "0" && want != "0" {
					continue // what is said of these is another matter
				}
				got := inUse(t, l, name, "bob")
				if got == want {
					continue
				}
				// In real time some of it has drained, and a part of a credit counts as a whole one.
				gone := drained(named(t, name, test.from), named(t, name, test.to), time.Hour)
				less := number(t, want) - number(t, got)
				if _, virtual := s.(*memory.Store); virtual || less < -0.0000015 || less > gone || want == "0" {
					t.Errorf("%s, %d used, to %s, %s: %s used, want %s, less the %.9f that may have drained",
						test.from, test.used, test.to, by.Used.Mode, got, want, gone)
				}
			}
		}
	})
}

// drained is how much may have drained at most of what a key has used, while a limit became another one.
func drained(from, to headgate.Limit, within time.Duration) float64 {
	perSecond := func(l headgate.Limit) float64 {
		p := l.Params()
		if p.Kind != law.Bucket || p.Step > time.Hour.Microseconds() { // a window drains at its end
			return 0
		}
		return float64(p.Drain) / float64(p.Unit) * 1e6 / float64(p.Step)
	}
	scale := float64(to.Params().Capacity) / float64(to.Params().Unit) /
		(float64(from.Params().Capacity) / float64(from.Params().Unit))
	return within.Seconds() * (perSecond(from)*scale + perSecond(to))
}

// TestNothingIsLostOfWhatIsChargedWhileItIsScaled takes from all keys, all the time. On PostgreSQL it has failed once in
// some forty runs, beside load: 71, 91 and 80 units used of 100 became 7.1, 9.1 and 8, the old limit let 10 more pass,
// and the second look scaled all of it again, to 1.71, 1.91 and 1.8.
func TestNothingIsLostOfWhatIsChargedWhileItIsScaled(t *testing.T) {
	onStores(t, tier.Pick(nil, servers, servers), func(t *testing.T, s store.Store) {
		for i, test := range []struct {
			from, to string
			used     int64   // of each key, before
			most     int64   // admitted by the new limit at most
			perSec   float64 // and so many more each second
			least    int64   // used beside all that was admitted since
		}{
			{"fixed-window 100/30d", "fixed-window 10/30d", 20, 8, 0, 2},
			{"fixed-window 100/30d", "fixed-window 10/30d", 5, 9, 0, 0},
			{"fixed-window 10/30d", "fixed-window 50/30d", 5, 45, 0, 25},
			{"sliding-log 100/30d", "sliding-log 10/30d", 20, 8, 0, 2},
			{"sliding-log 100/30d", "sliding-log 10/15d", 5, 9, 0, 0},
			{"sliding-window 100/30d", "sliding-window 10/60d", 20, 8, 0, 2},
			{"token-bucket 1/30d burst 100", "token-bucket 1/15d burst 10", 20, 8, 0, 2},
			{"token-bucket 50/s burst 100", "token-bucket 5/s burst 10", 50, 10, 5, 0},
		} {
			c := open(t, s)
			l := within(s, c)
			name := fmt.Sprintf("busy%d", i)
			set(t, c, limit(t, name, test.from))
			to := limit(t, name, test.to)
			crowd := busy(t, l, name, to.Params().Capacity/to.Params().Unit, test.used)
			done(t)(c.Set(t.Context(), scaling, to))
			crowd.goesOn(t, 3)
			crowd.stop()
			for key, n := range crowd.admitted {
				took := crowd.last[key].Sub(crowd.first[key]).Seconds()
				most := test.most
				if test.perSec > 0 {
					most += 1 + int64(test.perSec*(took+0.1))
				}
				if n > most {
					t.Errorf("%s to %s, %s: the new limit has let %d pass in %.3f s, want %d at most",
						test.from, test.to, key, n, took, most)
				}
				if test.perSec > 0 {
					continue
				}
				st, err := l.Inspect(t.Context(), headgate.MustNamed(name), key)
				gone := drained(named(t, name, test.from), to.Limit, time.Hour)
				if used := units(t, st.Used); err != nil || used < float64(n+test.least)-gone {
					t.Errorf("%s to %s, %s: %g used, though the new limit has let %d pass, and %d were used before; %v",
						test.from, test.to, key, used, n, test.used, err)
				}
			}
		}
	})
}

func units(tb testing.TB, c headgate.Cost) float64 {
	tb.Helper()
	return number(tb, c.String())
}

func number(tb testing.TB, text string) (n float64) {
	tb.Helper()
	if text != "" {
		if _, err := fmt.Sscan(text, &n); err != nil {
			tb.Fatal(err)
		}
	}
	return n
}

// crowd takes from keys of a limit.
type crowd struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup

	mu          sync.Mutex
	asked       map[string]int
	admitted    map[string]int64 // by the new limit
	first, last map[string]time.Time
}

// goesOn returns once each key was asked so many times again.
func (c *crowd) goesOn(t *testing.T, times int) {
	t.Helper()
	asked := func() map[string]int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return maps.Clone(c.asked)
	}
	before := asked()
	await.Until(t, "the crowd to ask again", func() bool {
		for key, n := range asked() {
			if n < before[key]+times {
				return false
			}
		}
		return true
	})
}

func (c *crowd) stop() {
	c.cancel()
	c.wait.Wait()
}

// busy uses something of some keys, and then takes from them until it is stopped.
func busy(t *testing.T, l *headgate.Limiter, name string, capacity, used int64) *crowd {
	ctx, cancel := context.WithCancel(t.Context())
	c := &crowd{
		cancel: cancel, asked: map[string]int{}, admitted: map[string]int64{},
		first: map[string]time.Time{}, last: map[string]time.Time{},
	}
	t.Cleanup(c.stop)
	for i := range 8 {
		key := fmt.Sprintf("k%d", i)
		takes(t, l, name, key, used)
		c.admitted[key], c.asked[key] = 0, 0
	}
	for w := range 4 {
		c.wait.Go(func() {
			for i := w; ctx.Err() == nil; i++ {
				key := fmt.Sprintf("k%d", i%8)
				before := time.Now()
				d, err := l.Allow(ctx, headgate.MustNamed(name), key)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				c.mu.Lock()
				c.asked[key]++
				c.mu.Unlock()
				if !d.Allowed || d.Capacity != capacity {
					time.Sleep(time.Millisecond)
					continue
				}
				c.mu.Lock()
				c.admitted[key]++
				if c.first[key].IsZero() {
					c.first[key] = before
				}
				c.last[key] = time.Now()
				c.mu.Unlock()
			}
		})
	}
	return c
}
