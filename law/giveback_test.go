package law_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/law"
)

func TestGiveBack(t *testing.T) {
	t.Parallel()
	window := law.Params{Kind: law.Window, Unit: 1000, Capacity: 5000, Step: 10 * second}
	log := law.Params{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 10 * second}
	hour := law.Params{
		Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: 10 * second,
		Drain: law.Max,
	}
	type charge struct{ at, credits int64 }
	for _, tt := range []struct {
		name          string
		p             law.Params
		charges       []charge // the first is given back
		at, credits   int64
		given, remain int64
	}{
		{"at once, all of it", five, []charge{{0, 3000}}, 0, 3000, 3000, 0},
		{"half", five, []charge{{0, 3000}}, 0, 1500, 1500, 1500},
		{"what has not drained", five, []charge{{0, 3000}}, 2 * second, 3000, 1000, 0},
		{"nothing once all has drained", five, []charge{{0, 3000}}, 3 * second, 3000, 0, 0},
		{
			"no more than drains until its end, where others came later", five,
			[]charge{{0, 3000}, {2 * second, 4000}},
			2 * second, 3000, 1000, 4000,
		},
		{"a window, while it lasts", window, []charge{{0, 3000}}, 9 * second, 3000, 3000, 0},
		{"nothing of a window that is over", window, []charge{{0, 3000}}, 10 * second, 3000, 0, 3000},
		{"a fixed window, while it lasts", hour, []charge{{0, 3000}, {0, 1000}}, 9 * second, 3000, 3000, 1000},
		{"nothing of a fixed window that is over", hour, []charge{{0, 3000}}, 10 * second, 3000, 0, 0},
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
			const from = start - start%(10*second)
			var c cell
			var ops []law.Op
			var outs []law.Outcome
			for _, ch := range tt.charges {
				ops = append(ops, take(tt.p, ch.credits))
				outs = append(outs, c.apply(ops[len(ops)-1], from+ch.at))
			}
			out := c.apply(law.Back(&ops[0], &outs[0], tt.credits), from+tt.at)
			if out.Err != nil || out.Granted != tt.given || out.Used != tt.remain {
				t.Errorf("gave back %d, %d remain (%v); want %d, %d", out.Granted, out.Used, out.Err,
					tt.given, tt.remain)
			}
		})
	}
}

// TestAReturnBringsTheEndNoNearer checks that a return does not move EmptyAt: a swept cell forgets what was returned to
// it, so it has to stay until no charge can be returned any more.
func TestAReturnBringsTheEndNoNearer(t *testing.T) {
	t.Parallel()
	var c cell
	op := take(five, 2500)
	first, second := c.apply(op, start), c.apply(op, start)
	c.apply(law.Back(&op, &first, 2500), start)
	if got := c.State.EmptyAt; got != second.State.EmptyAt {
		t.Errorf("after a return: empty at +%d us, want +%d", got-start, second.State.EmptyAt-start)
	}
	if out := c.apply(take(five, 500), start+
		second.State.EmptyAt-start-1_500_000); out.State.EmptyAt < second.State.EmptyAt {
		t.Errorf("after the next charge: %+v", out)
	}
}

// TestReturnsAdmitNothingBeyondTheLimit gives back random parts of random charges. The credits that were kept exceed
// the limit's bound in no interval. (A rule that gives everything back fails here.)
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
		given := int64(0)
		for seed := range rounds(3000) {
			given += checkReturns(t, p, rand.New(rand.NewPCG(seed, 1)))
		}
		if given == 0 {
			t.Errorf("%+v: nothing was given back in any history", p)
		}
	}
}

func checkReturns(t *testing.T, p law.Params, rng *rand.Rand) (given int64) {
	charges, given := randomHistory(rng, 1500, p)
	for i := range charges {
		var sum int64
		for j := i; j < len(charges); j++ {
			if sum += charges[j].kept; sum > maxCredits(p, charges[i].at, charges[j].at) {
				t.Fatalf("%+v: %d credits passed in %d us", p, sum, charges[j].at-charges[i].at)
			}
		}
	}
	return given
}

// charge is an admitted charge of a history.
type charge struct {
	op   law.Op
	out  law.Outcome
	at   int64
	kept int64 // of its cost, after what was given back
}

// randomHistory charges a cell 40 times at random under random definitions, with up to pause between two attempts. It
// gives back a random part of some charges, once each, and returns how much it gave back in total.
func randomHistory(rng *rand.Rand, pause int64, by ...law.Params) (charges []charge, given int64) {
	var c cell
	now := start
	for range 40 {
		now += rng.Int64N(pause)
		if n := len(charges); n > 0 && rng.IntN(2) == 0 {
			ch := &charges[rng.IntN(n)]
			if ch.kept < ch.op.Cost {
				continue
			}
			unused := 1 + rng.Int64N(ch.op.Cost)
			given += c.apply(law.Back(&ch.op, &ch.out, unused), now).Granted
			ch.kept -= unused
			continue
		}
		p := by[rng.IntN(len(by))]
		op := take(p, 1+rng.Int64N(p.Capacity))
		if out := c.apply(op, now); out.Granted == 1 {
			charges = append(charges, charge{op, out, now, op.Cost})
		}
	}
	return charges, given
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

// TestReservationsThatAreReturnedStartNobodyTooEarly makes requests beyond the capacity, for one or several limits,
// each of which starts when the last of its charges may. A request is given back unused, before or after its start, or
// in part after its start.
func TestReservationsThatAreReturnedStartNobodyTooEarly(t *testing.T) {
	t.Parallel()
	given := int64(0)
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
			given += checkReservations(t, limits, rand.New(rand.NewPCG(seed, 2)))
		}
	}
	if given == 0 {
		t.Error("nothing was given back in any history")
	}
}

func checkReservations(t *testing.T, limits []law.Params, rng *rand.Rand) (given int64) {
	type request struct {
		ops   []law.Op
		outs  []law.Outcome
		limit []int // of each op
		start int64
		kept  []int64 // of each limit
		ended bool
	}
	cells := make([]cell, len(limits))
	var requests []*request
	now := start
	for range 40 {
		now += rng.Int64N(1200)
		if n := len(requests); n > 0 && rng.IntN(2) == 0 {
			r := requests[rng.IntN(n)]
			if r.ended {
				continue // once for each
			}
			r.ended = true
			part := r.start <= now && rng.IntN(2) == 0
			for k, i := range r.limit {
				unused := r.ops[k].Cost
				if part {
					unused = 1 + rng.Int64N(unused)
				}
				given += cells[i].apply(law.Back(&r.ops[k], &r.outs[k], unused), now).Granted
				r.kept[i] -= unused
			}
			continue
		}
		r := &request{kept: make([]int64, len(limits))}
		wait := rng.Int64N(20_000)
		var records []*law.Record
		for _, i := range rng.Perm(len(limits))[:1+rng.IntN(len(limits))] {
			op := take(limits[i], 1+rng.Int64N(limits[i].Capacity))
			op.Deferred, op.Ceiling = true, limits[i].Ceiling(wait)
			op.Cell.Limit, op.Now = fmt.Sprint(i), now
			r.ops, r.limit, r.kept[i] = append(r.ops, op), append(r.limit, i), op.Cost
			records = append(records, cells[i].Record())
		}
		r.outs = make([]law.Outcome, len(r.ops))
		law.Apply(r.ops, r.outs, now, records)
		for k, i := range r.limit {
			cells[i].Write(records[k], &cells[i].last)
		}
		if r.start = r.outs[0].StartAt; r.outs[0].Err != nil {
			t.Fatal(r.outs[0].Err)
		}
		if r.start > 0 {
			requests = append(requests, r)
		}
		if r.start > now+wait+700 {
			t.Fatalf("a request starts after %d us, it would wait %d", r.start-now, wait)
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
						sum += r.kept[i]
					}
				}
				if sum > maxCredits(p, from, to) {
					t.Fatalf("%+v: %d credits start in %d us, %d may", p, sum, to-from, maxCredits(p, from, to))
				}
			}
		}
	}
	return given
}

// TestAWindowGivesBackAllThatIsReturned charges a window several times, and gives charges back in any order: each in
// full until the window ends, even while more is in use than the capacity.
func TestAWindowGivesBackAllThatIsReturned(t *testing.T) {
	t.Parallel()
	const from = start - start%(10*second)
	for name, anchor := range map[string]law.Anchor{"own": law.Own, "epoch": law.Epoch, "calendar": law.Calendar} {
		p := law.Params{
			Kind: law.Bucket, Anchor: anchor, Unit: 1000, Capacity: 30_000, Step: 10 * second, Drain: law.Max,
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for range 50 {
			var c cell
			var ops []law.Op
			var outs []law.Outcome
			charge := func(op law.Op, at int64) law.Outcome {
				op.Window = [4]int64{from - 10*second, from, from + 10*second, from + 20*second}
				return c.apply(op, at)
			}
			for i := range 5 {
				op := take(p, 1+rng.Int64N(5000))
				ops, outs = append(ops, op), append(outs, charge(op, from+int64(i)))
			}
			more := law.Back(&ops[0], &outs[0], -20_000)
			if out := charge(more, from+second); out.Granted != -20_000 {
				t.Fatalf("%s: charged %d more", name, -out.Granted)
			}
			for _, i := range rng.Perm(len(ops)) {
				credits := 1 + rng.Int64N(ops[i].Cost)
				if out := charge(law.Back(&ops[i], &outs[i], credits), from+2*second); out.Granted != credits {
					t.Fatalf("%s: gave back %d of %d: %+v", name, out.Granted, credits, out)
				}
			}
			if out := charge(law.Back(&ops[4], &outs[4], 1), from+10*second); out.Granted != 0 {
				t.Fatalf("%s: gave back %d of a window that is over", name, out.Granted)
			}
		}
	}
}
