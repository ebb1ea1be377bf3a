package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// budget is six limits that every request is charged to, and what callers know to be in use of each.
type budget struct {
	s       store.Store
	limits  [6]law.Params
	actual  [6]atomic.Int64 // credits that the requests were settled at
	charged [6]atomic.Int64 // credits that were charged, without what is known to have been given back
	// credits of attempts that were given up, and may be charged when they arrive: the request was
	// refused before, or is cancelled
	uncertain [6]atomic.Int64
}

// budgetSize returns the capacity of the smallest limit, in units.
func budgetSize() int64 { return tier.Pick[int64](50, 150, 150) }

// newBudget returns one of which next to nothing drains while a test runs.
func newBudget(s store.Store) *budget {
	const long = 300 * 86_400 * sec
	b := &budget{s: s, limits: [6]law.Params{
		{Kind: law.Bucket, Unit: 1000, Step: 3600 * sec, Drain: 1},
		{Kind: law.Bucket, Unit: 1000, Step: long, Drain: law.Max, Anchor: law.Epoch},
		{Kind: law.Bucket, Unit: 1_000_000, Step: long, Drain: law.Max},
		{Kind: law.Window, Unit: 1000, Step: long},
		{Kind: law.Log, Unit: 1000, Step: long},
		{Kind: law.Bucket, Unit: 7, Step: 3600 * sec, Drain: 1},
	}}
	for i := range b.limits {
		p := &b.limits[i]
		p.Capacity = (budgetSize() + 10*int64(i)) * p.Unit
	}
	return b
}

// request draws a request that charges all six, at odd costs.
func (b *budget) request(rng *rand.Rand, id string) []law.Op {
	ops := make([]law.Op, len(b.limits))
	for i, p := range b.limits {
		ops[i] = take(fmt.Sprint("budget ", i), "k", p, 1, 0)
		ops[i].Cost, ops[i].ID, ops[i].TTL = 1+rng.Int64N(2*p.Unit), id, hour
	}
	return ops
}

// untilAnswered asks until there is an answer, also after conflicts, and while the attempts of others that were given
// up have opened a circuit breaker. One in five attempts is given up on the way; late says that it was, after an
// attempt.
func (b *budget) untilAnswered(t *testing.T, rng *rand.Rand, ops []law.Op) (outs []law.Outcome, late bool) {
	await.Until(t, "a request with an id to be answered", func() bool {
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if rng.IntN(5) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.Int64N(3_000_000)))
		}
		var err error
		outs, err = applied(ctx, b.s, ops...)
		cancel()
		for _, final := range []error{law.ErrUnknownID, law.ErrReused, law.ErrSettled, law.ErrInvalid} {
			if errors.Is(err, final) {
				t.Errorf("a request with an id: %v", err)
				outs = nil
				return true
			}
		}
		late = late || err != nil
		return err == nil
	})
	return outs, late
}

// extend extends a request that was admitted, up to twice, and changes the costs of its ops to what it
// has charged then.
func (b *budget) extend(t *testing.T, rng *rand.Rand, ops []law.Op) {
	for range rng.IntN(3) {
		more := slices.Clone(ops)
		for i := range more {
			more[i].Verb = law.Extend
			more[i].Cost += rng.Int64N(more[i].Params.Unit) // nothing more, once in a while
		}
		outs, late := b.untilAnswered(t, rng, more)
		if outs == nil {
			return
		}
		refused := slices.ContainsFunc(outs, func(out law.Outcome) bool { return out.RetryAt != 0 })
		for i, out := range outs {
			held := more[i].Cost
			if refused {
				held = ops[i].Cost
				if late {
					b.uncertain[i].Add(more[i].Cost - ops[i].Cost)
				}
			}
			if out.Granted != held && (!refused || !late) {
				t.Errorf("charge %d: extended from %d to %d, %d are charged: %+v", i, ops[i].Cost, more[i].Cost, held, out)
			}
		}
		if refused {
			return
		}
		for i := range ops {
			b.charged[i].Add(more[i].Cost - ops[i].Cost)
			ops[i].Cost = more[i].Cost
		}
	}
}

// spend makes a request, extends some that are admitted, and settles or cancels some. It reports whether it was
// admitted.
func (b *budget) spend(t *testing.T, rng *rand.Rand, id string) bool {
	ops := b.request(rng, id)
	outs, late := b.untilAnswered(t, rng, ops)
	how := rng.IntN(4)
	refused := slices.ContainsFunc(outs, func(out law.Outcome) bool { return out.Granted != 1 })
	if late && (refused || how == 0) {
		for i := range ops {
			b.uncertain[i].Add(ops[i].Cost)
		}
	}
	if refused {
		return false
	}
	for i := range outs {
		b.charged[i].Add(ops[i].Cost)
	}
	b.extend(t, rng, ops)
	for i := range outs {
		cost := rng.Int64N(ops[i].Cost + 1)
		switch how {
		case 0:
			cost = law.Cancelled
		case 3: // it is not settled
			b.actual[i].Add(ops[i].Cost)
		default:
			b.actual[i].Add(cost)
		}
		ops[i] = settled(ops[i], 0, 0)
		ops[i].Group, ops[i].Cost = uint32(i+1), cost
	}
	if outs == nil || how == 3 {
		return outs != nil
	}
	answers, _ := b.untilAnswered(t, rng, ops)
	for i, out := range answers {
		b.charged[i].Add(-out.Granted) // none, if it was settled by an attempt that was given up
	}
	return true
}

// budgets lets 64 callers (24 with make test) drain six limits by requests with ids, which they extend, settle, cancel, and repeat
// when an answer does not come. No limit is overrun, each has in use what the requests have cost in
// the end, and a request that one of them refuses is charged to none. A bucket that drains gives back
// only what the return rule allows. An attempt that was given up may arrive late.
func budgets(t *testing.T, s store.Store) {
	b := newBudget(s)
	var admitted atomic.Int64
	concurrently(tier.Pick(24, 64, 64), 1, func(caller, _ int) {
		rng := rand.New(rand.NewPCG(uint64(caller), 64))
		for n, refused := 0, 0; refused < 2 && !t.Failed(); n++ {
			if b.spend(t, rng, fmt.Sprint("budget ", caller, " ", n)) {
				admitted.Add(1)
			} else {
				refused++
			}
		}
	})
	if t.Logf("%d requests were admitted", admitted.Load()); admitted.Load() < budgetSize()*2/3 {
		t.Error("too few to say anything")
	}
	full := false
	for i, op := range b.request(rand.New(rand.NewPCG(1, 2)), "") {
		op.Cost = 1
		out := one(t, s, check(op))
		used := out.Used - out.Granted
		least, most := b.actual[i].Load(), b.charged[i].Load()
		if op.Params.Drain != 1 { // what is left gives back all
			most = least
		}
		most += b.uncertain[i].Load()
		if used < least || used > most || used > op.Params.Capacity {
			t.Errorf("%s: %d credits of %d are in use, want %d to %d", op.Cell.Limit, used, op.Params.Capacity, least, most)
		}
		full = full || used > op.Params.Capacity-2*op.Params.Unit
	}
	if !full {
		t.Error("no limit is full, and all callers were refused")
	}
}
