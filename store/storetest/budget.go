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

// budget has six limits that every request charges, and what its callers know about the use of each limit.
type budget struct {
	s       store.Store
	limits  [6]law.Params
	actual  [6]atomic.Int64 // credits that the requests cost in the end, settled or not
	charged [6]atomic.Int64 // credits charged, less those known to be returned
	// uncertain are the credits of attempts that were given up and may still be charged when they arrive,
	// after the request was refused or cancelled.
	uncertain [6]atomic.Int64
}

// budgetSize returns the capacity of the smallest limit, in units.
func budgetSize() int64 { return tier.Pick[int64](50, 150, 150) }

// newBudget returns a budget whose limits drain next to nothing while a test runs.
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

// request returns a request that charges all six limits at random costs.
func (b *budget) request(rng *rand.Rand, id string) []law.Op {
	ops := make([]law.Op, len(b.limits))
	for i, p := range b.limits {
		ops[i] = take(fmt.Sprint("budget ", i), "k", p, 1, 0)
		ops[i].Cost, ops[i].ID, ops[i].TTL = 1+rng.Int64N(2*p.Unit), id, hour
	}
	return ops
}

// applyUntilAnswered sends a request until it is answered, also after conflicts, and while abandoned attempts of other
// callers keep a circuit breaker open. It gives up one in five attempts before 3 ms are over. anyFailed reports whether
// an attempt failed. After an error that the request must not have, the test fails and outs is nil.
func (b *budget) applyUntilAnswered(t *testing.T, rng *rand.Rand, ops []law.Op) (outs []law.Outcome, anyFailed bool) {
	await.Until(t, "a request with an id to be answered", func() bool {
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if rng.IntN(5) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.Int64N(3_000_000)))
		}
		var err error
		outs, err = applyErr(ctx, b.s, ops...)
		cancel()
		for _, target := range []error{law.ErrUnknownID, law.ErrReused, law.ErrSettled, law.ErrInvalid} {
			if errors.Is(err, target) {
				t.Errorf("a request with an id: got %v, want an answer", err)
				outs = nil
				return true
			}
		}
		anyFailed = anyFailed || err != nil
		return err == nil
	})
	return outs, anyFailed
}

// extend extends an admitted request up to twice, and sets the costs of its ops to what is charged then.
func (b *budget) extend(t *testing.T, rng *rand.Rand, ops []law.Op) {
	for range rng.IntN(3) {
		extensions := slices.Clone(ops)
		for i := range extensions {
			extensions[i].Verb = law.Extend
			extensions[i].Cost += rng.Int64N(extensions[i].Params.Unit) // by nothing, once in a while
		}
		outs, anyFailed := b.applyUntilAnswered(t, rng, extensions)
		if outs == nil {
			return
		}
		isRefused := slices.ContainsFunc(outs, func(out law.Outcome) bool { return out.RetryAt != 0 })
		for i, out := range outs {
			wantCost := extensions[i].Cost
			if isRefused {
				wantCost = ops[i].Cost
				if anyFailed {
					b.uncertain[i].Add(extensions[i].Cost - ops[i].Cost)
				}
			}
			if out.Granted != wantCost && (!isRefused || !anyFailed) {
				t.Errorf("charge %d, extended from %d to %d: got %+v, want %d charged", i, ops[i].Cost,
					extensions[i].Cost, out, wantCost)
			}
		}
		if isRefused {
			return
		}
		for i := range ops {
			b.charged[i].Add(extensions[i].Cost - ops[i].Cost)
			ops[i].Cost = extensions[i].Cost
		}
	}
}

// spend sends a request, may extend, settle or cancel it, and reports whether it was admitted.
func (b *budget) spend(t *testing.T, rng *rand.Rand, id string) bool {
	ops := b.request(rng, id)
	outs, anyFailed := b.applyUntilAnswered(t, rng, ops)
	ending := rng.IntN(4) // 0: cancel, 3: do not settle, else settle
	isRefused := slices.ContainsFunc(outs, func(out law.Outcome) bool { return out.Granted != 1 })
	if anyFailed && (isRefused || ending == 0) {
		for i := range ops {
			b.uncertain[i].Add(ops[i].Cost)
		}
	}
	if isRefused {
		return false
	}
	for i := range outs {
		b.charged[i].Add(ops[i].Cost)
	}
	b.extend(t, rng, ops)
	for i := range outs {
		cost := rng.Int64N(ops[i].Cost + 1)
		switch ending {
		case 0:
			cost = law.Cancelled
		case 3:
			b.actual[i].Add(ops[i].Cost)
		default:
			b.actual[i].Add(cost)
		}
		ops[i] = settle(ops[i], 0, 0)
		ops[i].Group, ops[i].Cost = uint32(i+1), cost
	}
	if outs == nil || ending == 3 {
		return outs != nil
	}
	answers, _ := b.applyUntilAnswered(t, rng, ops)
	for i, out := range answers {
		b.charged[i].Add(-out.Granted) // none, if it was settled by an attempt that was given up
	}
	return true
}

// testBudgets lets 64 callers (24 with make test) drain six limits by requests with ids, which they extend, settle,
// cancel, and repeat if no answer comes. No limit may be overrun, and each must have in use what the requests have cost
// in the end. A request that one limit refuses is charged to none. A bucket that drains returns only what the return
// rule allows. An attempt that was given up may arrive late.
func testBudgets(t *testing.T, s store.Store) {
	b := newBudget(s)
	var admitted atomic.Int64
	runAtOnce(tier.Pick(24, 64, 64), 1, func(caller, _ int) {
		rng := rand.New(rand.NewPCG(uint64(caller), 64))
		for n, refusals := 0, 0; refusals < 2 && !t.Failed(); n++ {
			if b.spend(t, rng, fmt.Sprint("budget ", caller, " ", n)) {
				admitted.Add(1)
			} else {
				refusals++
			}
		}
	})
	if t.Logf("%d requests were admitted", admitted.Load()); admitted.Load() < budgetSize()*2/3 {
		t.Errorf("want %d admitted at least: fewer prove nothing", budgetSize()*2/3)
	}
	anyFull := false
	for i, op := range b.request(rand.New(rand.NewPCG(1, 2)), "") {
		op.Cost = 1
		out := applyOne(t, s, check(op))
		used := out.Used - out.Granted
		minUsed, maxUsed := b.actual[i].Load(), b.charged[i].Load()
		if op.Params.Drain != 1 { // these limits return all credits
			maxUsed = minUsed
		}
		maxUsed += b.uncertain[i].Load()
		if used < minUsed || used > maxUsed || used > op.Params.Capacity {
			t.Errorf("%s: got %d credits of %d in use, want %d to %d", op.Cell.Limit, used, op.Params.Capacity,
				minUsed, maxUsed)
		}
		anyFull = anyFull || used > op.Params.Capacity-2*op.Params.Unit
	}
	if !anyFull {
		t.Error("got no full limit, want one that has refused all callers")
	}
}
