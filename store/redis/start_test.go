package redis

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// TestReservationsOfAnySizeMatchPackageLaw draws buckets of any size. Some requests charge one of them twice.
func TestReservationsOfAnySizeMatchPackageLaw(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	seed := newSeed(t)
	g := rand.New(rand.NewPCG(seed, 0))
	rounds, now := tier.Pick(600, 6000, 6000), testTime
	var limits [3]law.Params
	var records [3]*law.Record
	var immediateStarts, delayedStarts, refusals int
	for n := range rounds {
		if n%8 == 0 {
			for i := range limits {
				records[i] = &law.Record{}
				for limits[i] = randomLimit(g); limits[i].Kind != law.Bucket || limits[i].Anchor != law.Own; {
					limits[i] = randomLimit(g)
				}
			}
		}
		ops, opRecords := make([]law.Op, 1+g.IntN(4)), make([]*law.Record, 0, 4)
		now = min(now+g.Int64N(int64(1)<<(1+g.IntN(44))), 1<<51)
		for i := range ops {
			k := g.IntN(len(limits))
			p := limits[k]
			ops[i] = law.Op{
				Verb: law.Take, Cell: law.Cell{Limit: fmt.Sprint(k), Key: fmt.Sprint(n / 8)}, Params: p, Now: now,
				Cost: randomValue(g, p.Capacity), Count: 1, Deferred: true, Ceiling: p.Ceiling(randomValue(g, 1<<51)),
			}
			opRecords = append(opRecords, records[k])
		}
		want := make([]law.Outcome, len(ops))
		law.Apply(ops, want, now, opRecords)
		for i, got := range outcomes(t, s, ops...) {
			if got != want[i] {
				t.Fatalf("round %d of seed %d, charge %d of %+v:\n got %+v\nwant %+v", n, seed, i, ops, got, want[i])
			}
		}
		for i := range want {
			switch {
			case want[i].StartAt > now:
				delayedStarts++
			case want[i].StartAt > 0:
				immediateStarts++
			case want[i].Granted == 0 && want[i].RetryAt != law.Never && want[i].Used <= law.Max-ops[i].Cost:
				refusals++
			}
		}
	}
	t.Logf("%d charges start at once, %d later, %d are refused", immediateStarts, delayedStarts, refusals)
	if min(immediateStarts, delayedStarts, refusals) < rounds/50 {
		t.Errorf("want %d of each at least: else the limits drawn prove little", rounds/50)
	}
}
