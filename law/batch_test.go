package law_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/testing/cells"
	"github.com/headgate/headgate/law"
)

// bucketOf5 is a bucket with a capacity of five units that drains one unit a second.
var bucketOf5 = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1_000_000, Drain: 1000}

// applyGroup applies the ops of one request to cells, which it finds by the ops' keys and makes if they are missing.
func applyGroup(cellsByKey map[string]*cell, ops ...law.Op) []law.Outcome {
	records, recordsByKey := make([]*law.Record, len(ops)), map[string]*law.Record{}
	for i := range ops {
		key := ops[i].Cell.Key
		if cellsByKey[key] == nil {
			cellsByKey[key] = &cell{}
		}
		if recordsByKey[key] == nil {
			recordsByKey[key] = cellsByKey[key].Record()
		}
		records[i] = recordsByKey[key]
		if ops[i].Cell.Limit == "" {
			ops[i].Cell.Limit = "l"
		}
	}
	outs := make([]law.Outcome, len(ops))
	law.Apply(ops, outs, start, records)
	for key, r := range recordsByKey {
		cellsByKey[key].Write(r, &cellsByKey[key].lastEntry)
	}
	return outs
}

// takeFrom returns a take of n units from the cell of a key.
func takeFrom(key string, n int64) law.Op {
	op := take(bucketOf5, n*1000)
	op.Cell.Key = key
	return op
}

func TestAGroupIsAdmittedAllOrNone(t *testing.T) {
	t.Parallel()
	cellsByKey := map[string]*cell{}
	applyGroup(cellsByKey, takeFrom("a", 2), takeFrom("b", 5))
	outs := applyGroup(cellsByKey, takeFrom("a", 1), takeFrom("b", 1))
	if outs[0].Granted != 1 || outs[1].Granted != 0 || outs[1].RetryAt != start+1_000_000 {
		t.Errorf("got %+v, want a granted and b refused for a second", outs)
	}
	if got := cellsByKey["a"].State.Level; got != 2000 || outs[0].State.Level != 2000 {
		t.Errorf("the level of a is %d after a refused request, want 2000", got)
	}
}

func TestRepeatedKeysInAGroupAddUp(t *testing.T) {
	t.Parallel()
	cellsByKey := map[string]*cell{}
	if outs := applyGroup(cellsByKey, takeFrom("a", 2), takeFrom("a", 3)); outs[0].Granted+outs[1].Granted != 2 ||
		cellsByKey["a"].State.Level != 5000 {
		t.Errorf("2 and 3 of 5 in one request: %+v; want both granted", outs)
	}
	cellsByKey = map[string]*cell{}
	if outs := applyGroup(cellsByKey, takeFrom("a", 3), takeFrom("a", 3)); outs[1].RetryAt != law.Never ||
		cellsByKey["a"].State.Level != 0 {
		t.Errorf("6 of 5 in one request: %+v; want a refusal with RetryAt Never", outs)
	}
}

func TestARefusalLeavesOnlyItsBlock(t *testing.T) {
	t.Parallel()
	cellsByKey := map[string]*cell{}
	blockingTake := func(key string, n int64) law.Op {
		op := takeFrom(key, n)
		op.Params.Block = 9_000_000
		return op
	}
	applyGroup(cellsByKey, takeFrom("a", 5))
	outs := applyGroup(cellsByKey, blockingTake("b", 1), blockingTake("a", 1))
	a, b := cellsByKey["a"].State, cellsByKey["b"].State
	if a.BlockedUntil != start+9_000_000 || a.Level != 5000 || b.BlockedUntil != 0 || b.Level != 0 ||
		outs[1].RetryAt != a.BlockedUntil {
		t.Errorf("got a %+v, b %+v; want a block of a, and b unchanged", a, b)
	}
	// Neither a cost above the capacity nor a check blocks the key.
	applyGroup(cellsByKey, blockingTake("c", 6))
	if cellsByKey["c"].State.BlockedUntil != 0 {
		t.Error("a cost above the capacity blocked")
	}
	check := blockingTake("a", 1)
	cellsByKey["a"].State.BlockedUntil = 0
	check.Verb = law.Check
	if applyGroup(cellsByKey, check); cellsByKey["a"].State.BlockedUntil != 0 {
		t.Error("a check blocked")
	}
}

func TestPartialGrantsToTheBrim(t *testing.T) {
	t.Parallel()
	cellsByKey := map[string]*cell{}
	op := takeFrom("a", 1)
	op.Cost, op.Count, op.Partial = 1, 7000, true
	if out := applyGroup(cellsByKey, op)[0]; out.Granted != 5000 || out.Used != 5000 || out.RetryAt == 0 {
		t.Errorf("got %+v, want 5000 granted, and RetryAt for the rest", out)
	}
}

func TestTimesOutsideTheCalendarBoundariesAreStale(t *testing.T) {
	t.Parallel()
	cellsByKey := map[string]*cell{}
	op := takeFrom("a", 1)
	op.Params.Anchor, op.Params.Drain, op.Cell.Limit = law.Calendar, law.Max, "month"
	op.Window = [4]int64{1, 2, 3, 4}
	if outs := applyGroup(cellsByKey, takeFrom("b", 1), op); !outs[0].Stale || !outs[1].Stale || outs[1].Clock != start ||
		cellsByKey["b"].State.Level != 0 {
		t.Errorf("outside the boundaries: got %+v, want both stale", outs)
	}
	op.Window = [4]int64{start - 20, start - 10, start + 10, start + 30}
	if outs := applyGroup(cellsByKey, takeFrom("b", 1), op); outs[0].Granted+outs[1].Granted != 2 ||
		cellsByKey["a"].State.EmptyAt != start+10 {
		t.Errorf("within the boundaries: got %+v, want both granted", outs)
	}
}

func TestAnInvalidGroupFailsAlone(t *testing.T) {
	t.Parallel()
	cellsByKey := map[string]*cell{}
	invalid, sameGroup, nextGroup := takeFrom("a", 1), takeFrom("b", 1), takeFrom("a", 1)
	invalid.Cost, invalid.Group, sameGroup.Group, nextGroup.Group = 0, 1, 1, 2
	outs := applyGroup(cellsByKey, invalid, sameGroup, nextGroup)
	if !errors.Is(outs[0].Err, law.ErrInvalid) || !errors.Is(outs[1].Err, law.ErrInvalid) || outs[2].Granted != 1 ||
		cellsByKey["b"].State.Level != 0 {
		t.Errorf("got %+v, want ErrInvalid for the first group, and the second granted", outs)
	}
}

// FuzzDecide checks that for no state and op the laws leave their range, charge a refusal, or grant beyond the ceiling.
func FuzzDecide(f *testing.F) {
	f.Add(uint8(1), uint8(0), int64(1000), int64(5000), int64(1), int64(1), int64(1000), int64(1), int64(0),
		int64(3000), int64(0), start, start, uint8(1), int64(1000))
	f.Add(uint8(2), uint8(0), int64(1000), int64(5000), int64(60_000_000), int64(1), int64(1000), int64(3), int64(9000),
		int64(3000), int64(500), start, start+1, uint8(2), int64(1000))
	f.Add(uint8(3), uint8(0), int64(1000), int64(5000), int64(1000), int64(1), int64(1), int64(5000), int64(0),
		int64(law.Max), int64(0), int64(1), start, uint8(1), int64(7))
	f.Add(uint8(1), uint8(1), int64(1), int64(law.Max), int64(1<<40), int64(law.Max), int64(law.Max), int64(1),
		int64(law.Max), int64(law.Max), int64(law.Max), start, int64(1), uint8(1), int64(law.Max))
	f.Fuzz(func(t *testing.T, kind, anchor uint8, unit, capacity, step, drain, cost, count, ceiling, level, prev, at,
		clock int64, stateKind uint8, stateUnit int64,
	) {
		op := law.Op{
			Verb: law.Take, Cell: law.Cell{Limit: "l"}, Cost: cost, Count: count, Ceiling: ceiling,
			Partial: count%2 == 0,
			Params: law.Params{
				Kind: law.Kind(kind), Anchor: law.Anchor(anchor), Unit: unit, Capacity: capacity,
				Step: step, Drain: drain,
			},
			Window: [4]int64{clock / 2, clock, clock + 1, clock + 2},
		}
		inRange := func(v, low, high int64) bool { return v >= low && v <= high }
		if clock > 1<<52 || clock < 0 || op.Valid() != nil || law.ValidGroup([]law.Op{op}) != nil ||
			!inRange(level, 0, law.Max) || !inRange(prev, 0, law.Max) || !inRange(at, 0, 1<<52) ||
			!inRange(int64(stateKind), 1, 3) || !inRange(stateUnit, 1, law.Max) {
			t.Skip()
		}
		s := law.State{Kind: law.Kind(stateKind), Level: level, Prev: prev, At: at, Unit: stateUnit, EmptyAt: at + 1}
		if s.Kind == law.Window && (level >= 1<<32 || prev >= 1<<32) {
			t.Skip() // levels of the window law stay below 2^32
		}
		d := law.Decide(s, &op, clock, 0, &cells.Cell{})
		for _, st := range []law.State{d.Base, d.Outcome.State} {
			for _, v := range []int64{st.Level, st.Prev, st.At, st.EmptyAt, st.BlockedUntil} {
				if !inRange(v, 0, law.Max) {
					t.Fatalf("%+v at %d: %+v leaves the range", op, clock, st)
				}
			}
		}
		out := d.Outcome
		if !inRange(out.Granted, 0, count) || !inRange(out.RetryAt, 0, law.Max) || out.Granted < count && !out.Stale &&
			out.RetryAt < d.Now {
			t.Fatalf("%+v at %d: %+v", op, clock, out)
		}
		maxUsed := capacity
		if op.Ceiling > 0 {
			maxUsed = op.Ceiling
		}
		if out.Granted > 0 && out.Used > maxUsed {
			t.Fatalf("%+v at %d: %+v passes the ceiling", op, clock, out)
		}
		if out.Granted == 0 && !out.Stale && out.State != d.Base {
			t.Fatalf("%+v at %d: a refusal was charged", op, clock)
		}
	})
}

func ExampleDecide() {
	limit := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 2000, Step: 1_000_000, Drain: 1000} // 1/s burst 2
	op := law.Op{Verb: law.Take, Params: limit, Cost: 1000, Count: 1}
	var s law.State
	for _, clock := range []int64{0, 0, 0, 1_000_000} {
		d := law.Decide(s, &op, clock, 0, nil)
		fmt.Println(d.Outcome.Granted, d.Outcome.Used, d.Outcome.RetryAt)
		s = d.Outcome.State
	}
	// Output:
	// 1 1000 0
	// 1 2000 0
	// 0 2000 1000000
	// 1 2000 0
}
