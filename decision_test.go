package headgate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/deny"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/memory"
)

// TestEachHasTheFiguresOfEveryCharge compares Each with a Check and an Inspect of each charge by itself.
func TestEachHasTheFiguresOfEveryCharge(t *testing.T) {
	c := newClock("2026-11-22T10:00:00Z")
	l := newLimiter(c)
	rng := rand.New(rand.NewPCG(1, 2))
	limits := []headgate.Limit{
		headgate.MustParse("token-bucket 10/1m"), headgate.MustParse("fixed-window 7/1m"),
		headgate.MustParse("sliding-log 5/1m"), headgate.MustParse("sliding-window 9/1m"),
	}
	refusals := 0
	rounds := tier.Pick(400, 3000, 30_000)
	for range rounds {
		c.advance(time.Duration(rng.IntN(5000)) * time.Millisecond)
		rng.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
		charges := make([]headgate.Charge, 2+rng.IntN(3))
		for i := range charges {
			charges[i] = headgate.Charge{
				Limit: limits[i], Key: fmt.Sprint("k", rng.IntN(2)),
				Cost: headgate.Units(int64(1 + rng.IntN(3))),
			}
		}
		var allowedAlone []bool
		for _, charge := range charges {
			d, err := l.Check(t.Context(), charge)
			if err != nil {
				t.Fatal(err)
			}
			allowedAlone = append(allowedAlone, d.Allowed)
		}
		d, err := l.Take(t.Context(), charges...)
		if err != nil || len(d.Each) != len(charges) || d.Allowed == slices.Contains(allowedAlone, false) {
			t.Fatalf("got %+v, %v; the charges alone are allowed: %v", d, err, allowedAlone)
		}
		if !d.Allowed {
			refusals++
		}
		for i, f := range d.Each {
			s, err := l.Inspect(t.Context(), charges[i].Limit, charges[i].Key)
			if err != nil {
				t.Fatal(err)
			}
			want := headgate.ChargeDecision{
				Charge: i, Allowed: allowedAlone[i], LimitName: charges[i].Limit.Name(), Key: charges[i].Key,
				Capacity: int64(s.Capacity.Float64()), Remaining: s.Remaining, RetryAfter: f.RetryAfter,
				NextAfter: f.NextAfter, ResetAfter: max(0, s.EmptyAt.Sub(s.At)),
			}
			if f != want || (f.RetryAfter == 0) != f.Allowed || (f.NextAfter > 0) != (f.Allowed && f.Remaining == 0) {
				t.Fatalf("charge %d of %+v: got %+v, want %+v", i, charges, f, want)
			}
		}
		index := slices.IndexFunc(d.Each, func(f headgate.ChargeDecision) bool {
			return f.LimitName == d.LimitName && f.Key == d.Key
		})
		if f := d.Each[index]; f.Remaining != d.Remaining || f.Capacity != d.Capacity || f.RetryAfter != d.RetryAfter ||
			f.ResetAfter != d.ResetAfter {
			t.Fatalf("the decision is about %+v and says %+v", f, d)
		}
	}
	if refusals < rounds/10 {
		t.Errorf("%d of %d requests were refused, want a tenth or more", refusals, rounds)
	}
}

// TestADecisionAboutOneChargeHasNoEach checks an admission and a refusal of a single charge.
func TestADecisionAboutOneChargeHasNoEach(t *testing.T) {
	l := newLimiter(newClock("2026-11-22T10:00:00Z"))
	for i := range 2 {
		d, err := l.Take(t.Context(), headgate.Charge{Limit: headgate.MustParse("token-bucket 1.5/1h"), Key: "k"})
		if err != nil || d.Allowed != (i == 0) || d.Each != nil || d.Capacity != 1 {
			t.Errorf("request %d: got %+v, %v; want a capacity of 1 and no Each", i, d, err)
		}
	}
}

// TestARepeatedRefusalHasOneChargeInEach checks that Each has only the refused charge if package deny repeats its
// refusal: the store is not called, so the figures of the other charge are unknown.
func TestARepeatedRefusalHasOneChargeInEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { checkRepeatedRefusals(t) }) // deny repeats a refusal for at most a second
}

func checkRepeatedRefusals(t *testing.T) {
	s := deny.New(memory.New(nil))
	defer s.Close()
	l := headgate.New(s, nil)
	large := headgate.Charge{Limit: headgate.MustParse("token-bucket 5/1h"), Key: "k"}
	small := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/1h"), Key: "k"}
	for _, want := range []int{2, 1, 1} { // the first Take empties small, so deny refuses the others
		d, err := l.Take(t.Context(), large, small)
		if err != nil || len(d.Each) != want {
			t.Errorf("got %+v (%v), want the figures of %d charges", d, err, want)
		}
		for _, f := range d.Each {
			if f.Remaining > f.Capacity {
				t.Errorf("%+v: more remains than fits", f)
			}
		}
	}
}
