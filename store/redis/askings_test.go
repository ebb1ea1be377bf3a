package redis

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
)

// now returns a charge of so many credits by the servers' clocks.
func now(key string, cost, wait int64) law.Op {
	op := reserving("l", key, 1, 0)
	op.Cost, op.Ceiling, op.Now = cost, perSecond.Ceiling(wait), 0
	return op
}

// TestASlowServerChargesNobodyAgain: a completed request that started at once is
// asked again, while the second server is slow (or was when it was asked first).
func TestASlowServerChargesNobodyAgain(t *testing.T) {
	for _, slowFirst := range []bool{false, true} {
		url, s, k := inSlots(t, 2)
		slow := func() *Store {
			return hooked(openTest(t, url, nil), func(n, c int) bool {
				if n == 1 && c == 1 {
					time.Sleep(150 * time.Millisecond)
				}
				return false
			})
		}
		ops := once60("id", now(k[0], 6_000_000, 60_000_000), now(k[1], 6_000_000, 60_000_000))
		first, second := s, slow()
		if slowFirst {
			first, second = second, first
		}
		one := apply(t, first, ops...)
		apply(t, s, now(k[0], 4_000_000, 0)) // others
		two := apply(t, second, ops...)
		for i := range two {
			if !two[i].Replayed || two[i].StartAt != one[i].StartAt {
				t.Errorf("slow first %v: key %d started at once, and is told %d us later, replayed %v", slowFirst, i, two[i].StartAt-one[i].StartAt, two[i].Replayed)
			}
		}
	}
}

// TestAReplayFreesNothing: the same with others on both keys, of which one refuses
// what stands anew: what was charged to the other is gone.
func TestAReplayFreesNothing(t *testing.T) {
	url, s, k := inSlots(t, 2)
	ops := once60("id", now(k[1], 6_000_000, 1_000_000), now(k[0], 6_000_000, 1_000_000))
	slow := hooked(openTest(t, url, nil), func(n, c int) bool {
		if n == 1 && c == 1 {
			time.Sleep(150 * time.Millisecond)
		}
		return false
	})
	one := apply(t, slow, ops...)
	apply(t, s, now(k[0], 4_000_000, 0))
	apply(t, s, now(k[0], 5_000_000, 60_000_000)) // a line on the first key
	sum := int64(6_000_000)
	sum += 3_000_000 * apply(t, s, now(k[1], 3_000_000, 0))[0].Granted // others on the second
	two := try(s, ops)
	if two[0].Granted != 1 || two[1].Granted != 1 {
		t.Errorf("a request that was admitted is refused when it is asked again")
	}
	clock := int64(0)
	for range 30 {
		o := apply(t, s, now(k[1], 500_000, 0))[0]
		if clock = o.Clock; o.Granted == 0 {
			break
		}
		sum += 500_000
	}
	if d := clock - one[0].StartAt; sum > 10_000_000+d {
		t.Errorf("%d credits started on the second key within %d us", sum, d)
	}
	if n, _ := admin(t, s, "EXISTS", s.admissionKey(ops[0].Cell, "id")).AsInt64(); n == 0 {
		t.Error("the id is forgotten")
	}
}

// TestAskedAgainWithoutPatience: cut off before the second round trip, and asked
// again by one who does not want to wait (Once.Reserve with 0, Once.Take).
func TestAskedAgainWithoutPatience(t *testing.T) {
	for _, both := range []bool{true, false} {
		url, s, k := inSlots(t, 2)
		if both {
			apply(t, s, reserving("l", k[1], 10, 0))
		}
		ops := once60("id", reserving("l", k[0], 10, 60), reserving("l", k[1], 6, 60))
		try(hooked(openTest(t, url, nil), func(n, c int) bool { return n > 1 || !both && c > 0 }), ops)
		others := apply(t, s, at(4, reserving("l", k[0], 4, 0))...)
		if others[0].Granted != 4 {
			t.Fatal(others)
		}
		for i := range ops {
			ops[i].Late, ops[i].Ceiling = false, 0
		}
		outs := try(s, at(4, ops...))
		start := max(outs[0].StartAt, outs[1].StartAt, outs[0].Clock, outs[1].Clock)
		if outs[0].Granted == 10 && outs[1].Granted == 6 {
			if d := start - others[0].StartAt; 14_000_000 > 10_000_000+d {
				t.Errorf("both known %v: 14 units start within %d us", both, d)
			}
		}
	}
}

// TestTheRefusalOfOneLeavesTheOther: the second is asked while the first is between its round
// trips, goes on when the first has its start, and is refused by one slot.
func TestTheRefusalOfOneLeavesTheOther(t *testing.T) {
	url, s, k := inSlots(t, 3)
	apply(t, s, reserving("l", k[2], 10, 0))
	ops := func() []law.Op {
		return once60("id", reserving("l", k[0], 6, 20), reserving("l", k[1], 6, 20), reserving("l", k[2], 6, 20))
	}
	var one []law.Outcome
	two := try(interrupted(openTest(t, url, nil), func() {
		apply(t, s, reserving("l", k[0], 10, 60)) // others
		// The second has been told of nothing else; the first completes.
		one = apply(t, s, ops()...)
		apply(t, s, reserving("l", k[0], 10, 60))
		apply(t, s, reserving("l", k[0], 10, 60))
		touch := reserving("l", k[2], 1, 60)
		touch.Cost = 500
		apply(t, s, touch)
	}), ops())
	if one[0].Granted != 6 || one[0].StartAt == 0 || two[0].Granted == 6 {
		t.Errorf("%+v\n%+v", one, two)
	}
	for i, op := range ops() {
		if n, _ := admin(t, s, "EXISTS", s.admissionKey(op.Cell, "id")).AsInt64(); n == 0 {
			t.Errorf("key %d has forgotten the id of a request that was told its start", i)
		}
	}
	more := apply(t, s, reserving("l", k[2], 10, 60))[0]
	if d := more.StartAt - one[2].StartAt; more.Granted == 10 && 16_000_000 > 10_000_000+max(d, -d) {
		t.Errorf("16 units start within %d us", d)
	}
}

// TestAnUndoneRequestIsNotInTheHistory: one that is stale was not refused.
func TestAnUndoneRequestIsNotInTheHistory(t *testing.T) {
	s := openTest(t, dbtest.RedisCluster(t), nil)
	a, b := apart(t)
	monthly := law.Params{Kind: law.Bucket, Anchor: law.Calendar, Unit: 1000, Capacity: 5000, Step: 1000, Drain: law.Max}
	stale := takeOne("month", b, monthly, testTime)
	stale.Bounds = [4]int64{1, 2, 3, 4}
	op := takeOne("l", a, recorded, testTime)
	outs := apply(t, s, op, stale)
	left, err := s.Entries(context.Background(), op.Cell, 10)
	if err != nil || len(left) > 0 || outs[0].Entry != 0 {
		t.Errorf("a stale request, of which nothing was done, is in the history: %+v, %v", left, err)
	}
}
