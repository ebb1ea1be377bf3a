package redis

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// TestPlainChargesMatchPackageLaw charges few cells often, by limits that change but mostly keep their unit. The
// numbers are so small that levels become empty or full exactly at a step. Some ops are not plain, and the clock
// sometimes goes back.
func TestPlainChargesMatchPackageLaw(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	seed := newSeed(t)
	g := rand.New(rand.NewPCG(seed, 0))
	batches := tier.Pick(300, 2000, 2000)
	const cells = 6
	var records [cells]*law.Record
	now, admitted, decided := testTime, 0, 0
	for n := range batches {
		if n%20 == 0 { // new cells: the keys below have n/20 in them
			for i := range records {
				records[i] = &law.Record{Log: &sliceLedger{}}
			}
		}
		ops, want := make([]law.Op, 1+g.IntN(12)), make([]law.Outcome, 0, 12)
		now += g.Int64N(40) - 5
		for i := range ops {
			p := law.Params{
				Kind: law.Bucket, Anchor: law.Anchor(g.IntN(2)), Unit: 3, Capacity: 6 + 6*g.Int64N(3),
				Step: 1 + 4*g.Int64N(3), Drain: 1 + g.Int64N(4),
			}
			switch g.IntN(30) {
			case 0:
				p.Block = 1 + g.Int64N(20)
			case 1:
				p.Unit = 2
			}
			k := g.IntN(cells)
			ops[i] = law.Op{
				Verb: law.Take, Group: uint32(i), Cell: law.Cell{Limit: "l", Key: fmt.Sprint(n/20, k)}, Params: p,
				Cost: 1 + g.Int64N(8), Count: 1 + g.Int64N(2)*g.Int64N(3), Now: now,
			}
			switch g.IntN(20) {
			case 0:
				ops[i].Verb = law.Check
			case 1:
				ops[i].Verb, ops[i].TTL = law.Block, g.Int64N(10)
			case 2:
				ops[i].Ceiling = 1 + g.Int64N(20)
			case 3, 4, 5:
				ops[i].Partial = true
			case 6:
				ops[i].Now -= law.PlainSlack + g.Int64N(3) // at or past the slack, where a cell is healed
			}
			out := make([]law.Outcome, 1)
			law.Apply(ops[i:i+1], out, testTime, []*law.Record{records[k]})
			want = append(want, out[0])
		}
		for i, got := range apply(t, s, ops...) {
			if got != want[i] {
				t.Fatalf("batch %d of seed %d, op %d of %+v:\n got %+v\nwant %+v", n, seed, i, ops, got, want[i])
			}
			if decided++; got.Granted > 0 {
				admitted++
			}
		}
	}
	if admitted < decided/5 || admitted > decided*4/5 {
		t.Errorf("got %d of %d admitted, want 20%% to 80%%: the limits drawn prove little", admitted, decided)
	}
}
