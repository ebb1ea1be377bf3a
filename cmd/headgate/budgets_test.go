package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
)

// budgets returns six limits with capacities of 0.9 to 1.4 times budget. They drain next to nothing during a test.
func budgets(t *testing.T, budget int) (limits []headgate.Limit) {
	t.Helper()
	for i, notation := range []string{
		"token-bucket %d/30d burst %[1]d", "fixed-window %d/30d", "fixed-window %d/30d from-first",
		"sliding-window %d/30d", "sliding-log %d/30d", "gcra %d/30d burst %[1]d",
	} {
		l, err := headgate.Parse(fmt.Sprintf(notation, budget*(9+i)/10))
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, l)
	}
	return limits
}

// spending counts what callers spent of six limits, in thousandths of a unit of cost.
type spending struct {
	servers      []atomic.Pointer[client.Client]
	limits       []headgate.Limit
	actualCosts  [6]atomic.Int64 // final costs of the admitted requests
	chargedCosts [6]atomic.Int64 // admitted charges, less the amounts that settlements have returned
	unknownCosts [6]atomic.Int64 // costs of attempts that were cut off, and may be charged later
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
		t.Errorf("the cost %s: %v", c, err)
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

// retryUntilAnswered makes a call to one server after the other until one answers. cutOff: an attempt got no answer.
// ok: the answer is no error. Errors that no retry may get fail the test.
func (s *spending) retryUntilAnswered(t *testing.T, id string, call func(o headgate.Once) error) (cutOff, ok bool) {
	attempts := 0
	await.NoError(t, "an answer to "+id, func() error {
		err := call(s.servers[attempts%len(s.servers)].Load().Once(id, time.Hour))
		if errors.Is(err, headgate.ErrInvalid) || errors.Is(err, headgate.ErrSettled) ||
			errors.Is(err, headgate.ErrReused) || errors.Is(err, headgate.ErrUnknownID) {
			t.Errorf("%s: %v", id, err)
			return nil
		}
		ok, cutOff = err == nil, cutOff || err != nil
		attempts++
		return err
	})
	return cutOff, ok
}

// spend makes a request, and reports whether it was admitted. It extends some admitted requests, and settles or cancels
// most of them.
func (s *spending) spend(t *testing.T, rng *rand.Rand, id string) bool {
	costs := make([]int64, len(s.limits))
	for i := range costs {
		costs[i] = 1 + rng.Int64N(3000)
	}
	var d headgate.Decision
	cutOff, ok := s.retryUntilAnswered(t, id, func(o headgate.Once) (err error) {
		d, err = o.Take(t.Context(), s.charges(costs)...)
		return err
	})
	ending := rng.IntN(4) // 0: cancel, 1 and 2: settle, 3: do neither
	// An attempt that was cut off may be charged later: after a refusal, or after the cancel, which frees the id.
	if cutOff && (!d.Allowed || ending == 0) {
		s.addUnknown(costs)
	}
	if !ok || !d.Allowed {
		return false
	}
	s.addCharged(costs)
	for range rng.IntN(3) {
		if !s.extend(t, rng, id, costs) {
			break
		}
	}
	settle := headgate.Once.Settle
	actual := make([]int64, len(costs))
	for i := range costs {
		actual[i] = rng.Int64N(costs[i] + 1)
		switch ending {
		case 0:
			actual[i], settle = 0, headgate.Once.Cancel
		case 3:
			actual[i] = costs[i]
		}
		s.actualCosts[i].Add(actual[i])
	}
	if ending == 3 {
		return true
	}
	var returned []headgate.Cost
	s.retryUntilAnswered(t, id, func(o headgate.Once) (err error) {
		returned, err = settle(o, t.Context(), s.charges(actual)...)
		return err
	})
	for i := range returned { // zeros if an attempt that was cut off has settled the request
		s.chargedCosts[i].Add(-thousandths(t, returned[i]))
	}
	return true
}

// extend extends a request, and reports whether the extension was admitted. If so, it sets costs to the new total.
func (s *spending) extend(t *testing.T, rng *rand.Rand, id string, costs []int64) bool {
	extra, total := make([]int64, len(costs)), make([]int64, len(costs))
	for i := range costs {
		extra[i] = rng.Int64N(1500)
		total[i] = costs[i] + extra[i]
	}
	var e headgate.ExtendResult
	cutOff, ok := s.retryUntilAnswered(t, id, func(o headgate.Once) (err error) {
		e, err = o.Extend(t.Context(), s.charges(total)...)
		return err
	})
	switch {
	case !ok || !e.Decision.Allowed && !cutOff:
		return false
	case !e.Decision.Allowed:
		s.addUnknown(extra)
		return false
	}
	for i := range total {
		if got := thousandths(t, e.Charged[i]); got != total[i] {
			t.Errorf("%s: extended to %d thousandths, got %d charged", id, total[i], got)
		}
	}
	s.addCharged(extra)
	copy(costs, total)
	return true
}

func (s *spending) addCharged(costs []int64) {
	for i, c := range costs {
		s.chargedCosts[i].Add(c)
	}
}

func (s *spending) addUnknown(costs []int64) {
	for i, c := range costs {
		s.unknownCosts[i].Add(c)
	}
}

// TestBudgetsAreExactThroughKill9 has many callers use up six limits while servers are killed. Each request is charged
// to all six at odd costs. Many are extended, and most are settled or cancelled. No limit is overrun, and each has in
// use what the requests have cost in the end.
func TestBudgetsAreExactThroughKill9(t *testing.T) {
	budgetsThroughKill9(t, "sqlite:"+t.TempDir()+"/budgets.db", 1)
}

func TestBudgetsInDatabasesAreExactThroughKill9(t *testing.T) {
	tier.Engines(t)
	for name, url := range map[string]func(testing.TB) string{
		"postgres": migrated.Postgres, "mariadb": migrated.MariaDB, "redis": dbtest.Redis,
	} {
		t.Run(name, func(t *testing.T) { budgetsThroughKill9(t, url(t), 2) })
	}
}

func budgetsThroughKill9(t *testing.T, url string, servers int) {
	t.Helper()
	budget := tier.Pick(150, 1000, 1000)
	s := &spending{servers: make([]atomic.Pointer[client.Client], servers), limits: budgets(t, budget)}
	var admitted atomic.Int64
	var refusals [maxCallers]int
	// The kills are spread over budget/2 requests, which cost 1.5 each on average before they are extended and settled.
	throughKill9(t, url, s.servers, budget/2, func(rng *rand.Rand, caller, n int) bool {
		if s.spend(t, rng, fmt.Sprint("caller ", caller, " ", n)) {
			admitted.Add(1)
		} else {
			refusals[caller]++
		}
		return refusals[caller] < 2
	})
	t.Logf("%d requests were admitted", admitted.Load())
	s.check(t)
}

// maxCallers is how many callers throughKill9 has at most.
const maxCallers = 64

// throughKill9 starts servers over a store, and many callers of them, and kills servers while about that many requests
// are made. Callers call do with the number of their request until it returns false.
func throughKill9(t *testing.T, url string, clients []atomic.Pointer[client.Client], requests int,
	do func(rng *rand.Rand, caller, n int) bool,
) {
	t.Helper()
	kills := tier.Pick(2, 5, 5)
	running := make([]*server, len(clients))
	startServer := func(i int) {
		running[i] = start(t, t.TempDir(), "--store", url)
		c, err := client.New(running[i].url, &client.Config{Connections: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		clients[i].Store(c)
	}
	for i := range running {
		startServer(i)
	}
	var made atomic.Int64
	var wg sync.WaitGroup
	for caller := range tier.Pick(16, maxCallers, maxCallers) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(caller), 9))
			for n, more := 0, true; more && !t.Failed(); n++ {
				made.Add(1)
				more = do(rng, caller, n)
			}
		})
	}
	for n := range kills {
		await.Until(t, "requests before the next kill", func() bool {
			return t.Failed() || made.Load() > int64((n+1)*requests/kills)
		})
		i := n % len(clients)
		if err := running[i].cmd.Process.Kill(); err != nil {
			t.Errorf("kill: %v", err)
		}
		_ = running[i].cmd.Wait()
		startServer(i)
	}
	wg.Wait()
}

// check compares the usage of each limit with the counts of the callers.
func (s *spending) check(t *testing.T) {
	anyFull := false
	for i, limit := range s.limits {
		st, err := s.servers[0].Load().Inspect(context.Background(), limit, "k")
		if err != nil {
			t.Fatal(err)
		}
		used, capacity := thousandths(t, st.Used), thousandths(t, st.Capacity)
		minUsed, maxUsed := s.actualCosts[i].Load(), s.chargedCosts[i].Load()
		switch limit.Algorithm().(type) {
		case headgate.TokenBucket, headgate.GCRA:
			minUsed -= 500 // the level drains a little
		default:
			maxUsed = minUsed // these limits take back everything that a settlement leaves
		}
		maxUsed += s.unknownCosts[i].Load()
		if used < minUsed || used > maxUsed || used > capacity {
			t.Errorf("%s: got %d thousandths of %d in use, want %d to %d", limit, used, capacity, minUsed, maxUsed)
		}
		anyFull = anyFull || used > capacity-10_000 // all but 10 units
	}
	if !anyFull {
		t.Error("no limit is full, and all callers were refused")
	}
}
