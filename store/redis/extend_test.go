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

// slotText returns what a slot keeps for an op: the cell without the number of its last log entry, the log without
// refused attempts, and the receipt of the ID.
func slotText(t *testing.T, s *Store, op law.Op) string {
	t.Helper()
	value, _ := admin(t, s, "GET", s.cellKey(op.Cell)).ToString()
	state, reason, _ := parseCell(value)
	list, err := s.Entries(context.Background(), op.Cell, 100)
	if err != nil {
		t.Fatal(err)
	}
	list = slices.DeleteFunc(list, func(e law.Entry) bool { return !e.Granted })
	receipt, _ := admin(t, s, "GET", s.receiptKey(op.Cell, op.ID)).ToString()
	return fmt.Sprintf("%+v %s %+v %s", state, reason, list, receipt)
}

// TestExtendOverSlotsIsChargedAsAWhole checks that each slot of a request charges its part, and settles it.
func TestExtendOverSlotsIsChargedAsAWhole(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	for _, p := range allLaws {
		limit := fmt.Sprint(p)
		ops := withID("id", takeOne(limit, a, p, testTime), takeOne(limit, b, p, testTime))
		apply(t, s, ops...)
		for _, tt := range []struct {
			units    [2]int64
			replayed bool
		}{{[2]int64{3, 1}, false}, {[2]int64{2, 4}, false}, {[2]int64{3, 4}, true}} {
			outs := apply(t, s, extendOp(ops[0], tt.units[0]), extendOp(ops[1], tt.units[1]))
			for i, out := range outs {
				if out.RetryAt != 0 || out.Granted < tt.units[i]*p.Unit || tt.replayed && !out.Replayed {
					t.Errorf("%+v extended to %v units: got %+v", p, tt.units, out)
				}
			}
		}
		outs := apply(t, s, settleOp(ops[0], p.Unit/2), settleOp(ops[1], p.Unit/2))
		if outs[0].Granted != 3*p.Unit-p.Unit/2 || outs[1].Granted != 4*p.Unit-p.Unit/2 || outs[0].Used != p.Unit/2 {
			t.Errorf("%+v settled: got %+v, want half a unit in use", p, outs)
		}
	}
}

// refusals are the cases in which the slot of the second op refuses to extend it: what happens before, the times of the
// second op, and the answer.
var refusals = []struct {
	reason    string
	prepare   func(t *testing.T, s *Store, op law.Op)
	delay     int64 // the time of its extension, in us after the charge
	fromDelay int64 // its From, in us after the charge; 0: it has none
	wantErr   error
	wantStale bool
}{
	{reason: "it is full", prepare: func(t *testing.T, s *Store, op law.Op) {
		op.Count, op.ID, op.TTL = 9, "", 0
		apply(t, s, op)
	}},
	{reason: "unknown id", wantErr: law.ErrUnknownID, delay: 3e6, prepare: func(t *testing.T, s *Store, op law.Op) {
		op.Verb, op.ID, op.TTL = law.Reset, "", 0
		apply(t, s, op)
	}},
	{reason: "it is settled", wantErr: law.ErrSettled, delay: 3e6, prepare: func(t *testing.T, s *Store, op law.Op) {
		apply(t, s, settleOp(op, 1))
	}},
	{reason: "it holds later", wantStale: true, delay: 3e6, fromDelay: 60e6},
}

// TestARefusedExtendOverSlotsChargesNothing checks that the slot that did not refuse has its cell, log and receipt as
// before. The history of a limit that has one shows an attempt that was refused without an error.
func TestARefusedExtendOverSlotsChargesNothing(t *testing.T) {
	a, b := twoKeysApart(t)
	s := openSlots(t, slotsURL(t))
	for _, tt := range refusals {
		for _, p := range allLaws {
			for _, units := range []int64{1, 2} { // before the extension: 1 as charged, or 2 after another extension
				name := fmt.Sprint(tt.reason, p, units)
				ops := withID("id", takeOne(name, a, p, testTime), takeOne(name, b, perSecond, testTime))
				apply(t, s, ops...)
				if units > 1 {
					ops[0].Now += 2_000_000
					apply(t, s, extendOp(ops[0], units))
				}
				if tt.prepare != nil {
					tt.prepare(t, s, ops[1])
				}
				before := slotText(t, s, ops[0])
				extension := []law.Op{extendOp(ops[0], 5), extendOp(ops[1], 5)}
				extension[0].Now, extension[1].Now = testTime+3_000_000, testTime+tt.delay
				if tt.fromDelay > 0 {
					extension[1].From = testTime + tt.fromDelay
				}
				outs := outcomes(t, s, extension...)
				isRefused := tt.wantErr == nil && !tt.wantStale
				if isRefused != (outs[1].RetryAt > 0) || outs[0].RetryAt > 0 ||
					isRefused && (outs[0].Granted != units*p.Unit || outs[1].Granted != perSecond.Unit) {
					t.Errorf("%s: got %+v", name, outs)
				}
				for _, out := range outs {
					if !errors.Is(out.Err, tt.wantErr) || out.Stale != tt.wantStale || !isRefused && out.Granted != 0 {
						t.Errorf("%s: got %+v", name, out)
					}
				}
				if after := slotText(t, s, ops[0]); after != before {
					t.Errorf("%s:\n got %s\nwant %s", name, after, before)
				}
				list, err := s.Entries(context.Background(), ops[0].Cell, 100)
				if isInHistory := slices.ContainsFunc(list, func(e law.Entry) bool {
					return !e.Granted && e.Cost == (5-units)*p.Unit && e.ExpiresAt == 0 && e.ID == "id"
				}); err != nil || isInHistory != (p.History > 0 && isRefused) {
					t.Errorf("%s: got history %+v, %v", name, list, err)
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

// TestConcurrentChargesDuringAnExtendStay checks that 2 units of another caller stay. They are taken between an
// extension from 2 to 5 units, on trial, and its return.
func TestConcurrentChargesDuringAnExtendStay(t *testing.T) {
	const second = 1_000_000
	for _, tt := range []struct {
		name      string
		p         law.Params
		delay     int64 // from the extension to the charge of the other caller, in us
		wantLevel int64 // the level afterwards, in units
		wantBack  int64 // the units that a cancellation gives back
	}{
		{"at once, all is given back", perSecond, 0, 3, 0},
		{"what has drained is not given back", perSecond, 2 * second, 2, 0},
		{"within the window", windowLimit, second, 4, 2},
		{"the first entry counts on", logLimit, second, 4, 2},
		{"the first entry would have expired", logLimit, 9*second + second/2, 2, 0},
		{"both entries have expired", logLimit, 11 * second, 2, 0},
		{"the first entry counts on, in a history", historyLimit, second, 4, 2},
		{"the first entry would have expired, in a history", historyLimit, 9*second + second/2, 2, 0},
		{"both entries have expired, in a history", historyLimit, 11 * second, 2, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openTest(t, dbtest.Redis(t), nil)
			now := testTime - testTime%(10*second)
			op := withID("id", takeOne("l", "k", tt.p, now))[0]
			op.Count = 2
			apply(t, s, op)
			op.Now += second
			p, ops, outs := extendOnTrial(t, s, extendOp(op, 5))
			other := takeOne("l", "k", tt.p, op.Now+tt.delay)
			other.Count = 2
			apply(t, s, other)
			ops[0].Now = other.Now
			giveBackCall := s.giveBack(ops, outs, p, false)
			if err := s.giveAllBack(context.Background(), ops, outs, []*call{giveBackCall}); err != nil {
				t.Fatal(err)
			}
			if outs[0].State.Level != tt.wantLevel*tt.p.Unit || outs[0].Granted != 2*tt.p.Unit {
				t.Errorf("got %+v, want level %d", outs[0], tt.wantLevel)
			}
			cancel := settleOp(op, law.Cancelled)
			cancel.Now = other.Now
			if out := apply(t, s, cancel)[0]; out.Granted != tt.wantBack*tt.p.Unit {
				t.Errorf("cancelled: got %+v, want %d units given back", out, tt.wantBack)
			}
			// The level and the log still agree: when all charges have expired, the capacity can be taken.
			whole := takeOne("l", "k", tt.p, other.Now+30*second)
			whole.Count = 10
			if out := apply(t, s, whole)[0]; out.Granted != 10 {
				t.Errorf("after 30 s: got %+v, want all ten units", out)
			}
		})
	}
}

// TestAnExtendThatAnotherCallerReliesOnIsNotGivenBack checks an extension on trial after which another caller makes the
// same or a larger extension, settles the request or resets the key. Without any of these it is given back.
func TestAnExtendThatAnotherCallerReliesOnIsNotGivenBack(t *testing.T) {
	for _, p := range allLaws {
		for event, wantUnits := range map[string]int64{
			"": 1, "repeated": 3, "repeated in this slot alone": 3, "extended further": 4, "settled": 2, "reset": 0,
		} {
			s := openTest(t, dbtest.Redis(t), nil)
			op := withID("id", takeOne("l", "k", p, testTime))[0]
			apply(t, s, op)
			trial, ops, outs := extendOnTrial(t, s, extendOp(op, 3))
			giveBackCall := s.giveBack(ops, outs, trial, false)
			switch event {
			case "repeated":
				repeatedTrial, ops, outs := extendOnTrial(t, s, extendOp(op, 3))
				if s.giveBack(ops, outs, repeatedTrial, false) != nil {
					t.Error("a replayed extension is to be given back")
				}
			case "repeated in this slot alone":
				apply(t, s, extendOp(op, 3))
			case "extended further":
				extendOnTrial(t, s, extendOp(op, 4))
			case "settled":
				apply(t, s, settleOp(op, 2*p.Unit))
			case "reset":
				reset := op
				reset.Verb, reset.ID, reset.TTL = law.Reset, "", 0
				apply(t, s, reset)
			}
			if err := s.giveAllBack(context.Background(), ops, outs, []*call{giveBackCall}); err != nil {
				t.Fatal(err)
			}
			if level := outs[0].State.Level; level != wantUnits*p.Unit {
				t.Errorf("%+v, %q: got level %d, want %d units", p, event, level, wantUnits)
			}
		}
	}
}

// TestAnExtendCutOffBetweenTwoSlotsCanBeRetried checks an extension that only one slot has charged, as after a crash.
// A retry charges the other slot too, and the request can be settled without a retry.
func TestAnExtendCutOffBetweenTwoSlotsCanBeRetried(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	for _, p := range allLaws {
		for _, isRetried := range []bool{true, false} {
			limit := fmt.Sprint(p, isRetried)
			ops := withID("id", takeOne(limit, a, p, testTime), takeOne(limit, b, p, testTime))
			apply(t, s, ops...)
			extendOnTrial(t, s, extendOp(ops[0], 4))
			wantUnits := int64(1)
			if isRetried {
				wantUnits = 4
				outs := apply(t, s, extendOp(ops[0], 4), extendOp(ops[1], 4))
				if !outs[0].Replayed || outs[1].Replayed || outs[0].Granted != 4*p.Unit || outs[1].Granted != 4*p.Unit {
					t.Errorf("%+v retried: got %+v", p, outs)
				}
			}
			outs := apply(t, s, settleOp(ops[0], 0), settleOp(ops[1], 0))
			if outs[0].Granted != 4*p.Unit || outs[1].Granted != wantUnits*p.Unit || outs[0].Used+outs[1].Used != 0 {
				t.Errorf("%+v settled: got %+v", p, outs)
			}
		}
	}
}

// TestAnExtendThatFailsInOneSlotChargesNothing checks that the other slot keeps neither its charge nor an attempt.
func TestAnExtendThatFailsInOneSlotChargesNothing(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	for _, p := range allLaws {
		limit := fmt.Sprint(p)
		ops := withID("id", takeOne(limit, a, p, testTime), takeOne(limit, b, p, testTime))
		apply(t, s, ops...)
		before := slotText(t, s, ops[0])
		admin(t, s, "SET", s.cellKey(ops[1].Cell), "of a newer version")
		extension := []law.Op{extendOp(ops[0], 3), extendOp(ops[1], 3)}
		if err := s.Apply(context.Background(), extension, make([]law.Outcome, 2)); err == nil {
			t.Errorf("%+v: got no error", p)
		}
		if after := slotText(t, s, ops[0]); after != before {
			t.Errorf("%+v:\n got %s\nwant %s", p, after, before)
		}
		list, err := s.Entries(context.Background(), ops[0].Cell, 10)
		if err != nil || len(list) > 1 {
			t.Errorf("%+v: got entries %+v, %v, want one at most", p, list, err)
		}
	}
}

// TestHistoriesOverSlotsMatchOneServer checks that random requests over up to three slots get the same answers as from
// a store that decides them in one script. It compares neither the numbers of log entries nor which error comes.
func TestHistoriesOverSlotsMatchOneServer(t *testing.T) {
	slotStore, singleStore := openSlots(t, slotsURL(t)), openTest(t, dbtest.Redis(t), nil)
	keys := keysApart(3)
	refusedExtends := 0
	histories := tier.Pick[uint64](20, 100, 100)
	for seed := range histories {
		g := rand.New(rand.NewPCG(seed, 3))
		now := testTime
		var requests [][]law.Op
		for n := range 25 {
			now += g.Int64N(3_000_000)
			ops := randomGroup(g, keys, fmt.Sprint(seed), fmt.Sprint(n), &requests, now)
			want, got := outcomes(t, singleStore, ops...), outcomes(t, slotStore, ops...)
			for i := range ops {
				wantOut, gotOut := want[i], got[i]
				wantOut.EntryNumber, gotOut.EntryNumber = 0, 0
				if ops[i].Verb == law.Extend && len(ops) > 1 && wantOut.RetryAt > 0 {
					refusedExtends++
				}
				if wantOut.Err != nil && gotOut.Err != nil {
					wantOut.Err, gotOut.Err = nil, nil
				}
				if wantOut != gotOut {
					t.Fatalf("history %d, request %d, op %d: %+v\n got %+v\nwant %+v", seed, n, i, ops[i], gotOut,
						wantOut)
				}
			}
		}
	}
	if refusedExtends < int(histories)/5 {
		t.Errorf("got %d refused extensions: too few to say anything", refusedExtends)
	}
}

// randomGroup returns a random request: one that extends, settles or repeats one of requests, or a new one, which it
// adds to them.
func randomGroup(g *rand.Rand, keys []string, limit, id string, requests *[][]law.Op, now int64) []law.Op {
	fixedWindow := perSecond
	fixedWindow.Step, fixedWindow.Drain = 10_000_000, law.Max
	laws := append([]law.Params{fixedWindow}, allLaws...)
	if g.IntN(4) == 0 || len(*requests) == 0 {
		var ops []law.Op
		for k, key := range keys {
			p := laws[(k+int(limit[0]))%len(laws)] // the first digit of the seed selects the laws
			op := takeOne(limit, key, p, now)
			op.Cost = 1 + g.Int64N(3*p.Unit)
			ops = append(ops, op)
		}
		*requests = append(*requests, withID(id, ops...))
		return ops
	}
	ops := slices.Clone((*requests)[g.IntN(len(*requests))])
	action := g.IntN(5)
	g.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
	switch {
	case action == 0: // settle one op: if a slot refuses to settle, the others have settled
		ops = ops[:1]
	case action < 4:
		ops = ops[:1+g.IntN(len(ops))]
	}
	for i := range ops {
		op := &ops[i]
		op.Now = now
		switch {
		case action == 0:
			*op = settleOp(*op, g.Int64N(4*op.Params.Unit))
		case action < 4:
			op.Verb, op.Cost = law.Extend, g.Int64N(6*op.Params.Unit)+1
			if g.IntN(8) == 0 {
				op.Ceiling = 1 + g.Int64N(op.Params.Capacity)
			}
		}
	}
	return ops
}
