package headgate_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func TestClosedRefusesAndUnlimitedAdmitsEverything(t *testing.T) {
	c := newClock("2026-11-22T10:00:00Z")
	l := newLimiter(c)
	closed, unlimited := headgate.MustParse("0"), headgate.MustParse("unlimited")
	for _, text := range []string{"0.000000001", "0.0000005", "0.000001", "0.5", "1", "9007199254740991"} {
		cost, err := headgate.ParseCost(text)
		if err != nil {
			t.Fatal(err)
		}
		d, err := l.Take(t.Context(), headgate.Charge{Limit: closed, Key: "k", Cost: cost})
		if err != nil || d.Allowed || d.RetryAfter != headgate.Never || d.Remaining != 0 {
			t.Errorf("closed, cost %s: %+v, %v; want a refusal with RetryAfter Never", text, d, err)
		}
		f, err := l.FillUp(t.Context(), headgate.Charge{Limit: closed, Key: "k", Cost: cost})
		if err != nil || f.Accepted.String() != "0" {
			t.Errorf("closed, filled up with %s: %+v, %v; want nothing accepted", text, f, err)
		}
	}
	for range 3 {
		for _, cost := range []int64{1, 9_007_199_254_740} {
			d, err := l.Take(t.Context(), headgate.Charge{Limit: unlimited, Key: "k", Cost: headgate.Units(cost)})
			if err != nil || !d.Allowed {
				t.Errorf("unlimited, cost %d: %+v, %v; want an admission", cost, d, err)
			}
			c.advance(time.Microsecond)
		}
	}
	if got := closed.Bound().In(time.Hour); got.String() != "0" {
		t.Errorf("a closed limit lets %s pass in an hour, want 0", got)
	}
	if err := headgate.ValidName("unlimited"); err == nil {
		t.Error("ValidName(unlimited) returned nil, want an error: it is a notation")
	}
}
