package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
)

// keysApart returns n keys in n slots.
func keysApart(n int) (keys []string) {
	seen := map[uint16]bool{}
	for i := 0; len(keys) < n; i++ {
		k := fmt.Sprint("k", i)
		if s := slotOf(law.Cell{Key: k}); !seen[s] {
			seen[s] = true
			keys = append(keys, k)
		}
	}
	return keys
}

// hooked returns the store, that asks before each command whether it is lost: the
// k-th, from 0, of the n-th round trip, from 1.
func hooked(s *Store, lost func(n, k int) bool) *Store {
	asked := 0
	s.client = &interposed{s.client, func(ctx context.Context, _ []rueidis.Completed, k int) context.Context {
		if k == 0 {
			asked++
		}
		if lost(asked, k) {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			cancel()
		}
		return ctx
	}}
	return s
}

// inSlots returns the URL of a cluster, a store over it that has asked before, and
// keys in so many slots.
func inSlots(t *testing.T, n int) (url string, s *Store, keys []string) {
	t.Helper()
	url = dbtest.RedisCluster(t)
	s = openTest(t, url, nil)
	warmUp(t, s)
	return url, s, keysApart(n)
}

// try asks, whatever comes of it.
func try(s *Store, ops []law.Op) []law.Outcome {
	outs := make([]law.Outcome, len(ops))
	_ = s.Apply(context.Background(), ops, outs)
	return outs
}

// warmUp makes the servers know the scripts, so that a DoMulti is a round trip.
func warmUp(t *testing.T, s *Store) {
	t.Helper()
	keys := keysApart(3)
	for _, id := range []string{"", "warm"} {
		apply(t, s, reserving("warm"+id, keys[2], 10, 0))
		ops := []law.Op{reserving("warm"+id, keys[0], 6, 60), reserving("warm"+id, keys[1], 6, 60), reserving("warm"+id, keys[2], 6, 60)}
		if id != "" {
			once60(id, ops...)
		}
		apply(t, s, ops...)
	}
}

// TestABlockBetweenTheRoundTripsStays: of three slots the third starts 6 s later, the
// first is raised, the second refuses, since others came there.
func TestABlockBetweenTheRoundTripsStays(t *testing.T) {
	for _, id := range []string{"", "id"} {
		url, s, k := inSlots(t, 3)
		apply(t, s, reserving("l", k[2], 10, 0))
		ops := []law.Op{reserving("l", k[0], 6, 11), reserving("l", k[1], 6, 11), reserving("l", k[2], 6, 11)}
		if id != "" {
			once60(id, ops...)
		}
		block := takeOne("l", k[0], perSecond, testTime)
		block.Verb, block.TTL, block.Reason = law.Block, 3600_000_000, "abuse"
		outs := apply(t, interrupted(openTest(t, url, nil), func() {
			apply(t, s, block)
			apply(t, s, reserving("l", k[1], 10, 60))
		}), ops...)
		if outs[1].Granted != 0 {
			t.Errorf("not refused: %+v", outs)
		}
		check := takeOne("l", k[0], perSecond, testTime)
		check.Verb = law.Check
		if out := apply(t, s, check)[0]; out.State.BlockedUntil == 0 {
			t.Errorf("id %q: the block that was set meanwhile is gone: %+v", id, out)
		}
	}
}

// TestARefusedRequestThatStoodAnewIsForgotten: others come to the first of three
// slots, and so many to the second that it refuses.
func TestARefusedRequestThatStoodAnewIsForgotten(t *testing.T) {
	url, s, k := inSlots(t, 3)
	apply(t, s, reserving("l", k[2], 10, 0))
	ops := once60("id", reserving("l", k[0], 6, 11), reserving("l", k[1], 6, 11), reserving("l", k[2], 6, 11))
	outs := apply(t, interrupted(openTest(t, url, nil), func() {
		apply(t, s, reserving("l", k[0], 4, 60))
		apply(t, s, reserving("l", k[1], 10, 60))
	}), ops...)
	if outs[1].Granted != 0 {
		t.Errorf("not refused: %+v", outs)
	}
	for i, op := range ops {
		if n, _ := admin(t, s, "EXISTS", s.admissionKey(op.Cell, "id")).AsInt64(); n != 0 {
			t.Errorf("key %d remembers the id of a refused request", i)
		}
	}
	if outs := outcomes(t, s, settling(ops[0], 6_000_000)); outs[0].Err == nil {
		t.Errorf("a refused request can be settled: %+v", outs)
	}
}

// TestAStartThatIsOverIsCommonToo: the second slot is raised when the start is over,
// and the first is cut off; others come to it before and after.
func TestAStartThatIsOverIsCommonToo(t *testing.T) {
	url, s, k := inSlots(t, 2)
	now := func(ops ...law.Op) []law.Op {
		for i := range ops {
			ops[i].Now = 0
		}
		return ops
	}
	res := func(key string, cost, wait int64) law.Op {
		op := reserving("l", key, 1, 0)
		op.Cost, op.Ceiling = cost, perSecond.Ceiling(wait)
		return now(op)[0]
	}
	apply(t, s, res(k[1], 10_000_000, 0))
	ops := once60("id", res(k[0], 6_000_000, 60_000_000), res(k[1], 200_000, 60_000_000))
	// A starts at once, B 0.2 s later. Cut off before the second round trip.
	try(hooked(openTest(t, url, nil), func(n, _ int) bool { return n >= 2 }), ops)
	time.Sleep(2 * time.Second)
	// Others fill A.
	other := apply(t, s, res(k[0], 4_020_000, 0))
	// Asked again: in round trip 3 B is raised, a little late, and A is cut off.
	try(hooked(openTest(t, url, nil), func(n, c int) bool {
		if n == 3 && c == 1 {
			time.Sleep(50 * time.Millisecond)
		}
		return n == 3 && c == 0 || n > 3
	}), ops)
	apply(t, s, res(k[0], 1_980_000, 0)) // others again
	outs := try(s, ops)
	start := max(outs[0].StartAt, outs[1].StartAt)
	if outs[0].Granted > 0 && outs[0].StartAt != outs[1].StartAt {
		t.Errorf("two starts of one request: %d us apart", outs[1].StartAt-outs[0].StartAt)
	}
	if d := start - other[0].StartAt; outs[0].Granted > 0 && 12_000_000 > 10_000_000+d {
		t.Errorf("on the first key 12 units start within %d us", d)
	}
}

// TestAResetBetweenTheRoundTrips forgets what the request took; what others charge
// after it is theirs. (Without an id nothing tells that it was: see docs/stores.md.)
func TestAResetBetweenTheRoundTrips(t *testing.T) {
	for _, refused := range []bool{false, true} {
		url, s, k := inSlots(t, 2)
		apply(t, s, reserving("l", k[1], 10, 0))
		last := reserving("l", k[1], 1, 60)
		last.Cost = 1000 // 1 ms later
		if refused {
			last = reserving("l", k[1], 1, 0)
		}
		ops := once60("id", reserving("l", k[0], 10, 60), last)
		reset := takeOne("l", k[0], perSecond, testTime)
		reset.Verb = law.Reset
		var others []law.Outcome
		outs := apply(t, interrupted(openTest(t, url, nil), func() {
			apply(t, s, reset)
			others = apply(t, s, reserving("l", k[0], 9, 0))
		}), ops...)
		if got := level(t, s, ops[0]); got < 9 {
			t.Errorf("refused %v: the others' charge of 9 units was given back: the level is %v", refused, got)
		}
		if d := outs[0].StartAt - others[0].StartAt; outs[0].StartAt > 0 && 19_000_000 > 10_000_000+d {
			t.Errorf("19 units start within %d us", d)
		}
	}
}

// TestSlotsThatWereChargedApartStartTogether: the first asking charges one slot, and
// the second the other, but is cut off before the first is asked anew. The third is
// told of both.
func TestSlotsThatWereChargedApartStartTogether(t *testing.T) {
	url, s, k := inSlots(t, 2)
	ops := once60("id", reserving("l", k[0], 6, 60), reserving("l", k[1], 6, 60))
	try(hooked(openTest(t, url, nil), func(n, c int) bool { return c == 1 || n > 1 }), at(0, ops...))
	apply(t, s, at(20, reserving("l", k[0], 10, 0))...) // others
	try(hooked(openTest(t, url, nil), func(n, _ int) bool { return n > 1 }), at(20, ops...))
	outs := try(s, at(20, ops...))
	if outs[0].StartAt != outs[1].StartAt {
		t.Errorf("two starts of one request: %d and %d", outs[0].StartAt-testTime, outs[1].StartAt-testTime)
	}
	if outs[0].Granted > 0 && max(outs[0].StartAt, outs[1].StartAt) < testTime+26_000_000 {
		t.Error("16 units start at 20 on the first key")
	}
}

// TestWhatWasGivenBackIsNotTold: a refusal may not put an admission back of a charge
// that was given back when the request stood anew.
func TestWhatWasGivenBackIsNotTold(t *testing.T) {
	url, s, k := inSlots(t, 3)
	apply(t, s, reserving("l", k[2], 10, 0))
	ops := once60("id", reserving("l", k[0], 6, 20), reserving("l", k[1], 6, 20), reserving("l", k[2], 6, 20))
	// A is raised to 6, B is not: cut off.
	try(hooked(openTest(t, url, nil), func(n, c int) bool { return n == 2 && c == 1 || n > 2 }), ops)
	other := apply(t, s, reserving("l", k[0], 4, 60)) // starts at 6
	b := once60("b", reserving("l", k[1], 10, 60))    // a long line in B
	apply(t, s, b...)
	apply(t, s, reserving("l", k[2], 10, 60)) // and in C
	if outs := try(openTest(t, url, nil), ops); outs[2].Granted != 0 {
		t.Fatal("not refused")
	}
	apply(t, s, settling(b[0], law.Cancelled)) // the line in B is gone
	more := apply(t, s, reserving("l", k[0], 6, 60))
	outs := try(openTest(t, url, nil), ops)
	if outs[0].Granted == 6 && outs[0].StartAt == outs[1].StartAt && outs[1].StartAt == outs[2].StartAt {
		from := min(outs[0].StartAt, other[0].StartAt, more[0].StartAt)
		to := max(outs[0].StartAt, other[0].StartAt, more[0].StartAt)
		if 16_000_000 > 10_000_000+to-from {
			t.Errorf("16 units start within %d us of the first key", to-from)
		}
	}
}

// TestSlotsDoNotDriveEachOtherOn: nobody else asks. In each of two slots is a cell that
// refills in steps and has room, charged its whole capacity, and one that waits.
func TestSlotsDoNotDriveEachOtherOn(t *testing.T) {
	s := openTest(t, dbtest.RedisCluster(t), nil)
	warmUp(t, s)
	k := keysApart(2)
	for _, step := range []int64{1000, 10_000, 1_000_000, 60_000_000} {
		stepped := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: step, Drain: 1000}
		quick := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: step / 1000, Drain: 1}
		name := func(w string) string { return fmt.Sprint(w, step) }
		records := map[law.Cell]*law.Record{}
		both := func(ops ...law.Op) (outs, want []law.Outcome) {
			var own []*law.Record
			for _, op := range ops {
				if records[op.Cell] == nil {
					records[op.Cell] = &law.Record{}
				}
				own = append(own, records[op.Cell])
			}
			want = make([]law.Outcome, len(ops))
			law.Apply(ops, want, testTime, own)
			return apply(t, s, ops...), want
		}
		charge := func(limit, key string, p law.Params, cost, now, wait int64) law.Op {
			op := takeOne(name(limit), key, p, testTime+now)
			op.Cost, op.Late, op.Ceiling = cost, true, p.Ceiling(wait)
			return op
		}
		both(charge("stepped", k[0], stepped, 1, 0, 0)) // so that it has a phase
		both(charge("stepped", k[1], stepped, 1, step/2, 0))
		now := step / 2
		both(charge("quick", k[0], quick, 1000, now, 0))
		both(charge("quick", k[1], quick, 1000, now, 0))
		wait := 100 * step
		ops := []law.Op{
			charge("stepped", k[0], stepped, 4999, now, wait), charge("quick", k[0], quick, 100, now, wait),
			charge("stepped", k[1], stepped, 4999, now, wait), charge("quick", k[1], quick, 150, now, wait),
		}
		outs, want := both(ops...)
		if want[0].StartAt == 0 {
			t.Fatal("law refuses")
		}
		if outs[0].StartAt == 0 {
			t.Errorf("step %d: refused, law starts after %d us: %+v", step, want[0].StartAt-testTime, outs)
		} else if outs[0].StartAt != want[0].StartAt {
			t.Errorf("step %d: starts after %d us, law after %d", step, outs[0].StartAt-testTime, want[0].StartAt-testTime)
		}
	}
}
