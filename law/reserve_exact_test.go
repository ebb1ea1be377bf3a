package law_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/testing/cells"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// exact is a bucket in which each microsecond drains a whole number of credits, so nothing is rounded.
type exact struct {
	law.Params
	cell     *cells.Cell
	level    int64
	at       int64
	returned int64 // ever
}

// drained returns the level after some microseconds.
func (e *exact) drained(level, us int64) int64 { return max(0, level-e.Drain*us) }

func (e *exact) forward(now int64) { e.level, e.at = e.drained(e.level, now-e.at), now }

// share is the part of a reservation in one limit.
type share struct {
	of             *exact
	tenths         int64 // the cost in tenths of a unit,
	cost           int64 // and in credits
	made, returned int64 // the level that it made, and what was returned by then
	op             law.Op
	out            law.Outcome
}

// reservation is one reservation of a history.
type reservation struct {
	shares   []share
	at       int64 // when it was made
	start    int64
	settled  bool // or cancelled
	admitted bool
}

// decide computes what should become of a reservation.
func (r *reservation) decide(wait int64) {
	own := make([]int64, len(r.shares))
	r.admitted, r.start = true, r.at
	for i, p := range r.shares {
		e := p.of
		e.forward(r.at)
		used := e.level + p.cost
		if p.cost > e.Capacity || used > e.Capacity+e.Drain*wait {
			r.admitted = false
			continue
		}
		own[i] = r.at // or the first microsecond at which enough has drained
		if over := used - e.Capacity; over > 0 {
			own[i] += (over + e.Drain - 1) / e.Drain
		}
		r.start = max(r.start, own[i])
	}
	for i := 0; r.admitted && i < len(r.shares); i++ {
		p := &r.shares[i]
		e := p.of
		e.level += p.cost
		if r.start > own[i] {
			e.returned += e.level
		}
		if r.start > r.at {
			e.level = max(e.level, e.Drain*(r.start-r.at)+p.cost)
		}
		p.made, p.returned = e.level, e.returned
	}
}

// settle returns by how much a cost should be corrected; less than 0: charged in addition.
func (p *share) settle(madeAt, now, actual int64) int64 {
	e := p.of
	e.forward(now)
	back := p.cost - actual
	if back > 0 {
		left := e.drained(p.made, now-madeAt)
		since := e.returned - p.returned
		if e.level > e.Capacity { // others wait: what drains within the microsecond of a start is not returned
			back = min(back, e.Capacity-(e.Drain-1)) - max(0, e.level-left+since)
		} else {
			back = min(back, left-since)
		}
		back = min(max(0, back), e.level)
		e.returned += back
	}
	e.level -= back
	return back
}

// apply decides ops, one for each of the first shares.
func (r *reservation) apply(ops []law.Op) []law.Outcome {
	outs, records := make([]law.Outcome, len(ops)), make([]*law.Record, len(ops))
	for i := range ops {
		records[i] = r.shares[i].of.cell.Record()
	}
	law.Apply(ops, outs, 0, records)
	for i := range ops {
		r.shares[i].of.cell.Write(records[i], new(int64))
	}
	return outs
}

// TestReservationsAreExact compares random histories of reservations on three limits at once with exact arithmetic:
// made, settled for less and for more by their ids, and given back without.
func TestReservationsAreExact(t *testing.T) {
	t.Parallel()
	seed := tier.Seed()
	for range rounds(2000) {
		seed++
		if checkExactReservations(t, rand.New(rand.NewPCG(seed, 3))); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func checkExactReservations(t *testing.T, rng *rand.Rand) {
	now := start
	var limits []*exact
	for _, p := range []law.Params{
		{Kind: law.Bucket, Unit: 100_000, Capacity: 500_000, Step: 1, Drain: 1},     // 10 a second, at most 5 at once
		{Kind: law.Bucket, Unit: 1_000_000, Capacity: 7_000_000, Step: 1, Drain: 3}, // 3 a second, at most 7 at once
		{Kind: law.Bucket, Unit: 70_000, Capacity: 1_400_000, Step: 1, Drain: 1},    // 100 in 7 s, at most 20 at once
	} {
		limits = append(limits, &exact{Params: p, cell: (*cells.Cell)(nil).Clone(), at: now})
	}
	var made []*reservation
	for step := range 16 {
		now += rng.Int64N(700_000)
		if n := len(made); n > 0 && rng.IntN(2) == 0 {
			if r := made[rng.IntN(n)]; !r.settled {
				r.settled = true
				r.settleAtRandom(t, rng, now)
				continue
			}
		}
		r := &reservation{at: now}
		wait := rng.Int64N(10_000_000)
		id := ""
		if rng.IntN(2) == 0 {
			id = fmt.Sprint("reservation ", step)
		}
		var ops []law.Op
		for _, i := range rng.Perm(3)[:1+rng.IntN(3)] {
			p := limits[i].Params
			tenths := 1 + rng.Int64N(10*p.Capacity/p.Unit+1) // the most is more than ever fits
			op := take(p, tenths*p.Unit/10)
			op.Cell.Limit, op.Now, op.Deferred, op.Ceiling = fmt.Sprint(i), now, true, p.Ceiling(wait)
			if id != "" {
				op.ID, op.TTL = id, 3600*second
			}
			ops = append(ops, op)
			r.shares = append(r.shares, share{of: limits[i], tenths: tenths, cost: op.Cost, op: op})
		}
		r.decide(wait)
		outs, admitted := r.apply(ops), true
		for i := range outs {
			r.shares[i].out = outs[i]
			admitted = admitted && outs[i].Granted == 1
		}
		if admitted != r.admitted || admitted && outs[0].StartAt != r.start {
			t.Errorf("%+v\nadmitted %v for %d, want %v for %d", ops, admitted, outs[0].StartAt, r.admitted, r.start)
			return
		}
		if r.admitted {
			made = append(made, r)
		}
	}
}

// settleAtRandom settles a reservation by its id, or without one by its outcomes. Before its start nothing can have
// been used.
func (r *reservation) settleAtRandom(t *testing.T, rng *rand.Rand, now int64) {
	var ops []law.Op
	want := make([]int64, len(r.shares))
	for i := range r.shares {
		p := &r.shares[i]
		actual := int64(0)
		if r.start <= now && rng.IntN(2) == 0 {
			actual = rng.Int64N(p.tenths * 3 / 2)
		}
		if p.op.ID == "" && actual == p.tenths {
			actual = 0 // to correct nothing cannot be asked
		}
		credits := actual * p.op.Params.Unit / 10
		op := law.Op{Verb: law.Settle, Cell: p.op.Cell, Params: p.op.Params, ID: p.op.ID, Cost: credits, Count: 1}
		if p.op.ID == "" {
			op = law.Back(&p.op, &p.out, p.op.Cost-credits)
		}
		op.Now = now
		want[i] = p.settle(r.at, now, credits)
		ops = append(ops, op)
	}
	for i, out := range r.apply(ops) {
		if out.Err != nil || out.Granted != want[i] {
			t.Errorf("%+v\n%+v\ncorrected by %d credits, want %d", ops[i], out, out.Granted, want[i])
		}
		if level := r.shares[i].of.level; out.Granted != 0 && out.State.Level != level {
			t.Errorf("%+v\nthe level is %d credits, want %d", ops[i], out.State.Level, level)
		}
	}
}
