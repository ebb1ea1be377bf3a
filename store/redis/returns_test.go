package redis

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// TestCorrectionsOfAnySizeMatchPackageLaw draws limits of any size. It refunds charges in part or whole, debits up to
// law.Max, settles and renews.
func TestCorrectionsOfAnySizeMatchPackageLaw(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	seed := newSeed(t)
	g := rand.New(rand.NewPCG(seed, 0))
	cells := tier.Pick(250, 2500, 2500)
	var corrections, refunds, fullRefunds, debits int
	for n := range cells {
		p := randomLimit(g)
		record, now := &law.Record{Log: &sliceLedger{}, Receipts: mapReceipts{}}, testTime
		var admitted []law.Op
		var outs []law.Outcome
		for k := range 12 {
			now += g.Int64N(1+p.Step*g.Int64N(3)/2) - g.Int64N(2)
			op := law.Op{
				Verb: law.Take, Cell: law.Cell{Limit: "l", Key: fmt.Sprint(n)}, Params: p,
				Cost: randomValue(g, p.Capacity), Count: 1, Now: now,
			}
			if g.IntN(3) == 0 {
				op.Ceiling = min(2*p.Capacity, law.Max)
				if p.Kind == law.Window {
					op.Ceiling = min(op.Ceiling, 1<<32-1)
				}
			}
			if g.IntN(2) == 0 {
				op.ID, op.TTL = fmt.Sprint(k), randomValue(g, 1<<52)
			}
			if len(admitted) > 0 && g.IntN(2) == 0 {
				op = correction(g, admitted, outs)
				op.Now = now
			}
			if op.Valid() != nil {
				continue
			}
			want := make([]law.Outcome, 1)
			before := record.State
			law.Apply([]law.Op{op}, want, testTime, []*law.Record{record})
			got := outcomes(t, s, op)[0]
			record.Log.(*sliceLedger).applyRecord(record, got.EntryNumber)
			if want[0].EntryNumber = got.EntryNumber; got != want[0] {
				t.Fatalf("cell %d of seed %d: %+v on %+v:\n got %+v\nwant %+v", n, seed, op, before, got, want[0])
			}
			switch {
			case op.Verb == law.Return || op.Verb == law.Settle && got.Err == nil:
				corrections++
				switch {
				case got.Granted < 0:
					debits++
				case got.Granted > 0:
					refunds++
					if got.Granted == op.Cost {
						fullRefunds++
					}
				}
			case op.Verb == law.Take && got.Granted > 0:
				admitted, outs = append(admitted, op), append(outs, got)
			}
		}
	}
	t.Logf("%d corrections: %d refunds, of which %d in full, and %d debits", corrections, refunds, fullRefunds, debits)
	if refunds < corrections/10 || refunds > corrections*9/10 || debits < corrections/10 || fullRefunds == refunds {
		t.Error("the limits drawn prove little: there are too few refunds, refusals, debits or refunds in part")
	}
}

// correction returns a random refund, debit, settlement or renewal of one of the admitted charges.
func correction(g *rand.Rand, admitted []law.Op, outs []law.Outcome) law.Op {
	k := g.IntN(len(admitted))
	op := law.Back(&admitted[k], &outs[k], randomValue(g, admitted[k].Cost))
	switch g.IntN(6) {
	case 0, 1:
		op.Cost = -randomValue(g, law.Max)
	case 2, 3:
		if admitted[k].ID != "" {
			op = settleOp(admitted[k], randomValue(g, law.Max)-1)
			op.Ceiling = 0
		}
	case 4:
		if outs[k].EntryNumber > 0 {
			op.Verb, op.Cost = law.Renew, 1
			if g.IntN(2) == 0 {
				op.Params.Step = randomValue(g, 1<<46)
			}
		}
	}
	return op
}

// randomLimit returns a random valid limit of any size that may drain several times during a test.
func randomLimit(g *rand.Rand) law.Params {
	for {
		p := law.Params{
			Kind: law.Kind(1 + g.IntN(3)), Anchor: law.Anchor(g.IntN(2)), Unit: randomValue(g, law.Max),
			Capacity: randomValue(g, law.Max),
			Step:     randomValue(g, 1<<46),
		}
		if p.Kind == law.Window {
			p.Capacity = randomValue(g, 1<<32-1)
		}
		p.Drain = max(p.Capacity/randomValue(g, 100), 1)
		if g.IntN(4) == 0 {
			p.History = randomValue(g, 1<<40)
		}
		if p.Valid() == nil {
			return p
		}
	}
}

// TestARefusalOfAFullLevelIsExact checks RetryAt where the sum of level and cost is beyond 2^53.
func TestARefusalOfAFullLevelIsExact(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	p := law.Params{Kind: law.Bucket, Unit: law.Max, Capacity: law.Max - 1, Step: 1000, Drain: law.Max - 1}
	op := takeOne("l", "k", p, testTime)
	op.Cost = 1
	out := apply(t, s, op)[0]
	apply(t, s, law.Back(&op, &out, -law.Max)) // a debit
	op.Cost = p.Capacity
	if out := apply(t, s, op)[0]; out.State.Level != law.Max || out.RetryAt != testTime+2*p.Step {
		t.Errorf("got %+v, want RetryAt %d", out, testTime+2*p.Step)
	}
}
