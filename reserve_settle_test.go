package headgate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// TestSettlingInAnotherOrder checks that windows give back all unused cost in any order, and buckets only if charges
// are settled in the order in which they were made. The usage is never too low. docs/algorithms.md has the figures.
func TestSettlingInAnotherOrder(t *testing.T) {
	t.Parallel()
	const streams = 10
	for notation, want := range map[string]struct{ first, last string }{
		"token-bucket 150/31d": {"10", "50"}, "leaky-bucket 150/31d capacity 150": {"10", "50"}, "gcra 150/31d": {"10", "50"},
		"fixed-window 150/31d": {"10", "10"}, "sliding-window 150/31d": {"10", "10"}, "sliding-log 150/31d": {"10", "10"},
	} {
		for order, used := range map[string]string{"first first": want.first, "last first": want.last} {
			now := int64(1795600000_000000)
			limiter := headgate.New(memory.New(&memory.Config{Clock: func() int64 { return now }}), nil)
			limit := headgate.MustParse(notation)
			charge := func(n int64) headgate.Charge {
				return headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(n)}
			}
			once := make([]headgate.Once, streams)
			for i := range once {
				once[i] = limiter.Once(fmt.Sprint(i), time.Hour)
				if d, err := once[i].Take(t.Context(), charge(10)); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
			}
			for i := range once {
				if order == "last first" {
					i = streams - 1 - i
				}
				if _, err := once[i].Settle(t.Context(), charge(1)); err != nil {
					t.Fatal(err)
				}
			}
			s, err := limiter.Inspect(t.Context(), limit, "k")
			if err != nil || s.Used.String() != used {
				t.Errorf("%s, settled %s: %s in use, %v; want %s", notation, order, s.Used, err, used)
			}
		}
	}
}
