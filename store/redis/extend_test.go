package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// extendOp returns an op that extends the charge of op to a number of units.
func extendOp(op law.Op, units int64) law.Op {
	op.Verb, op.Cost, op.Count = law.Extend, units*op.Params.Unit, 1
	return op
}

// slotText returns what a slot keeps for an op: the cell without the number of its last log entry,
// the log, and the receipt of the ID.
func slotText(t *testing.T, s *Store, op law.Op) string {
	t.Helper()
	value, _ := admin(t, s, "GET", s.cellKey(op.Cell)).ToString()
	state, reason, _ := parseCell(value)
	list, err := s.Entries(context.Background(), op.Cell, 100)
	if err != nil {
		t.Fatal(err)
	}
	list = slices.DeleteFunc(list, func(e law.Entry) bool { return !e.Granted })
	remembered, _ := admin(t, s, "GET", s.admissionKey(op.Cell, op.ID)).ToString()
	return fmt.Sprintf("%+v %s %+v %s", state, reason, list, remembered)
}

// TestAnExtensionOverSlotsIsChargedAsAWhole extends a request over slots, and settles it.
func TestAnExtensionOverSlotsIsChargedAsAWhole(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	for _, p := range allLaws {
		limit := fmt.Sprint(p)
		ops := withID("id", takeOne(limit, a, p, testTime), takeOne(limit, b, p, testTime))
		apply(t, s, ops...)
		for _, tt := range []struct {
			to       [2]int64
			replayed bool
		}{{[2]int64{3, 1}, false}, {[2]int64{2, 4}, false}, {[2]int64{3, 4}, true}} {
			outs := apply(t, s, extendOp(ops[0], tt.to[0]), extendOp(ops[1], tt.to[1]))
			for i, out := range outs {
				if out.RetryAt != 0 || out.Granted < tt.to[i]*p.Unit || tt.replayed && !out.Replayed {
					t.Errorf("%+v to %v: %+v", p, tt.to, out)
				}
			}
		}
		outs := apply(t, s, settleOp(ops[0], p.Unit/2), settleOp(ops[1], p.Unit/2))
		if outs[0].Granted != 3*p.Unit-p.Unit/2 || outs[1].Granted != 4*p.Unit-p.Unit/2 || outs[0].Used != p.Unit/2 {
			t.Errorf("%+v settled: %+v", p, outs)
		}
	}
}

// refusals are causes for which the slot of the second op refuses to extend it: ops that came before,
// what is special about the op, and a part of the answer.
var refusals = []struct {
	why    string
	before func(t *testing.T, s *Store, op law.Op)
	now    int64 // the time of the extension, in us after the charge
	from   int64 // the op's From, in us after the charge
	err    error
	stale  bool
}{
	{why: "it is full", before: func(t *testing.T, s *Store, op law.Op) {
		op.Count, op.ID, op.TTL = 9, "", 0
		apply(t, s, op)
	}},
	{why: "it does not know the id", err: law.ErrUnknownID, now: 3_000_000, before: func(t *testing.T, s *Store, op law.Op) {
		op.Verb, op.ID, op.TTL = law.Reset, "", 0
		apply(t, s, op)
	}},
	{why: "it is settled", err: law.ErrSettled, now: 3_000_000, before: func(t *testing.T, s *Store, op law.Op) {
		apply(t, s, settleOp(op, 1))
	}},
	{why: "it holds later", stale: true, now: 3_000_000, from: 60_000_000},
}

// TestARefusedExtensionOverSlotsLeavesNothing: the slot that would have charged the extension has its cell, log
// and receipt as before. A limit with a history has the refused attempt.
func TestARefusedExtensionOverSlotsLeavesNothing(t *testing.T) {
	a, b := twoKeysApart(t)
	s := openSlots(t, slotsURL(t))
	for _, tt := range refusals {
		for _, p := range allLaws {
			for _, held := range []int64{1, 2} { // the units before the extension: charged once, or extended before
				name := fmt.Sprint(tt.why, p, held)
				ops := withID("id", takeOne(name, a, p, testTime), takeOne(name, b, perSecond, testTime))
				apply(t, s, ops...)
				if held > 1 {
					ops[0].Now += 2_000_000
					apply(t, s, extendOp(ops[0], held))
				}
				if tt.before != nil {
					tt.before(t, s, ops[1])
				}
				was := slotText(t, s, ops[0])
				more := []law.Op{extendOp(ops[0], 5), extendOp(ops[1], 5)}
				more[0].Now, more[1].Now = testTime+3_000_000, testTime+tt.now
				if tt.from > 0 {
					more[1].From = testTime + tt.from
				}
				outs := outcomes(t, s, more...)
				refused := tt.err == nil && !tt.stale
				if refused != (outs[1].RetryAt > 0) || outs[0].RetryAt > 0 ||
					refused && (outs[0].Granted != held*p.Unit || outs[1].Granted != perSecond.Unit) {
					t.Errorf("%s: %+v", name, outs)
				}
				for _, out := range outs {
					if !errors.Is(out.Err, tt.err) || out.Stale != tt.stale || !refused && out.Granted != 0 {
						t.Errorf("%s: %+v", name, out)
					}
				}
				if is := slotText(t, s, ops[0]); is != was {
					t.Errorf("%s:\n was %s\n  is %s", name, was, is)
				}
				list, err := s.Entries(context.Background(), ops[0].Cell, 100)
				if noted := slices.ContainsFunc(list, func(e law.Entry) bool {
					return !e.Granted && e.Cost == (5-held)*p.Unit && e.ExpiresAt == 0 && e.ID == "id"
				}); err != nil || noted != (p.History > 0 && refused) {
					t.Errorf("%s: the history is %+v, %v", name, list, err)
				}
			}
		}
	}
}

// extendOnTrial extends one charge on trial, as if another slot had to decide too.
func extendOnTrial(t *testing.T, s *Store, op law.Op) (*part, []law.Op, []law.Outcome) {
	t.Helper()
	ops, outs := []law.Op{op}, make([]law.Outcome, 1)
	p := &part{call: s.encode(ops, []int{0}, onTrial)}
	list, err := s.send(context.Background(), []*call{p.call})[0].ToArray()
	if err == nil {
		err = p.read(ops, outs, list)
	}
	if err != nil || !p.admitted {
		t.Fatalf("%+v, %v", outs, err)
	}
	return p, ops, outs
}

// TestConcurrentChargesDuringAnExtensionStay lets others take 2 units between an extension from 2 to 5
// units, on trial, and its return.
func TestConcurrentChargesDuringAnExtensionStay(t *testing.T) {
	const second = 1_000_000
	for _, tt := range []struct {
		name    string
		p       law.Params
		later   int64 // how long after the extension the others take
		level   int64 // the level afterwards, in units
		settled int64 // the units that a cancellation gives back
	}{
		{"at once, all is given back", perSecond, 0, 3, 0},
		{"what has drained is not given back", perSecond, 2 * second, 2, 0},
		{"within the window", windowed, second, 4, 2},
		{"the first entry counts on", logged, second, 4, 2},
		{"the first entry would have expired", logged, 9*second + second/2, 2, 0},
		{"both entries have expired", logged, 11 * second, 2, 0},
		{"the first entry counts on, in a history", recorded, second, 4, 2},
		{"the first entry would have expired, in a history", recorded, 9*second + second/2, 2, 0},
		{"both entries have expired, in a history", recorded, 11 * second, 2, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openTest(t, dbtest.Redis(t), nil)
			now := testTime - testTime%(10*second)
			op := withID("id", takeOne("l", "k", tt.p, now))[0]
			op.Count = 2
			apply(t, s, op)
			op.Now += second
			p, ops, outs := extendOnTrial(t, s, extendOp(op, 5))
			other := takeOne("l", "k", tt.p, op.Now+tt.later)
			other.Count = 2
			apply(t, s, other)
			ops[0].Now = other.Now
			back := s.giveBack(ops, outs, p, false)
			if err := s.giveAllBack(context.Background(), ops, outs, []*call{back}); err != nil {
				t.Fatal(err)
			}
			if outs[0].State.Level != tt.level*tt.p.Unit || outs[0].Granted != 2*tt.p.Unit {
				t.Errorf("got %+v, want level %d", outs[0], tt.level)
			}
			cancel := settleOp(op, law.Cancelled)
			cancel.Now = other.Now
			if out := apply(t, s, cancel)[0]; out.Granted != tt.settled*tt.p.Unit {
				t.Errorf("cancelled: %+v, want %d given back", out, tt.settled)
			}
			// The level and the log still agree: when all charges have expired, the capacity can be taken.
			all := takeOne("l", "k", tt.p, other.Now+30*second)
			all.Count = 10
			if out := apply(t, s, all)[0]; out.Granted != 10 {
				t.Errorf("later: %+v, want all ten", out)
			}
		})
	}
}

// TestAnExtensionThatAnotherCallerReliesOnIsNotGivenBack: the other caller has made the same or a larger extension, or
// has settled the request.
func TestAnExtensionThatAnotherCallerReliesOnIsNotGivenBack(t *testing.T) {
	for _, p := range allLaws {
		for meanwhile, left := range map[string]int64{
			"": 1, "asked": 3, "asked of this slot alone": 3, "more": 4, "settled": 2, "reset": 0,
		} {
			s := openTest(t, dbtest.Redis(t), nil)
			op := withID("id", takeOne("l", "k", p, testTime))[0]
			apply(t, s, op)
			part, ops, outs := extendOnTrial(t, s, extendOp(op, 3))
			back := s.giveBack(ops, outs, part, false)
			switch meanwhile {
			case "asked":
				again, ops, outs := extendOnTrial(t, s, extendOp(op, 3))
				if s.giveBack(ops, outs, again, false) != nil {
					t.Error("what is known is to be given back")
				}
			case "asked of this slot alone":
				apply(t, s, extendOp(op, 3))
			case "more":
				extendOnTrial(t, s, extendOp(op, 4))
			case "settled":
				apply(t, s, settleOp(op, 2*p.Unit))
			case "reset":
				reset := op
				reset.Verb, reset.ID, reset.TTL = law.Reset, "", 0
				apply(t, s, reset)
			}
			if err := s.giveAllBack(context.Background(), ops, outs, []*call{back}); err != nil {
				t.Fatal(err)
			}
			if level := outs[0].State.Level; level != left*p.Unit {
				t.Errorf("%+v, %q: level %d, want %d units", p, meanwhile, level, left)
			}
		}
	}
}

// TestAnExtensionCutOffBetweenTwoSlotsCanBeRepeated: after a crash only one slot has charged an extension. A retry,
// or the settlement of the request, completes it.
func TestAnExtensionCutOffBetweenTwoSlotsCanBeRepeated(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	for _, p := range allLaws {
		for _, repeated := range []bool{true, false} {
			limit := fmt.Sprint(p, repeated)
			ops := withID("id", takeOne(limit, a, p, testTime), takeOne(limit, b, p, testTime))
			apply(t, s, ops...)
			extendOnTrial(t, s, extendOp(ops[0], 4))
			held := int64(1)
			if repeated {
				held = 4
				outs := apply(t, s, extendOp(ops[0], 4), extendOp(ops[1], 4))
				if !outs[0].Replayed || outs[1].Replayed || outs[0].Granted != 4*p.Unit || outs[1].Granted != 4*p.Unit {
					t.Errorf("%+v repeated: %+v", p, outs)
				}
			}
			outs := apply(t, s, settleOp(ops[0], 0), settleOp(ops[1], 0))
			if outs[0].Granted != 4*p.Unit || outs[1].Granted != held*p.Unit || outs[0].Used != 0 || outs[1].Used != 0 {
				t.Errorf("%+v settled: %+v", p, outs)
			}
		}
	}
}

// TestAnExtensionThatASlotCannotDecideLeavesNothing in the other slot, not even a refused attempt.
func TestAnExtensionThatASlotCannotDecideLeavesNothing(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	for _, p := range allLaws {
		limit := fmt.Sprint(p)
		ops := withID("id", takeOne(limit, a, p, testTime), takeOne(limit, b, p, testTime))
		apply(t, s, ops...)
		was := slotText(t, s, ops[0])
		admin(t, s, "SET", s.cellKey(ops[1].Cell), "of a newer version")
		more := []law.Op{extendOp(ops[0], 3), extendOp(ops[1], 3)}
		if err := s.Apply(context.Background(), more, make([]law.Outcome, 2)); err == nil {
			t.Errorf("%+v: no error", p)
		}
		if is := slotText(t, s, ops[0]); is != was {
			t.Errorf("%+v:\n was %s\n  is %s", p, was, is)
		}
		list, err := s.Entries(context.Background(), ops[0].Cell, 10)
		if err != nil || len(list) > 1 {
			t.Errorf("%+v: %+v, %v", p, list, err)
		}
	}
}

// TestHistoriesOverSlotsMatchOneServer applies random requests to a cluster, with a key in each of three
// slots, and to one server.
func TestHistoriesOverSlotsMatchOneServer(t *testing.T) {
	apartStore, together := openSlots(t, slotsURL(t)), openTest(t, dbtest.Redis(t), nil)
	keys := keysApart(3)
	refused := 0
	histories := tier.Pick[uint64](20, 100, 100)
	for seed := range histories {
		g := rand.New(rand.NewPCG(seed, 3))
		now := testTime
		var named [][]law.Op
		for n := range 25 {
			now += g.Int64N(3_000_000)
			ops := randomGroup(g, keys, fmt.Sprint(seed), fmt.Sprint(n), &named, now)
			want, got := outcomes(t, together, ops...), outcomes(t, apartStore, ops...)
			for i := range ops {
				w, g := want[i], got[i]
				w.EntryNumber, g.EntryNumber = 0, 0
				if ops[i].Verb == law.Extend && len(ops) > 1 && w.RetryAt > 0 {
					refused++
				}
				if w.Err != nil && g.Err != nil {
					w.Err, g.Err = nil, nil
				}
				if w != g {
					t.Fatalf("history %d, request %d, op %d: %+v\n got %+v\nwant %+v", seed, n, i, ops[i], g, w)
				}
			}
		}
	}
	if refused < int(histories)/5 {
		t.Errorf("%d extensions were refused: too few to say anything", refused)
	}
}

// randomGroup returns a random request: a new one, or one that extends, settles or repeats an earlier one.
func randomGroup(g *rand.Rand, keys []string, limit, id string, named *[][]law.Op, now int64) []law.Op {
	fixed := perSecond
	fixed.Step, fixed.Drain = 10_000_000, law.Max
	laws := append([]law.Params{fixed}, allLaws...)
	if g.IntN(4) == 0 || len(*named) == 0 {
		var ops []law.Op
		for k, key := range keys {
			p := laws[(k+int(limit[0]))%len(laws)]
			op := takeOne(limit, key, p, now)
			op.Cost = 1 + g.Int64N(3*p.Unit)
			ops = append(ops, op)
		}
		*named = append(*named, withID(id, ops...))
		return ops
	}
	ops := slices.Clone((*named)[g.IntN(len(*named))])
	kind := g.IntN(5)
	g.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
	switch {
	case kind == 0: // a request that one slot refuses to settle is settled in the others
		ops = ops[:1]
	case kind < 4:
		ops = ops[:1+g.IntN(len(ops))]
	}
	for i := range ops {
		op := &ops[i]
		op.Now = now
		switch {
		case kind == 0:
			*op = settleOp(*op, g.Int64N(4*op.Params.Unit))
		case kind < 4:
			op.Verb, op.Cost = law.Extend, g.Int64N(6*op.Params.Unit)+1
			if g.IntN(8) == 0 {
				op.Ceiling = 1 + g.Int64N(op.Params.Capacity)
			}
		}
	}
	return ops
}
