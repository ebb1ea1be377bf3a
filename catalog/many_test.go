package catalog_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/postgres"
)

// TestManyAssignments gives 20,000 keys a plan, and looks up more of them than a process caches. A cached key may take
// up to 1000 bytes. HEADGATE_TEST_ASSIGNMENTS changes the number of keys; 1,000,000 take five minutes.
func TestManyAssignments(t *testing.T) {
	tier.Engines(t)
	keys := 20_000
	if n, err := strconv.Atoi(os.Getenv("HEADGATE_TEST_ASSIGNMENTS")); err == nil {
		keys = n
	}
	const cacheSize = 5000
	s, err := postgres.Open(t.Context(), migrated.Postgres(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	writer := open(t, s)
	mustSet(t, writer, define(t, "login", "token-bucket 5/1m"))
	mustSucceed(t)(writer.SetPlans(t.Context(), admin, catalog.Plan{
		Name: "pro", Limits: []headgate.Limit{limit(t, "login", "token-bucket 10/1m")},
	}))
	begin := time.Now()
	for start := 0; start < keys; start += 50_000 {
		var list []catalog.Assignment
		for i := start; i < min(keys, start+50_000); i++ {
			list = append(list, catalog.Assignment{Plan: "pro", Key: fmt.Sprint("customer-", i)})
		}
		mustSucceed(t)(writer.Assign(t.Context(), admin, list...))
	}
	t.Logf("%d keys got a plan in %v", keys, time.Since(begin).Round(time.Millisecond))

	c, err := catalog.Open(t.Context(), s, &catalog.Config{Keys: cacheSize})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	find := func(i int) {
		l, err := c.Find(t.Context(), "login", fmt.Sprint("customer-", i))
		if err != nil || l.Params().Capacity/l.Params().Unit != 10 {
			t.Fatalf("customer %d: got %v, %v; want a capacity of 10", i, l, err)
		}
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	heapBefore := heap()
	lookups := min(keys, 4*cacheSize)
	begin = time.Now()
	for i := range lookups {
		find(i)
	}
	t.Logf("a key that is not cached takes %v", time.Since(begin)/time.Duration(lookups))
	growth := heap() - heapBefore
	t.Logf("after %d keys the heap has %d bytes more, %d for each of %d that are cached",
		lookups, growth, growth/cacheSize, cacheSize)
	if maxGrowth := int64(cacheSize * 1000); growth > maxGrowth {
		t.Errorf("got a heap of %d bytes more, want %d at most", growth, maxGrowth)
	}
	begin = time.Now()
	for range 100_000 {
		find(lookups - 1)
	}
	t.Logf("a cached key takes %v", time.Since(begin)/100_000)

	// After the plan of one key is removed, the next read of the catalog drops the cached entry.
	mustSucceed(t)(writer.Unassign(t.Context(), admin, fmt.Sprint("customer-", keys-1), false))
	await.Until(t, "the limit without the plan", func() bool {
		l, err := c.Find(t.Context(), "login", fmt.Sprint("customer-", keys-1))
		return err == nil && l.Params().Capacity/l.Params().Unit == 5
	})
}
