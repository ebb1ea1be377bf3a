package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/dbtest"
)

// budgetOf are six limits of which next to nothing drains during a test.
var budgetOf = []string{
	"token-bucket 900/30d burst 900", "fixed-window 1000/30d", "fixed-window 1100/30d from-first",
	"sliding-window 1200/30d", "sliding-log 1300/30d", "gcra 1400/30d burst 1400",
}

// spending is what callers know of six limits, in thousandths of a unit of cost.
type spending struct {
	servers []atomic.Pointer[client.Client]
	kills   atomic.Int64
	limits  []headgate.Limit
	actual  [6]atomic.Int64 // what admitted requests have cost in the end
	told    [6]atomic.Int64 // what was charged, without what is known to have been given back
	late    [6]atomic.Int64 // what attempts may charge that were cut off, and arrive after they were refused
}

func costOf(thousandths int64) headgate.Cost {
	if thousandths == 0 {
		return headgate.Units(0)
	}
	return headgate.MustCost(fmt.Sprintf("%d.%03d", thousandths/1000, thousandths%1000))
}

func thousandths(t *testing.T, c headgate.Cost) int64 {
	t.Helper()
	f, err := strconv.ParseFloat(c.String(), 64)
	if err != nil {
		t.Error(err)
	}
	return int64(f*1000 + 0.5)
}

func (s *spending) charges(costs []int64) []headgate.Charge {
	list := make([]headgate.Charge, len(costs))
	for i, c := range costs {
		list[i] = headgate.Charge{Limit: s.limits[i], Key: "k", Cost: costOf(c)}
	}
	return list
}

// surely asks one server after the other until one answers, and reports whether an attempt was cut off.
func (s *spending) surely(t *testing.T, id string, ask func(o headgate.Once) error) (late, ok bool) {
	var err error
	for n, end := 0, time.Now().Add(2*time.Minute); time.Now().Before(end); n++ {
		if err = ask(s.servers[n%len(s.servers)].Load().Once(id, time.Hour)); err == nil {
			return late, true
		}
		if errors.Is(err, headgate.ErrInvalid) || errors.Is(err, headgate.ErrSettled) ||
			errors.Is(err, headgate.ErrReused) || errors.Is(err, headgate.ErrUnknownID) {
			break
		}
		late = true
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s: %v", id, err)
	return late, false
}

// spend makes a request, extends some that are admitted, and settles or cancels most. It reports whether it was
// admitted.
func (s *spending) spend(t *testing.T, rng *rand.Rand, id string) bool {
	costs := make([]int64, len(s.limits))
	for i := range costs {
		costs[i] = 1 + rng.Int64N(3000)
	}
	var d headgate.Decision
	late, ok := s.surely(t, id, func(o headgate.Once) (err error) {
		d, err = o.Take(t.Context(), s.charges(costs)...)
		return err
	})
	how := rng.IntN(4)
	if late && (!d.Allowed || how == 0) {
		s.arriveLate(costs)
	}
	if !ok || !d.Allowed {
		return false
	}
	s.charged(costs)
	for range rng.IntN(3) {
		if !s.extend(t, rng, id, costs) {
			break
		}
	}
	settle := headgate.Once.Settle
	actual := make([]int64, len(costs))
	for i := range costs {
		actual[i] = rng.Int64N(costs[i] + 1)
		switch how {
		case 0:
			actual[i], settle = 0, headgate.Once.Cancel
		case 3: // it is not settled
			actual[i] = costs[i]
		}
		s.actual[i].Add(actual[i])
	}
	if how == 3 {
		return true
	}
	var back []headgate.Cost
	s.surely(t, id, func(o headgate.Once) (err error) {
		back, err = settle(o, t.Context(), s.charges(actual)...)
		return err
	})
	for i := range back { // nothing, if an attempt that was cut off has settled it
		s.told[i].Add(-thousandths(t, back[i]))
	}
	return true
}

// extend extends a request, and reports whether that was admitted. Then the costs are what it charges.
func (s *spending) extend(t *testing.T, rng *rand.Rand, id string, costs []int64) bool {
	more, total := make([]int64, len(costs)), make([]int64, len(costs))
	for i := range costs {
		more[i] = rng.Int64N(1500)
		total[i] = costs[i] + more[i]
	}
	var e headgate.Extended
	late, ok := s.surely(t, id, func(o headgate.Once) (err error) {
		e, err = o.Extend(t.Context(), s.charges(total)...)
		return err
	})
	switch {
	case !ok || !e.Decision.Allowed && !late:
		return false
	case !e.Decision.Allowed:
		s.arriveLate(more)
		return false
	}
	for i := range total {
		if got := thousandths(t, e.Charged[i]); got != total[i] {
			t.Errorf("%s: extended to %d thousandths, %d are charged", id, total[i], got)
		}
	}
	s.charged(more)
	copy(costs, total)
	return true
}

func (s *spending) charged(costs []int64) {
	for i, c := range costs {
		s.told[i].Add(c)
	}
}

func (s *spending) arriveLate(costs []int64) {
	for i, c := range costs {
		s.late[i].Add(c)
	}
}

// TestBudgetsAreExactThroughKill9 lets 64 callers drain six limits, each request charged to all six at odd
// costs, extended, settled and cancelled, while one server after the other is killed. No limit is overrun, and
// each has in use what the requests have cost in the end.
func TestBudgetsAreExactThroughKill9(t *testing.T) {
	for _, tt := range []struct {
		name    string
		url     func(t *testing.T) string
		servers int
	}{
		{"sqlite", func(t *testing.T) string { return "sqlite:" + t.TempDir() + "/budgets.db" }, 1},
		{"postgres", func(t *testing.T) string { return dbtest.Postgres(t) }, 2},
		{"mariadb", func(t *testing.T) string { return dbtest.MariaDB(t) }, 2},
		{"redis", func(t *testing.T) string { return dbtest.Redis(t) }, 2},
	} {
		t.Run(tt.name, func(t *testing.T) { budgetsThroughKill9(t, tt.url(t), tt.servers) })
	}
}

func budgetsThroughKill9(t *testing.T, url string, servers int) {
	s := &spending{servers: make([]atomic.Pointer[client.Client], servers)}
	for _, notation := range budgetOf {
		s.limits = append(s.limits, headgate.MustParse(notation))
	}
	if !strings.HasPrefix(url, "redis:") { // it has no schema
		command(t, exitOK, "migrate", "--store", url)
	}
	running := make([]*server, servers)
	run := func(i int) {
		running[i] = start(t, t.TempDir(), "--store", url)
		c, err := client.New(running[i].url, &client.Config{Connections: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		s.servers[i].Store(c)
	}
	for i := range running {
		run(i)
	}
	const enough = 5
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for caller := range 64 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(caller), 9))
			for n, refused := 0, 0; (refused < 2 || s.kills.Load() < enough) && !t.Failed(); n++ {
				if s.spend(t, rng, fmt.Sprint("caller ", caller, " ", n)) {
					admitted.Add(1)
				} else if refused++; refused > 2 {
					time.Sleep(100 * time.Millisecond)
				}
			}
		})
	}
	for n := range enough {
		time.Sleep(200 * time.Millisecond)
		i := n % servers
		if err := running[i].cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = running[i].cmd.Wait()
		run(i)
		s.kills.Add(1)
	}
	wg.Wait()
	t.Logf("%d requests were admitted", admitted.Load())
	s.check(t)
}

// check compares what is in use of each limit with what the callers know.
func (s *spending) check(t *testing.T) {
	full := false
	for i, limit := range s.limits {
		st, err := s.servers[0].Load().Inspect(context.Background(), limit, "k")
		if err != nil {
			t.Fatal(err)
		}
		used, capacity := thousandths(t, st.Used), thousandths(t, st.Capacity)
		least, most := s.actual[i].Load(), s.told[i].Load()
		switch limit.Algorithm().(type) {
		case headgate.TokenBucket, headgate.GCRA:
			least -= 500 // it drains a little
		default:
			most = least // what is left gives back all
		}
		most += s.late[i].Load()
		if used < least || used > most || used > capacity {
			t.Errorf("%s: %d thousandths of %d are in use, want %d to %d", limit, used, capacity, least, most)
		}
		full = full || used > capacity-10_000
	}
	if !full {
		t.Error("no limit is full, and all callers were refused")
	}
}
