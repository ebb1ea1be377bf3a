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

// TestManyAssignments gives very many keys a plan, and looks up more of them than a process caches.
// HEADGATE_TEST_ASSIGNMENTS is how many keys; 1,000,000 take five minutes.
func TestManyAssignments(t *testing.T) {
	tier.Engines(t)
	many := 20_000
	if n, err := strconv.Atoi(os.Getenv("HEADGATE_TEST_ASSIGNMENTS")); err == nil {
		many = n
	}
	const remembered = 5000
	s, err := postgres.Open(t.Context(), migrated.Postgres(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	writer := open(t, s)
	set(t, writer, limit(t, "login", "token-bucket 5/1m"))
	mustSucceed(t)(writer.SetPlans(t.Context(), admin, catalog.Plan{
		Name: "pro", Limits: []headgate.Limit{named(t, "login", "token-bucket 10/1m")},
	}))
	begin := time.Now()
	for from := 0; from < many; from += 50_000 {
		var list []catalog.Assignment
		for i := from; i < min(many, from+50_000); i++ {
			list = append(list, catalog.Assignment{Plan: "pro", Key: fmt.Sprint("customer-", i)})
		}
		mustSucceed(t)(writer.Assign(t.Context(), admin, list...))
	}
	t.Logf("%d keys got a plan in %v", many, time.Since(begin).Round(time.Millisecond))

	c, err := catalog.Open(t.Context(), s, &catalog.Config{Keys: remembered})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	find := func(i int) {
		l, err := c.Find(t.Context(), "login", fmt.Sprint("customer-", i))
		if err != nil || l.Params().Capacity/l.Params().Unit != 10 {
			t.Fatalf("customer %d: %v, %v", i, l, err)
		}
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	asked := min(many, 4*remembered)
	begin = time.Now()
	for i := range asked {
		find(i)
	}
	t.Logf("a key that is not remembered takes %v", time.Since(begin)/time.Duration(asked))
	grown := heap() - before
	t.Logf("after %d keys the heap has %d bytes more, %d for each of %d that may be remembered",
		asked, grown, grown/remembered, remembered)
	if most := int64(remembered * 1000); grown > most {
		t.Errorf("the heap has grown by %d bytes, want %d at most", grown, most)
	}
	begin = time.Now()
	for range 100_000 {
		find(asked - 1)
	}
	t.Logf("a key that is remembered takes %v", time.Since(begin)/100_000)

	// One key is changed: the next read sees the change.
	mustSucceed(t)(writer.Unassign(t.Context(), admin, fmt.Sprint("customer-", many-1), false))
	await.Until(t, "the plan is gone", func() bool {
		l, err := c.Find(t.Context(), "login", fmt.Sprint("customer-", many-1))
		return err == nil && l.Params().Capacity/l.Params().Unit == 5
	})
}
