package headgate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// TestSettleInEitherOrder settles ten charges of 10 at 1 each. Windows and logs give back all unused cost in any order,
// buckets only if charges are settled in the order in which they were made. docs/algorithms.md has the figures.
func TestSettleInEitherOrder(t *testing.T) {
	t.Parallel()
	const requestCount = 10
	// The usage in the end, if the first or the last charge is settled first. 10 is the sum of the actual costs.
	for notation, want := range map[string]struct{ firstFirst, lastFirst string }{
		"token-bucket 150/31d": {"10", "50"}, "leaky-bucket 150/31d capacity 150": {"10", "50"}, "gcra 150/31d": {"10", "50"},
		"fixed-window 150/31d": {"10", "10"}, "sliding-window 150/31d": {"10", "10"}, "sliding-log 150/31d": {"10", "10"},
	} {
		for order, wantUsed := range map[string]string{"first first": want.firstFirst, "last first": want.lastFirst} {
			now := int64(1795600000_000000)
			limiter := headgate.New(memory.New(&memory.Config{Clock: func() int64 { return now }}), nil)
			limit := headgate.MustParse(notation)
			charge := func(n int64) headgate.Charge {
				return headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(n)}
			}
			requests := make([]headgate.Once, requestCount)
			for i := range requests {
				requests[i] = limiter.Once(fmt.Sprint(i), time.Hour)
				if d, err := requests[i].Take(t.Context(), charge(10)); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
			}
			for i := range requests {
				if order == "last first" {
					i = requestCount - 1 - i // the last charge first
				}
				if _, err := requests[i].Settle(t.Context(), charge(1)); err != nil {
					t.Fatal(err)
				}
			}
			s, err := limiter.Inspect(t.Context(), limit, "k")
			if err != nil || s.Used.String() != wantUsed {
				t.Errorf("%s, settled %s: %s in use, %v; want %s", notation, order, s.Used, err, wantUsed)
			}
		}
	}
}
