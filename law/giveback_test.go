package law_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/law"
)

func TestAReturnGivesBackNoMoreThanStillCounts(t *testing.T) {
	t.Parallel()
	window := law.Params{Kind: law.Window, Unit: 1000, Capacity: 5000, Step: 10 * second}
	log := law.Params{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 10 * second}
	fixed := law.Params{
		Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: 10 * second,
		Drain: law.Max,
	}
	type charge struct{ at, credits int64 }
	for _, tt := range []struct {
		name        string
		p           law.Params
		charges     []charge
		at, credits int64 // when, and how much of the first charge is given back
		want, inUse int64 // credits given back, and in use after that
	}{
		{"at once, all of it", bucketOf5, []charge{{0, 3000}}, 0, 3000, 3000, 0},
		{"half", bucketOf5, []charge{{0, 3000}}, 0, 1500, 1500, 1500},
		{"what has not drained", bucketOf5, []charge{{0, 3000}}, 2 * second, 3000, 1000, 0},
		{"nothing once all has drained", bucketOf5, []charge{{0, 3000}}, 3 * second, 3000, 0, 0},
		{
			"what has not drained, where others came later", bucketOf5,
			[]charge{{0, 3000}, {2 * second, 4000}},
			2 * second, 3000, 1000, 4000,
		},
		{"a window, while it lasts", window, []charge{{0, 3000}}, 9 * second, 3000, 3000, 0},
		{"nothing of a window that is over", window, []charge{{0, 3000}}, 10 * second, 3000, 0, 3000},
		{"a fixed window, while it lasts", fixed, []charge{{0, 3000}, {0, 1000}}, 9 * second, 3000, 3000, 1000},
		{"nothing of a fixed window that is over", fixed, []charge{{0, 3000}}, 10 * second, 3000, 0, 0},
		{
			"an entry of the log, while it counts", log,
			[]charge{{0, 3000}, {second, 1000}},
			9 * second, 2000,
			2000, 2000,
		},
		{
			"nothing of an entry that counts no more", log,
			[]charge{{0, 3000}, {second, 1000}},
			10 * second,
			3000, 0, 1000,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const from = start - start%(10*second) // the begin of a window by the epoch
			var c cell
			var ops []law.Op
			var outs []law.Outcome
			for _, ch := range tt.charges {
				ops = append(ops, take(tt.p, ch.credits))
				outs = append(outs, c.apply(ops[len(ops)-1], from+ch.at))
			}
			out := c.apply(law.Back(&ops[0], &outs[0], tt.credits), from+tt.at)
			if out.Err != nil || out.Granted != tt.want || out.Used != tt.inUse {
				t.Errorf("gave back %d, %d in use (%v); want %d, %d", out.Granted, out.Used, out.Err,
					tt.want, tt.inUse)
			}
		})
	}
}

// TestAReturnBringsEmptyAtNoNearer checks that neither a return nor the next charge brings EmptyAt nearer. A cell that
// is swept forgets what was returned to it, so it has to stay until no charge can be returned any more.
func TestAReturnBringsEmptyAtNoNearer(t *testing.T) {
	t.Parallel()
	var c cell
	op := take(bucketOf5, 2500)
	firstOut, secondOut := c.apply(op, start), c.apply(op, start)
	c.apply(law.Back(&op, &firstOut, 2500), start)
	if got := c.State.EmptyAt; got != secondOut.State.EmptyAt {
		t.Errorf("after a return: empty at +%d us, want +%d", got-start, secondOut.State.EmptyAt-start)
	}
	if out := c.apply(take(bucketOf5, 500), secondOut.State.EmptyAt-1_500_000); out.State.EmptyAt <
		secondOut.State.EmptyAt {
		t.Errorf("after the next charge: %+v, want EmptyAt no nearer", out)
	}
}

// TestReturnsAdmitNothingBeyondTheLimit gives back random parts of random charges. In no interval may the rest of the
// charges exceed the bound. (A rule that gives everything back fails here.)
func TestReturnsAdmitNothingBeyondTheLimit(t *testing.T) {
	t.Parallel()
	for _, p := range []law.Params{
		{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1, Drain: 1},
		{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 700, Drain: 900},
		{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 4000, Drain: 2000},
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: 2000, Drain: 2000},
		{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 4000},
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: 4000, Drain: law.Max},
	} {
		returned := int64(0)
		for seed := range rounds(3000) {
			returned += checkReturns(t, p, rand.New(rand.NewPCG(seed, 1)))
		}
		if returned == 0 {
			t.Errorf("%+v: nothing was given back in any history", p)
		}
	}
}

// checkReturns checks one random history, and returns how many credits were given back in it.
func checkReturns(t *testing.T, p law.Params, rng *rand.Rand) (returned int64) {
	charges, returned := randomHistory(rng, 1500, p)
	for i := range charges {
		var sum int64
		for j := i; j < len(charges); j++ {
			if sum += charges[j].remaining; sum > maxCredits(p, charges[i].at, charges[j].at) {
				t.Fatalf("%+v: %d credits passed in %d us, above the bound", p, sum, charges[j].at-charges[i].at)
			}
		}
	}
	return returned
}

// charge is an admitted charge of a history.
type charge struct {
	op        law.Op
	out       law.Outcome
	at        int64
	remaining int64 // the cost less the part that is unused
}

// randomHistory makes 40 random steps on a cell, with pauses of less than maxPause. A step charges under one of the
// limits, or gives back a random part of a charge that is still whole. randomHistory returns the admitted charges, and
// how many credits were given back.
func randomHistory(rng *rand.Rand, maxPause int64, limits ...law.Params) (charges []charge, returned int64) {
	var c cell
	now := start
	for range 40 {
		now += rng.Int64N(maxPause)
		if n := len(charges); n > 0 && rng.IntN(2) == 0 {
			ch := &charges[rng.IntN(n)]
			if ch.remaining < ch.op.Cost {
				continue
			}
			unused := 1 + rng.Int64N(ch.op.Cost)
			returned += c.apply(law.Back(&ch.op, &ch.out, unused), now).Granted
			ch.remaining -= unused
			continue
		}
		p := limits[rng.IntN(len(limits))]
		op := take(p, 1+rng.Int64N(p.Capacity))
		if out := c.apply(op, now); out.Granted == 1 {
			charges = append(charges, charge{op, out, now, op.Cost})
		}
	}
	return charges, returned
}

// maxCredits returns the most credits that may pass from one time to another, both included.
func maxCredits(p law.Params, from, to int64) int64 {
	switch {
	case p.Kind == law.Log:
		return p.Capacity * (1 + (to-from)/p.Step)
	case p.Anchor == law.Epoch:
		return p.Capacity + min(p.Drain, p.Capacity)*(to/p.Step-from/p.Step)
	}
	steps := (to - from) / p.Step
	if (to-from)%p.Step > 0 && p.Step > 1 {
		steps++ // one more step can fall between
	}
	return p.Capacity + steps*p.Drain
}

// TestReturnedReservationsStartNoOtherTooEarly reserves beyond the capacity of one or several limits, and gives some
// reservations back: all of one before or after its start, or a part after its start. In no interval may more credits
// start than the bound.
func TestReturnedReservationsStartNoOtherTooEarly(t *testing.T) {
	t.Parallel()
	returned := int64(0)
	for _, limits := range [][]law.Params{
		{{Kind: law.Bucket, Unit: 1000, Capacity: 2000, Step: 1, Drain: 1}},
		{{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1, Drain: 1}},
		{{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 700, Drain: 900}},
		{
			{Kind: law.Bucket, Unit: 1000, Capacity: 2000, Step: 1, Drain: 1},
			{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 700, Drain: 900},
			{Kind: law.Bucket, Unit: 1000, Capacity: 9000, Step: 3, Drain: 2},
		},
	} {
		for seed := range rounds(4000) {
			returned += checkReservations(t, limits, rand.New(rand.NewPCG(seed, 2)))
		}
	}
	if returned == 0 {
		t.Error("nothing was given back in any history")
	}
}

// checkReservations checks one random history, and returns how many credits were given back in it.
func checkReservations(t *testing.T, limits []law.Params, rng *rand.Rand) (returned int64) {
	type request struct {
		ops        []law.Op
		outs       []law.Outcome
		limitIndex []int // for each op, the index of its limit
		start      int64
		remaining  []int64 // for each limit, the cost less the part that is unused
		isReturned bool
	}
	cells := make([]cell, len(limits))
	var requests []*request
	now := start
	for range 40 {
		now += rng.Int64N(1200)
		if n := len(requests); n > 0 && rng.IntN(2) == 0 {
			r := requests[rng.IntN(n)]
			if r.isReturned {
				continue // each request is given back once
			}
			r.isReturned = true
			isPartial := r.start <= now && rng.IntN(2) == 0
			for k, i := range r.limitIndex {
				unused := r.ops[k].Cost
				if isPartial {
					unused = 1 + rng.Int64N(unused)
				}
				returned += cells[i].apply(law.Back(&r.ops[k], &r.outs[k], unused), now).Granted
				r.remaining[i] -= unused
			}
			continue
		}
		r := &request{remaining: make([]int64, len(limits))}
		wait := rng.Int64N(20_000)
		var records []*law.Record
		for _, i := range rng.Perm(len(limits))[:1+rng.IntN(len(limits))] {
			op := take(limits[i], 1+rng.Int64N(limits[i].Capacity))
			op.Deferred, op.Ceiling = true, limits[i].Ceiling(wait)
			op.Cell.Limit, op.Now = fmt.Sprint(i), now
			r.ops, r.limitIndex, r.remaining[i] = append(r.ops, op), append(r.limitIndex, i), op.Cost
			records = append(records, cells[i].Record())
		}
		r.outs = make([]law.Outcome, len(r.ops))
		law.Apply(r.ops, r.outs, now, records)
		for k, i := range r.limitIndex {
			cells[i].Write(records[k], &cells[i].lastEntry)
		}
		if r.start = r.outs[0].StartAt; r.outs[0].Err != nil {
			t.Fatal(r.outs[0].Err)
		}
		if r.start > 0 {
			requests = append(requests, r)
		}
		if r.start > now+wait+700 { // a start is put off to the end of a step, of at most 700 us
			t.Fatalf("a request starts after %d us, want at most %d", r.start-now, wait+700)
		}
	}
	for i, p := range limits {
		for _, first := range requests {
			for _, last := range requests {
				from, to := first.start, last.start
				if to < from {
					continue
				}
				var sum int64
				for _, r := range requests {
					if r.start >= from && r.start <= to {
						sum += r.remaining[i]
					}
				}
				if sum > maxCredits(p, from, to) {
					t.Fatalf("%+v: %d credits start in %d us, want at most %d", p, sum, to-from, maxCredits(p, from, to))
				}
			}
		}
	}
	return returned
}

// TestAFixedWindowGivesBackChargesInAnyOrder charges a window several times, and gives random parts of the charges back
// in random order: all that is asked for until the window ends, even while more is in use than the capacity.
func TestAFixedWindowGivesBackChargesInAnyOrder(t *testing.T) {
	t.Parallel()
	const from = start - start%(10*second) // the begin of a window by the epoch
	for name, anchor := range map[string]law.Anchor{"own": law.Own, "epoch": law.Epoch, "calendar": law.Calendar} {
		p := law.Params{
			Kind: law.Bucket, Anchor: anchor, Unit: 1000, Capacity: 30_000, Step: 10 * second, Drain: law.Max,
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for range 50 {
			var c cell
			var ops []law.Op
			var outs []law.Outcome
			apply := func(op law.Op, at int64) law.Outcome {
				op.Window = [4]int64{from - 10*second, from, from + 10*second, from + 20*second}
				return c.apply(op, at)
			}
			for i := range 5 {
				op := take(p, 1+rng.Int64N(5000))
				ops, outs = append(ops, op), append(outs, apply(op, from+int64(i)))
			}
			debit := law.Back(&ops[0], &outs[0], -20_000)
			if out := apply(debit, from+second); out.Granted != -20_000 {
				t.Fatalf("%s: charged %d more, want 20000", name, -out.Granted)
			}
			for _, i := range rng.Perm(len(ops)) {
				credits := 1 + rng.Int64N(ops[i].Cost)
				if out := apply(law.Back(&ops[i], &outs[i], credits), from+2*second); out.Granted != credits {
					t.Fatalf("%s: gave back %d of %d: %+v", name, out.Granted, credits, out)
				}
			}
			if out := apply(law.Back(&ops[4], &outs[4], 1), from+10*second); out.Granted != 0 {
				t.Fatalf("%s: gave back %d of a window that is over", name, out.Granted)
			}
		}
	}
}
