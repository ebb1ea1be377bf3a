package redis

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
)

// TestReservationsOverSlotsAreThoseOfPackageLaw reserves on random limits of two
// slots, with an ID or without, and asks again, at times after one of them was
// reset or its charge cancelled.
func TestReservationsOverSlotsAreThoseOfPackageLaw(t *testing.T) {
	s := openTest(t, dbtest.RedisCluster(t), nil)
	a, b := apart(t)
	seed := rand.Uint64()
	g := rand.New(rand.NewPCG(seed, 0))
	records := map[law.Cell]*law.Record{}
	now, rounds, admitted, apartAt, anew := testTime, 2000, 0, 0, 0
	if testing.Short() {
		rounds = 200
	}
	for n := range rounds {
		now += g.Int64N(300_000)
		ops, wait := make([]law.Op, 2), g.Int64N(4_000_000)
		var own [2]*law.Record
		for i, key := range []string{a, b} {
			p := law.Params{Kind: law.Bucket, Unit: 1_000_000, Step: 1, Drain: 1 + 2*g.Int64N(3)}
			p.Capacity = p.Unit * (1 + g.Int64N(3))
			op := takeOne(fmt.Sprint(n/100, p), key, p, now)
			op.Cost, op.Late, op.Ceiling = 1+g.Int64N(p.Capacity+p.Capacity/10), true, p.Ceiling(wait)
			ops[i] = op
			if records[op.Cell] == nil {
				records[op.Cell] = &law.Record{}
			}
			own[i] = records[op.Cell]
		}
		if g.IntN(2) == 0 {
			once60(fmt.Sprint(n), ops...)
		}
		prev := [2]int64{own[0].State.Prev, own[1].State.Prev}
		want := make([]law.Outcome, 2)
		law.Apply(ops, want, now, own[:])
		if want[0].StartAt > 0 {
			admitted++
			if own[0].State.Prev > prev[0] || own[1].State.Prev > prev[1] {
				apartAt++
			}
		}
		outs := apply(t, s, ops...)
		for again := false; ; again = true {
			for i, out := range outs {
				if out.Replayed = out.Replayed && !again; out != want[i] {
					t.Fatalf("round %d of seed %d, charge %d of %+v, asked again %v:\n got %+v\nwant %+v", n, seed, i, ops, again, out, want[i])
				}
			}
			if again || ops[0].ID == "" || want[0].StartAt == 0 {
				break
			}
			outs = apply(t, s, ops...)
		}
		if ops[0].ID != "" && want[0].StartAt > 0 && g.IntN(2) == 0 {
			k := g.IntN(2)
			lost := settling(ops[k], law.Cancelled)
			if g.IntN(2) == 0 {
				lost.Verb = law.Reset
			}
			law.Apply([]law.Op{lost}, make([]law.Outcome, 1), now, own[k:k+1])
			apply(t, s, lost)
			now += g.Int64N(500_000)
			ops[0].Now, ops[1].Now = now, now
			law.Apply(ops, want, now, own[:])
			if want[0].StartAt > 0 {
				anew++
			}
			// Of a refused one, a slot that knows it says what was said then.
			for i, out := range apply(t, s, ops...) {
				if out != want[i] && (want[0].StartAt > 0 || !out.Replayed && out.Granted != want[i].Granted) {
					t.Fatalf("round %d of seed %d, charge %d of %+v, anew:\n got %+v\nwant %+v", n, seed, i, ops, out, want[i])
				}
			}
		}
		for i := range ops { // what is stored is what was said
			check := ops[i]
			check.Verb, check.Late, check.ID = law.Check, false, ""
			if out := apply(t, s, check)[0]; out.State != own[i].State {
				t.Fatalf("round %d of seed %d: charge %d: stored %+v, want %+v", n, seed, i, out.State, own[i].State)
			}
		}
	}
	if admitted < rounds/5 || admitted > rounds*9/10 || apartAt < rounds/10 || anew < rounds/20 {
		t.Errorf("%d of %d were admitted, %d anew, of %d one could have started earlier: the limits drawn say little", admitted, rounds, anew, apartAt)
	}
}

// TestReservationsOfAnySizeAreThoseOfPackageLaw draws limits from the whole range
// that is valid, and charges one of them twice at times.
func TestReservationsOfAnySizeAreThoseOfPackageLaw(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	seed := rand.Uint64()
	g := rand.New(rand.NewPCG(seed, 0))
	rounds, now := 6000, testTime
	if testing.Short() {
		rounds = 600
	}
	var limits [3]law.Params
	var records [3]*law.Record
	admitted, later, full := 0, 0, 0
	for n := range rounds {
		if n%8 == 0 {
			for i := range limits {
				records[i] = &law.Record{}
				for limits[i] = drawLimit(g); limits[i].Kind != law.Bucket || limits[i].Anchor != law.Own; {
					limits[i] = drawLimit(g)
				}
			}
		}
		ops, own := make([]law.Op, 1+g.IntN(4)), make([]*law.Record, 0, 4)
		now = min(now+g.Int64N(int64(1)<<(1+g.IntN(44))), 1<<51)
		for i := range ops {
			k := g.IntN(len(limits))
			p := limits[k]
			ops[i] = law.Op{
				Verb: law.Take, Cell: law.Cell{Limit: fmt.Sprint(k), Key: fmt.Sprint(n / 8)}, Params: p, Now: now,
				Cost: value(g, p.Capacity), Count: 1, Late: true, Ceiling: p.Ceiling(value(g, 1<<51)),
			}
			own = append(own, records[k])
		}
		want := make([]law.Outcome, len(ops))
		law.Apply(ops, want, now, own)
		for i, got := range outcomes(t, s, ops...) {
			if got != want[i] {
				t.Fatalf("round %d of seed %d, charge %d of %+v:\n got %+v\nwant %+v", n, seed, i, ops, got, want[i])
			}
		}
		for i := range want {
			switch {
			case want[i].StartAt > now:
				later++
			case want[i].StartAt > 0:
				admitted++
			case want[i].Granted == 0 && want[i].RetryAt != law.Never && want[i].Used <= law.Max-ops[i].Cost:
				full++
			}
		}
	}
	t.Logf("%d start at once, %d later, %d do not fit", admitted, later, full)
	if min(admitted, later, full) < rounds/50 {
		t.Error("the limits drawn say little")
	}
}

// TestReservationsOfManyCellsAreThoseOfPackageLaw draws limits that refill in steps,
// several of a slot, and charges some twice. But for what can be returned to those
// who came before: of a cell that was raised twice it is less.
func TestReservationsOfManyCellsAreThoseOfPackageLaw(t *testing.T) {
	s := openTest(t, dbtest.RedisCluster(t), nil)
	keys := keysApart(3)
	seed := rand.Uint64()
	rounds := 1500
	if testing.Short() {
		rounds = 150
	}
	g := rand.New(rand.NewPCG(seed, 0))
	now, admitted, waits, twice := testTime, 0, 0, 0
	records := map[law.Cell]*law.Record{}
	var limits [3]law.Params
	for n := range rounds {
		if n%50 == 0 {
			for i := range limits {
				switch g.IntN(4) {
				case 0:
					limits[i] = law.Params{Kind: law.Bucket, Unit: 10, Capacity: 50, Step: 1000, Drain: 7}
				case 1:
					limits[i] = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 700, Drain: 900}
				case 2:
					limits[i] = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 2000, Step: 1, Drain: 1}
				default:
					for limits[i] = drawLimit(g); limits[i].Kind != law.Bucket || limits[i].Anchor != law.Own; {
						limits[i] = drawLimit(g)
					}
				}
				limits[i].Block = 0
			}
		}
		now += g.Int64N(2000)
		if g.IntN(10) == 0 {
			now += g.Int64N(20000)
		}
		id := g.IntN(2) == 0
		wait := g.Int64N(30_000)
		var ops []law.Op
		var own []*law.Record
		seen := map[law.Cell]bool{}
		for range 2 + g.IntN(5) {
			i := g.IntN(3)
			p := limits[i]
			op := takeOne(fmt.Sprint(n/50, i), keys[g.IntN(3)], p, now)
			if seen[op.Cell] {
				if id {
					continue
				}
				twice++
			}
			seen[op.Cell] = true
			op.Cost, op.Late, op.Ceiling = value(g, p.Capacity), true, p.Ceiling(wait)
			if records[op.Cell] == nil {
				records[op.Cell] = &law.Record{}
			}
			ops, own = append(ops, op), append(own, records[op.Cell])
		}
		if id {
			once60(fmt.Sprint(n), ops...)
		}
		want := make([]law.Outcome, len(ops))
		law.Apply(ops, want, now, own)
		if want[0].StartAt > 0 {
			admitted++
			if want[0].StartAt > now {
				waits++
			}
		}
		outs := outcomes(t, s, ops...)
		for i := range outs {
			got := outs[i]
			if got.State.Prev > want[i].State.Prev {
				got.State.Prev = want[i].State.Prev
			}
			if got.State.EmptyAt > want[i].State.EmptyAt {
				got.State.EmptyAt = want[i].State.EmptyAt
			}
			if want[0].StartAt > 0 && got != want[i] {
				t.Fatalf("round %d of seed %d, charge %d of %+v\n got %+v\nwant %+v", n, seed, i, ops, got, want[i])
			}
			if want[0].StartAt == 0 && got.StartAt != 0 {
				t.Fatalf("round %d of seed %d: not refused: %+v", n, seed, outs)
			}
		}
		for i := range ops {
			check := ops[i]
			check.Verb, check.Late, check.ID = law.Check, false, ""
			out := apply(t, s, check)[0]
			if out.State.Prev > own[i].State.Prev {
				own[i].State.Prev = out.State.Prev
			}
			if out.State.EmptyAt > own[i].State.EmptyAt {
				own[i].State.EmptyAt = out.State.EmptyAt
			}
			if out.State != own[i].State {
				t.Fatalf("round %d of seed %d, charge %d of %+v stored\n got %+v\nwant %+v", n, seed, i, ops, out.State, own[i].State)
			}
		}
	}
	if waits < rounds/10 || admitted-waits < rounds/20 || rounds-admitted < rounds/20 || twice < rounds/20 {
		t.Errorf("of %d %d were admitted, %d for later, %d charged a key twice: the limits drawn say little", rounds, admitted, waits, twice)
	}
}
