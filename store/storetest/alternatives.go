package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// firstOf makes one request of several: its alternatives, in order.
func firstOf(alternatives ...[]law.Op) (ops []law.Op) {
	for i, alternative := range alternatives {
		for _, op := range alternative {
			op.Group, op.Alternative = 1, uint8(i+1) //nolint:gosec // few
			ops = append(ops, op)
		}
	}
	return ops
}

// charged returns which alternative of a request was charged, from 1; 0: none.
func charged(ops []law.Op, outs []law.Outcome) int {
	for i, j := 0, law.AlternativeEnd(ops, 0); i < len(ops); i, j = j, law.AlternativeEnd(ops, j) {
		if !slices.ContainsFunc(outs[i:j], func(out law.Outcome) bool { return out.Granted != 1 }) {
			return int(ops[i].Alternative)
		}
	}
	return 0
}

// testAlternatives sends requests with alternatives, with ids and without. A store that charges groups on trial refuses
// alternatives of several keys.
func testAlternatives(t *testing.T, s store.Store, onTrial bool) {
	const key = "alternatives"
	blocking := fixedWindow(10, hour)
	blocking.Block = hour
	attempts := slidingLog(10, hour)
	attempts.History = day
	plan := func(n int64) law.Op { return take("plan", key, blocking, n, T0) }
	model := func(n int64) law.Op { return take("model", key, attempts, n, T0) }
	credits := func(n int64) law.Op { return take("credits", key, fixedWindow(10, hour), n, T0) }
	expectFirst := func(name string, want int, ops ...law.Op) []law.Outcome {
		t.Helper()
		outs := apply(t, s, ops...)
		for _, out := range outs {
			if out.Err != nil {
				t.Errorf("%s: %v", name, out.Err)
			}
		}
		if got := charged(ops, outs); got != want {
			t.Errorf("%s: alternative %d is charged, want %d: %+v", name, got, want, outs)
		}
		return outs
	}
	ops := func(list ...law.Op) []law.Op { return list }

	expectFirst("the first has room", 1, firstOf(ops(plan(8), model(1)), ops(plan(8), credits(1)))...)
	outs := expectFirst("the first has none", 2, firstOf(ops(plan(3)), ops(model(3), credits(3)), ops(credits(1)))...)
	if outs[3] != (law.Outcome{}) {
		t.Errorf("an alternative after the one that is charged: got %+v, want a zero outcome", outs[3])
	}
	if outs[0].RetryAt <= T0 || outs[0].State.BlockedUntil != 0 {
		t.Errorf("an alternative that was passed over: got %+v, want when it fits, and no block", outs[0])
	}
	expect(t, s, "the key is not blocked", outcome{granted: 1, used: 9}, plan(1))
	expectFirst("no alternative has room", 0, firstOf(ops(model(9)), ops(plan(9)), ops(credits(9)))...)
	if i, ok := s.(store.Inspector); ok {
		entries, err := i.Entries(t.Context(), model(1).Cell, 10)
		if err != nil || slices.ContainsFunc(entries, func(e law.Entry) bool { return !e.Granted }) {
			t.Errorf("an alternative that was passed over is in the history: got %+v, %v", entries, err)
		}
	}
	expect(t, s, "of the refused request, too", outcome{granted: 1, used: 10}, plan(1))
	if out := apply(t, s, firstOf(ops(credits(8)), ops(plan(1)))...)[1]; out.State.BlockedUntil == 0 {
		t.Errorf("the last alternative: got %+v, want its refusal to block", out)
	}

	check1 := firstOf(ops(check(plan(1))), ops(check(model(1)), check(credits(1))))
	expectFirst("a check", 2, check1...)
	expectFirst("a check charges nothing", 2, check1...)

	leaving := take("plan", "keep", fixedWindow(10, hour), 6, T0)
	leaving.Ceiling = 5
	whole := take("plan", "keep", blocking, 6, T0)
	expectFirst("a charge that leaves headroom, else all of the limit", 2, firstOf(ops(leaving), ops(whole))...)
	if outs := expectFirst("neither", 0, firstOf(ops(leaving), ops(whole))...); outs[0].State.BlockedUntil != 0 ||
		outs[1].State.BlockedUntil == 0 {
		t.Errorf("neither: got %+v, want a block by the second alone", outs)
	}
	whole.Cell.Key, leaving.Cell.Key, leaving.Cost = "keep both", "keep both", 1
	if outs := expectFirst("both at once", 0, firstOf(ops(whole, leaving))...); outs[1].State.BlockedUntil != 0 {
		t.Errorf("both at once: got %+v, want no block by the charge that leaves headroom", outs)
	}

	sameLimit := func(key string) law.Op { return take("keys of one limit", key, bucket(1, 3), 2, T0) }
	single := sameLimit("b")
	single.Group = 2
	batch := append(firstOf(ops(sameLimit("a")), ops(sameLimit("b"))), single)
	out := apply(t, s, batch...)
	isFirst := out[0].Granted == 1 && out[1] == law.Outcome{}
	isUnsupported := errors.Is(out[0].Err, store.ErrUnsupported) && errors.Is(out[1].Err, store.ErrUnsupported)
	if onTrial && !isUnsupported || !onTrial && !isFirst || out[2].Granted != 1 {
		t.Errorf("two keys: got %+v, want the first alternative, or none in a cluster, and the other request", out)
	}
	testAlternativesWithID(t, s, expectFirst)
}

// testAlternativesWithID repeats, settles and cancels requests that have alternatives and an ID.
func testAlternativesWithID(t *testing.T, s store.Store,
	expectFirst func(name string, want int, ops ...law.Op) []law.Outcome,
) {
	limit := fixedWindow(10, hour)
	of := func(name string, n int64) law.Op { return withID("first", take(name, "id", limit, n, T0))[0] }
	ops := func(list ...law.Op) []law.Op { return list }
	applyOne(t, s, take("x", "id", limit, 6, T0))
	request := firstOf(ops(of("x", 5), of("y", 5)), ops(of("z", 5), of("y", 4)))
	expectFirst("with an id", 2, request...)
	applyOne(t, s, reset(of("x", 1), T0))
	for i, out := range expectFirst("repeated when the first has room", 2, request...)[2:] {
		if !out.Replayed {
			t.Errorf("repeated, charge %d: got %+v, want it replayed", i, out)
		}
	}
	expect(t, s, "other charges", outcome{err: law.ErrReused}, firstOf(ops(of("u", 1)), ops(of("z", 6)))...)
	expectInUse(t, s, of("u", 1), 0)
	applyOne(t, s, reset(of("z", 1), T0))
	outs := expectFirst("a cell was reset", 2, request...)
	if outs[2].Replayed || !outs[3].Replayed {
		t.Errorf("a cell was reset: got %+v, want its charge decided, the other replayed", outs[2:])
	}
	applyOne(t, s, reset(of("z", 1), T0))
	expect(t, s, "the id on the cell, with another charge", outcome{granted: 1}, of("z", 1))
	expect(t, s, "one charge is another's", outcome{err: law.ErrReused}, request...)
	expect(t, s, "settled", outcome{granted: 3}, settle(of("y", 1), 1, T0))
	expectInUse(t, s, of("y", 1), 1)
	expect(t, s, "cancelled", outcome{granted: 1}, cancel(of("z", 1), T0))
	applyOne(t, s, reset(of("y", 1), T0))
	expectFirst("nothing of it is left", 1, request...)

	expect(t, s, "the id of one charge", outcome{granted: 1}, of("v", 1))
	expect(t, s, "the id of another", outcome{granted: 1}, of("w", 1))
	expectFirst("both are known", 1, firstOf(ops(of("v", 1)), ops(of("w", 1)))...)

	late := deferUpTo20s(withID("late",
		take("late", "id", bucket(1, 5), 2, T0), take("late 2", "id", bucket(1, 5), 2, T0))...)
	apply(t, s, take("late", "id", bucket(1, 5), 5, T0))
	apply(t, s, late...)
	applyOne(t, s, cancel(late[1], T0))
	for i := range late {
		late[i].Deferred, late[i].Ceiling = false, 0
	}
	again := firstOf(withID("late", take("late 3", "id", bucket(1, 5), 2, T0)), late)
	if out := apply(t, s, again...); out[0] != (law.Outcome{}) || out[1].Granted != 0 {
		t.Errorf("reserved before, for a start in common: got %+v, want all of it refused", out)
	}
}

// testDrainByAlternatives lets callers drain a plan and then credits by alternatives, with ids, some attempts given up.
// No credit may be used while the plan has room for the cost, and in the end both are used up.
func testDrainByAlternatives(t *testing.T, s store.Store) {
	capacity := [2]int64{tier.Pick[int64](200, 1000, 1000), tier.Pick[int64](100, 500, 500)}
	b := &budget{s: s}
	var used [2]atomic.Int64
	runAtOnce(tier.Pick(24, 64, 64), 1, func(caller, _ int) {
		rng := rand.New(rand.NewPCG(uint64(caller), 42))
		for n, odd := 0, true; !t.Failed(); n++ {
			cost := int64(1)
			if odd {
				cost += 2 * rng.Int64N(5)
			}
			var alternatives [2][]law.Op
			for i := range alternatives {
				op := take([]string{"plan", "credits"}[i], "drained", fixedWindow(capacity[i], 300*day), cost, 0)
				op.ID, op.TTL = fmt.Sprint("drain ", caller, " ", n), hour
				alternatives[i] = []law.Op{op}
			}
			ops := firstOf(alternatives[:]...)
			outs, _ := b.applyUntilAnswered(t, rng, ops)
			if outs == nil {
				return
			}
			i := charged(ops, outs)
			switch {
			case i == 0 && !odd:
				return
			case i == 0:
				odd = false // the last requests cost 1
				continue
			case i == 2 && !outs[1].Replayed && outs[0].Used+ops[0].Cost <= ops[0].Params.Capacity:
				t.Errorf("a credit is used while the plan has room: %+v", outs)
			}
			used[i-1].Add(cost)
		}
	})
	for i := range used {
		if used[i].Load() != capacity[i] {
			t.Errorf("alternative %d: %d units were told, want %d", i+1, used[i].Load(), capacity[i])
		}
		op := take([]string{"plan", "credits"}[i], "drained", fixedWindow(capacity[i], 300*day), 1, 0)
		expectInUse(t, s, op, capacity[i])
	}
}
