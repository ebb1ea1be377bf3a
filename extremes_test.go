package headgate_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

func TestNothingPassesAClosedLimitAndEverythingAnUnlimitedOne(t *testing.T) {
	l := headgate.New(memory.New(nil), nil)
	closed, unlimited := headgate.MustParse("0"), headgate.MustParse("unlimited")
	for _, cost := range []string{"0.000001", "0.5", "1", "4503599627"} {
		c, err := headgate.ParseCost(cost)
		if err != nil {
			t.Fatal(err)
		}
		d, err := l.Take(t.Context(), headgate.Charge{Limit: closed, Key: "k", Cost: c})
		if err != nil || d.Allowed || d.RetryAfter != headgate.Never || d.Remaining != 0 {
			t.Errorf("closed, cost %s: %+v, %v; want a refusal for ever", cost, d, err)
		}
	}
	for range 3 {
		for _, cost := range []int64{1, 9_007_199_254_740} {
			d, err := l.Take(t.Context(), headgate.Charge{Limit: unlimited, Key: "k", Cost: headgate.Units(cost)})
			if err != nil || !d.Allowed {
				t.Errorf("unlimited, cost %d: %+v, %v", cost, d, err)
			}
			time.Sleep(2 * time.Millisecond) // for the clock of the store, which may be coarse
		}
	}
	if got := closed.Bound().In(time.Hour); got.String() != "0" {
		t.Errorf("a closed limit lets %s pass in an hour", got)
	}
	if err := headgate.ValidName("unlimited"); err == nil {
		t.Error("a limit may have the name unlimited, which is a notation")
	}
}
