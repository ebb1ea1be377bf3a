package law_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/testing/cells"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// exactBucket is a model of a bucket, with the cell that the law decides. Each microsecond drains a whole number of
// credits, so the model rounds nothing.
type exactBucket struct {
	law.Params
	cell     *cells.Cell
	level    int64
	at       int64
	returned int64 // all credits that were ever returned
}

// levelAfter returns what a level is after some microseconds.
func (b *exactBucket) levelAfter(level, micros int64) int64 { return max(0, level-b.Drain*micros) }

// drain lets the model's level drain until now.
func (b *exactBucket) drain(now int64) { b.level, b.at = b.levelAfter(b.level, now-b.at), now }

// bucketCharge is the charge of a reservation to one bucket.
type bucketCharge struct {
	bucket         *exactBucket
	tenths         int64 // the cost in tenths of a unit
	cost           int64 // the cost in credits
	level          int64 // the bucket's level after the charge
	returnedBefore int64 // the bucket's returned when the charge was made
	op             law.Op
	out            law.Outcome
}

// reservation is one reservation of a history.
type reservation struct {
	charges  []bucketCharge
	at       int64 // when it was made
	start    int64
	settled  bool // settled or cancelled
	admitted bool
}

// decide sets whether a reservation is admitted and when it starts, and charges the buckets of the model if it is.
func (r *reservation) decide(wait int64) {
	ownStarts := make([]int64, len(r.charges)) // the start of each charge if it were alone
	r.admitted, r.start = true, r.at
	for i, c := range r.charges {
		b := c.bucket
		b.drain(r.at)
		used := b.level + c.cost
		if c.cost > b.Capacity || used > b.Capacity+b.Drain*wait {
			r.admitted = false
			continue
		}
		ownStarts[i] = r.at // or the first microsecond at which enough has drained
		if excess := used - b.Capacity; excess > 0 {
			ownStarts[i] += (excess + b.Drain - 1) / b.Drain
		}
		r.start = max(r.start, ownStarts[i])
	}
	for i := 0; r.admitted && i < len(r.charges); i++ {
		c := &r.charges[i]
		b := c.bucket
		b.level += c.cost
		if r.start > ownStarts[i] {
			b.returned += b.level
		}
		if r.start > r.at {
			b.level = max(b.level, b.Drain*(r.start-r.at)+c.cost)
		}
		c.level, c.returnedBefore = b.level, b.returned
	}
}

// settle settles a charge in the model, and returns the credits given back. Below 0, they are charged in addition.
func (c *bucketCharge) settle(chargedAt, now, actual int64) int64 {
	b := c.bucket
	b.drain(now)
	unused := c.cost - actual
	if unused > 0 {
		undrained := b.levelAfter(c.level, now-chargedAt)
		returnedSince := b.returned - c.returnedBefore
		if b.level > b.Capacity { // others wait: what drains within the microsecond of a start is not returned
			unused = min(unused, b.Capacity-(b.Drain-1)) - max(0, b.level-undrained+returnedSince)
		} else {
			unused = min(unused, undrained-returnedSince)
		}
		unused = min(max(0, unused), b.level)
		b.returned += unused
	}
	b.level -= unused
	return unused
}

// apply applies ops, one for each charge, to the cells.
func (r *reservation) apply(ops []law.Op) []law.Outcome {
	outs, records := make([]law.Outcome, len(ops)), make([]*law.Record, len(ops))
	for i := range ops {
		records[i] = r.charges[i].bucket.cell.Record()
	}
	law.Apply(ops, outs, 0, records)
	for i := range ops {
		r.charges[i].bucket.cell.Write(records[i], new(int64))
	}
	return outs
}

// TestReservationsAreExact compares random histories of reservations on up to three limits with exact arithmetic. They
// are settled at less or more, by their ids or by their outcomes.
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

// checkExactReservations compares one random history.
func checkExactReservations(t *testing.T, rng *rand.Rand) {
	now := start
	var buckets []*exactBucket
	for _, p := range []law.Params{
		{Kind: law.Bucket, Unit: 100_000, Capacity: 500_000, Step: 1, Drain: 1},     // 10 a second, at most 5 at once
		{Kind: law.Bucket, Unit: 1_000_000, Capacity: 7_000_000, Step: 1, Drain: 3}, // 3 a second, at most 7 at once
		{Kind: law.Bucket, Unit: 70_000, Capacity: 1_400_000, Step: 1, Drain: 1},    // 100 in 7 s, at most 20 at once
	} {
		buckets = append(buckets, &exactBucket{Params: p, cell: (*cells.Cell)(nil).Clone(), at: now})
	}
	var reservations []*reservation
	for step := range 16 {
		now += rng.Int64N(700_000)
		if n := len(reservations); n > 0 && rng.IntN(2) == 0 {
			if r := reservations[rng.IntN(n)]; !r.settled {
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
			p := buckets[i].Params
			tenths := 1 + rng.Int64N(10*p.Capacity/p.Unit+1) // up to a tenth of a unit above the capacity
			op := take(p, tenths*p.Unit/10)
			op.Cell.Limit, op.Now, op.Deferred, op.Ceiling = fmt.Sprint(i), now, true, p.Ceiling(wait)
			if id != "" {
				op.ID, op.TTL = id, 3600*second
			}
			ops = append(ops, op)
			r.charges = append(r.charges, bucketCharge{bucket: buckets[i], tenths: tenths, cost: op.Cost, op: op})
		}
		r.decide(wait)
		outs, admitted := r.apply(ops), true
		for i := range outs {
			r.charges[i].out = outs[i]
			admitted = admitted && outs[i].Granted == 1
		}
		if admitted != r.admitted || admitted && outs[0].StartAt != r.start {
			t.Errorf("%+v\nadmitted %v with the start %d, want %v with %d", ops, admitted, outs[0].StartAt,
				r.admitted, r.start)
			return
		}
		if r.admitted {
			reservations = append(reservations, r)
		}
	}
}

// settleAtRandom settles a reservation at random costs, by its id or else by its outcomes. Before its start the actual
// cost is 0.
func (r *reservation) settleAtRandom(t *testing.T, rng *rand.Rand, now int64) {
	var ops []law.Op
	want := make([]int64, len(r.charges))
	for i := range r.charges {
		c := &r.charges[i]
		actual := int64(0)
		if r.start <= now && rng.IntN(2) == 0 {
			actual = rng.Int64N(c.tenths * 3 / 2)
		}
		if c.op.ID == "" && actual == c.tenths {
			actual = 0 // an op that returns 0 credits is invalid
		}
		credits := actual * c.op.Params.Unit / 10
		op := law.Op{Verb: law.Settle, Cell: c.op.Cell, Params: c.op.Params, ID: c.op.ID, Cost: credits, Count: 1}
		if c.op.ID == "" {
			op = law.Back(&c.op, &c.out, c.op.Cost-credits)
		}
		op.Now = now
		want[i] = c.settle(r.at, now, credits)
		ops = append(ops, op)
	}
	for i, out := range r.apply(ops) {
		if out.Err != nil || out.Granted != want[i] {
			t.Errorf("%+v\n%+v\ngave back %d credits, want %d", ops[i], out, out.Granted, want[i])
		}
		if level := r.charges[i].bucket.level; out.Granted != 0 && out.State.Level != level {
			t.Errorf("%+v\nthe level is %d credits, want %d", ops[i], out.State.Level, level)
		}
	}
}
